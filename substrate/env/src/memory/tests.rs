//! Tests of the in-memory machine: possible states after a crash, and test access.

mod crash_rules;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{CrashPolicy, Env, File, MemEnv, OpenMode, OpenOptions, is_simulated_crash};

/// Creates a file whose name is durable.
fn create(env: &MemEnv, path: &str) -> Arc<dyn File> {
    let file = create_unsynced(env, path);
    env.sync_dir(Path::new(path).parent().unwrap()).unwrap();
    file
}

fn create_unsynced(env: &MemEnv, path: &str) -> Arc<dyn File> {
    env.open(Path::new(path), OpenOptions { mode: OpenMode::CreateNew, direct: false }).unwrap()
}

/// Creates a file, durable in name and contents.
fn create_with(env: &MemEnv, path: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = create(env, path);
    file.write_at(0, bytes).unwrap();
    file.sync().unwrap();
    file
}

fn names(env: &MemEnv) -> Vec<String> {
    env.list_dir(Path::new("/")).unwrap().into_iter().map(|entry| entry.name).collect()
}

/// Returns everything visible to a user of the disk.
fn contents(env: &MemEnv) -> Vec<(PathBuf, Vec<u8>)> {
    env.all_files().into_iter().map(|path| (path.clone(), env.file_bytes(&path).unwrap())).collect()
}

/// Makes one call of each kind; fails once the power is off.
fn script(env: &MemEnv) -> io::Result<()> {
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
    env.create_dir(Path::new("/d"))?;
    let _lock = env.lock(Path::new("/d/LOCK"), true, true)?;
    let file = env.open(Path::new("/d/a"), options)?;
    file.write_at(0, &[1; 3000])?;
    file.sync()?;
    file.allocate(0, 10_000)?;
    file.punch_hole(0, 4096)?;
    file.set_len(9_000)?;
    env.rename(Path::new("/d/a"), Path::new("/d/b"))?;
    env.sync_dir(Path::new("/d"))?;
    env.open(Path::new("/d/c"), options)?;
    env.remove_file(Path::new("/d/c"))?;
    env.create_dir(Path::new("/d/e"))?;
    env.remove_dir(Path::new("/d/e"))?;
    env.sync_dir(Path::new("/"))
}
const SCRIPT_OPERATIONS: u64 = 15;

#[test]
fn only_operations_that_change_or_sync_are_counted() {
    let env = MemEnv::new(1);
    script(&env).unwrap();
    assert_eq!(env.operation_count(), SCRIPT_OPERATIONS);
    let file = env.open(Path::new("/d/b"), OpenOptions { mode: OpenMode::Read, direct: false }).unwrap();
    file.read_at(0, &mut [0; 10]).unwrap();
    file.len().unwrap();
    names(&env);
    drop(env.lock(Path::new("/d/LOCK"), true, true).unwrap());
    assert_eq!(env.operation_count(), SCRIPT_OPERATIONS);
}

#[test]
fn the_power_can_fail_at_every_operation() {
    for count in 0..=SCRIPT_OPERATIONS {
        let env = MemEnv::new(1);
        env.crash_after(count);
        let result = script(&env);
        assert_eq!(result.is_ok(), count == SCRIPT_OPERATIONS);
        if let Err(error) = result {
            assert!(is_simulated_crash(&error), "{error}");
        }
        assert!(env.is_crashed());
        assert_eq!(env.operation_count(), count);
        let frozen = contents(&env.crash_image(&CrashPolicy::KEEP_ALL, 0));
        assert!(is_simulated_crash(&env.create_dir(Path::new("/x")).unwrap_err()));
        assert!(is_simulated_crash(&env.list_dir(Path::new("/")).unwrap_err()));
        assert_eq!(contents(&env.crash_image(&CrashPolicy::KEEP_ALL, 0)), frozen);
        for policy in CrashPolicy::all() {
            let image = env.crash_image(&policy, count);
            assert!(!image.is_crashed());
            names(&image);
        }
    }
}

#[test]
fn open_handles_fail_after_power_loss_and_close_quietly() {
    let env = MemEnv::new(1);
    let file = create_with(&env, "/a", b"abc");
    env.crash_after(0);
    let results = [
        file.read_at(0, &mut [0]),
        file.write_at(0, b"x"),
        file.sync(),
        file.set_len(0),
        file.allocate(0, 1),
        file.punch_hole(0, 1),
        file.len().map(drop),
    ];
    for result in results {
        assert!(is_simulated_crash(&result.unwrap_err()));
    }
    drop(file);
    assert_eq!(env.file_bytes("/a").unwrap(), b"abc");
}

#[test]
fn ordinary_errors_are_no_simulated_crash() {
    assert!(!is_simulated_crash(&io::ErrorKind::NotFound.into()));
    assert!(!is_simulated_crash(&io::Error::other("something else")));
}

#[test]
fn a_live_image_keeps_every_write_and_leaves_it_unsynced() {
    let env = MemEnv::new(1);
    let file = create(&env, "/a");
    file.write_at(0, b"unsynced").unwrap();
    create_unsynced(&env, "/b");
    let _lock = env.lock(Path::new("/a"), false, true).unwrap();
    let image = env.live_image();
    assert_eq!(contents(&image), contents(&env));
    image.lock(Path::new("/a"), false, true).unwrap();
    file.write_at(0, b"later").unwrap();
    assert_eq!(image.file_bytes("/a").unwrap(), b"unsynced");
    let crashed = image.crash_image(&CrashPolicy::LOSE_ALL, 0);
    assert_eq!(contents(&crashed), [(PathBuf::from("/a"), Vec::new())]);
}

#[test]
fn full_disk_refuses_whole_calls_and_removal_frees_space() {
    let env = MemEnv::new(1);
    env.space_limit(Some(10 * 4096));
    let file = create(&env, "/a");
    file.write_at(0, &[1; 8 * 4096]).unwrap();
    let full = |result: io::Result<()>| assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
    full(file.write_at(6 * 4096, &[2; 5 * 4096]));
    full(file.allocate(0, 11 * 4096));
    assert_eq!(file.len().unwrap(), 8 * 4096);
    assert_eq!(env.file_bytes("/a").unwrap(), [1; 8 * 4096]);
    file.write_at(0, &[2; 8 * 4096]).unwrap();
    assert_eq!(env.free_bytes(Path::new("/")).unwrap(), 2 * 4096);
    let other = create(&env, "/b");
    full(other.write_at(0, &[3; 3 * 4096]));
    file.punch_hole(0, 4096).unwrap();
    other.write_at(0, &[3; 3 * 4096]).unwrap();
    assert_eq!(env.used_bytes(), 10 * 4096);
    env.remove_file(Path::new("/a")).unwrap();
    assert_eq!(env.used_bytes(), 10 * 4096, "the handle retains the space");
    drop(file);
    assert_eq!(env.used_bytes(), 3 * 4096);
    env.space_limit(None);
    other.write_at(0, &[3; 20 * 4096]).unwrap();
}

#[test]
fn tests_can_damage_files() {
    let env = MemEnv::new(1);
    env.create_dir(Path::new("/d")).unwrap();
    env.sync_dir(Path::new("/")).unwrap();
    let file = create_with(&env, "/d/a", &[0b1010; 5000]);
    file.write_at(4999, &[7]).unwrap();
    env.corrupt("/d/a", 4998, 0b0110).unwrap();
    assert_eq!(env.corrupt("/d/a", 5000, 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(env.corrupt("/d/b", 0, 1).unwrap_err().kind(), io::ErrorKind::NotFound);
    for (policy, last) in [(CrashPolicy::LOSE_ALL, 0b1010), (CrashPolicy::KEEP_ALL, 7)] {
        let bytes = env.crash_image(&policy, 0).file_bytes("/d/a").unwrap();
        assert_eq!(bytes[4997..], [0b1010, 0b1100, last]);
    }
    env.truncate("/d/a", 10).unwrap();
    env.replace("/d/b", b"made").unwrap();
    env.replace("/d/b", b"new").unwrap();
    let expected = [(PathBuf::from("/d/a"), vec![0b1010; 10]), (PathBuf::from("/d/b"), b"new".to_vec())];
    assert_eq!(contents(&env), expected);
    assert_eq!(contents(&env.crash_image(&CrashPolicy::LOSE_ALL, 0)), expected);
}

#[test]
fn stepped_time_and_randomness_follow_the_seed() {
    let run = |seed| {
        let env = MemEnv::new(seed);
        let first = env.monotonic();
        env.sleep(Duration::from_secs(3600));
        (env.random_u64(), env.random_u64(), env.monotonic() - first)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).0, run(6).0);
    assert_eq!(run(5).2, Duration::from_secs(3600) + Duration::from_micros(1));
    let env = MemEnv::new(1);
    env.sleep(Duration::from_secs(9));
    assert!(env.crash_image(&CrashPolicy::KEEP_ALL, 1).monotonic() > Duration::from_secs(9));
}

#[test]
fn huge_sparse_file_is_cheap_to_store_and_to_crash() {
    let env = MemEnv::new(1);
    let file = create(&env, "/a");
    file.allocate(0, 1 << 40).unwrap();
    file.write_at(1 << 39, b"far").unwrap();
    file.punch_hole(0, 1 << 38).unwrap();
    file.sync().unwrap();
    file.set_len(1 << 20).unwrap();
    for seed in 0..20 {
        let image = env.crash_image(&CrashPolicy { keep_percent: 50, torn: crate::TornMode::Mix }, seed);
        let options = OpenOptions { mode: OpenMode::Read, direct: false };
        let length = image.open(Path::new("/a"), options).unwrap().len().unwrap();
        assert!(length == 1 << 40 || length == 1 << 20);
    }
}
