use super::*;
use crate::MemEnv;

const WHOLE: u64 = 64 << 10;

fn machine() -> (Arc<MemEnv>, Arc<Reserve>) {
    let machine = MemEnv::new(1);
    let reserve = Reserve::open(machine.clone(), "/reserve".into(), WHOLE).unwrap();
    assert!(reserve.refill().unwrap());
    (machine, reserve)
}

fn new_file(env: &dyn Env, path: &str) -> Arc<dyn File> {
    env.open(Path::new(path), OpenOptions { mode: OpenMode::CreateNew, direct: false }).unwrap()
}

#[test]
fn writes_use_the_reserve_until_it_is_exhausted() {
    let (machine, reserve) = machine();
    let file = new_file(&*reserve.env(), "/log");
    machine.space_limit(Some(machine.used_bytes()));
    let portion = vec![1; 16 << 10];
    for written in 0..4 {
        assert_eq!(reserve.portions(), Reserve::PORTIONS - u32::try_from(written).unwrap());
        file.write_at(written * 16384, &portion).unwrap();
    }
    assert_eq!(reserve.bytes(), 0);
    let error = file.write_at(65536, &portion).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn background_writes_use_the_reserve_too() {
    let (machine, reserve) = machine();
    let file = new_file(&*reserve.env(), "/data");
    machine.space_limit(Some(machine.used_bytes()));
    let portion = || AlignedBuffer::zeroed(16 << 10);
    for written in 0..4 {
        let (buffer, result) = file.start_write(written * 16384, portion(), 16 << 10).wait();
        assert!(result.is_ok() && buffer.len() == 16 << 10);
    }
    let (_, result) = file.start_write(65536, portion(), 16 << 10).wait();
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn allocations_leave_most_of_the_reserve_to_writes() {
    let (machine, reserve) = machine();
    let file = new_file(&*reserve.env(), "/data");
    machine.space_limit(Some(machine.used_bytes()));
    file.allocate(0, 16 << 10).unwrap();
    file.allocate(16 << 10, 16 << 10).unwrap_err();
    assert_eq!(reserve.portions(), Reserve::PORTIONS - 1);
    file.write_at(0, &[1; 4096]).unwrap();
}

#[test]
fn bulk_writes_take_one_portion_and_no_more() {
    let (machine, reserve) = machine();
    let file = new_file(&*reserve.bulk_env(), "/data");
    machine.space_limit(Some(machine.used_bytes()));
    let portion = vec![1; 16 << 10];
    file.write_at(0, &portion).unwrap();
    file.write_at(16 << 10, &portion).unwrap_err();
    file.set_len(0).unwrap();
    file.allocate(0, 16 << 10).unwrap();
    assert_eq!(reserve.portions(), Reserve::PORTIONS - 1);
}

#[test]
fn background_bulk_writes_take_one_portion_and_no_more() {
    let (machine, reserve) = machine();
    let file = new_file(&*reserve.bulk_env(), "/data");
    machine.space_limit(Some(machine.used_bytes()));
    let write = |at| file.start_write(at, AlignedBuffer::zeroed(16 << 10), 16 << 10).wait().1;
    write(0).unwrap();
    assert_eq!(write(16 << 10).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(reserve.portions(), Reserve::PORTIONS - 1);
}

#[test]
fn reserve_refills_once_there_is_space() {
    let (machine, reserve) = machine();
    let file = new_file(&*reserve.env(), "/log");
    let used = machine.used_bytes();
    machine.space_limit(Some(used));
    file.write_at(0, &[1; 20 << 10]).unwrap();
    assert!(reserve.is_short() && !reserve.refill().unwrap());
    machine.space_limit(Some(used + (200 << 10)));
    assert!(reserve.refill().unwrap() && !reserve.is_short());
    assert_eq!(reserve.bytes(), WHOLE);
}

#[test]
fn reopened_reserve_has_the_remaining_portions() {
    let (machine, reserve) = machine();
    let file = new_file(&*reserve.env(), "/log");
    machine.space_limit(Some(machine.used_bytes()));
    file.write_at(0, &[1; 20 << 10]).unwrap();
    let left = reserve.portions();
    let found = Reserve::open(machine, "/reserve".into(), WHOLE).unwrap();
    assert_eq!(found.portions(), left);
    assert!((1..Reserve::PORTIONS).contains(&left));
}

#[test]
fn file_length_encodes_portions_and_their_size() {
    for portion_bytes in [16 << 10, 48 << 10, 256 << 10, 4 << 20] {
        for portions in 1..=Reserve::PORTIONS {
            assert_eq!(portions_of(length_of(portions, portion_bytes), 1), (portions, portion_bytes));
        }
        assert_eq!(portions_of(length_of(0, portion_bytes), WHOLE), (0, WHOLE / 4));
    }
    // Whatever the length, no more is given up than is present.
    for length in (0..1 << 20).step_by(1000) {
        let (portions, portion_bytes) = portions_of(length, WHOLE);
        assert!(length_of(portions, portion_bytes) <= length, "{length}");
    }
}

#[test]
fn whole_reserve_grows_on_demand_and_shrinks_late() {
    let (machine, reserve) = machine();
    reserve.resize(4 * WHOLE).unwrap();
    assert_eq!((reserve.bytes(), reserve.whole_bytes()), (4 * WHOLE, 4 * WHOLE));
    assert_eq!(machine.used_bytes(), 4 * WHOLE);
    reserve.resize(2 * WHOLE).unwrap();
    assert_eq!(reserve.bytes(), 4 * WHOLE);
    let found = Reserve::open(machine.clone(), "/reserve".into(), WHOLE).unwrap();
    assert_eq!((found.bytes(), found.is_short()), (4 * WHOLE, false));
    reserve.resize(WHOLE).unwrap();
    assert_eq!((reserve.bytes(), machine.used_bytes()), (WHOLE, WHOLE));
}

#[test]
fn reserve_that_cannot_grow_stays_whole() {
    let (machine, reserve) = machine();
    let used = machine.used_bytes();
    for room in [0, WHOLE, 3 * WHOLE] {
        machine.space_limit(Some(used + room));
        reserve.resize(4 * WHOLE).unwrap();
        assert_eq!((reserve.bytes(), reserve.is_short(), machine.used_bytes()), (WHOLE, false, used));
    }
}

#[test]
fn a_reserve_with_a_portion_missing_keeps_its_size() {
    let (machine, reserve) = machine();
    let file = new_file(&*reserve.env(), "/log");
    machine.space_limit(Some(machine.used_bytes()));
    file.write_at(0, &[1; 16 << 10]).unwrap();
    machine.space_limit(None);
    reserve.resize(4 * WHOLE).unwrap();
    assert!(reserve.is_short() && reserve.whole_bytes() == WHOLE);
    assert!(reserve.refill().unwrap());
    reserve.resize(4 * WHOLE).unwrap();
    assert_eq!(reserve.bytes(), 4 * WHOLE);
}

/// Makes every call of an environment with a reserve, each failing `times` times for lack of a descriptor.
fn calls_that_lack_something(times: u64) -> Vec<(&'static str, io::Result<()>)> {
    let machine = MemEnv::new(1);
    let faulty = crate::FaultyEnv::new(machine);
    let reserve = Reserve::open(faulty.clone(), "/reserve".into(), WHOLE).unwrap();
    assert!(reserve.refill().unwrap());
    let env = reserve.env();
    let file = new_file(&*env, "/file");
    let root = Path::new("/");
    let call = |name: &'static str, call: &dyn Fn() -> io::Result<()>| {
        let error = crate::FaultError::Number(rustix::io::Errno::MFILE.raw_os_error());
        faulty.set_plan(Some(crate::FaultPlan::once(0, error).times(times)));
        (name, call())
    };
    let options = |mode| OpenOptions { mode, direct: false };
    vec![
        call("create", &|| env.open(Path::new("/new"), options(OpenMode::CreateNew)).map(drop)),
        call("open", &|| env.open(Path::new("/file"), options(OpenMode::Read)).map(drop)),
        call("write", &|| file.write_at(0, &[1; 4096])),
        call("length", &|| file.set_len(8192)),
        call("allocate", &|| file.allocate(0, 16384)),
        call("hole", &|| file.punch_hole(0, 4096)),
        call("list", &|| env.list_dir(root).map(drop)),
        call("directory", &|| env.create_dir(Path::new("/d"))),
        call("rename", &|| env.rename(Path::new("/new"), Path::new("/old"))),
        call("remove", &|| env.remove_file(Path::new("/old"))),
        call("remove directory", &|| env.remove_dir(Path::new("/d"))),
        call("free", &|| env.free_bytes(root).map(drop)),
        call("anchor", &|| env.anchor(root).map(drop)),
    ]
}

#[test]
fn transient_failures_are_retried() {
    for (name, outcome) in calls_that_lack_something(5) {
        assert!(outcome.is_ok(), "{name}: {outcome:?}");
    }
}

#[test]
fn persistent_shortage_is_reported_as_transient() {
    for (name, outcome) in calls_that_lack_something(1000) {
        assert!(outcome.is_err_and(|error| is_transient(&error)), "{name}");
    }
}
