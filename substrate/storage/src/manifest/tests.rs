use testudo_base::{ExtentSpan, KeyspaceId, ObjectId, RunId, Seqno, num::usize_of};
use testudo_env::{CrashPolicy, FaultError, FaultPlan, FaultyEnv, IoClass, MemEnv};

use super::*;
use crate::manifest::manifest_format::encode_record;

const STORE: StoreId = StoreId(42);
const KEYSPACE: KeyspaceId = KeyspaceId(1);

fn created(env: &Arc<MemEnv>) -> (Manifest, PathBuf) {
    let directory = PathBuf::from("/db");
    env.create_dir(&directory).unwrap();
    env.sync_dir(Path::new("/")).unwrap();
    let first = [Change::CreateKeyspace(KEYSPACE, "k".into(), vec![1])];
    (Manifest::create(env.clone(), &directory, STORE, &first).unwrap(), directory)
}

fn put(object: u64, bytes: &[u8]) -> Change {
    Change::PutObject(KEYSPACE, ObjectId(object), bytes.to_vec())
}

fn span(first_page: u64) -> ExtentSpan {
    ExtentSpan { first_page, page_count: 4 }
}

#[test]
fn reopened_state_equals_the_sum_of_the_edits() {
    let env = MemEnv::new(1);
    let (manifest, directory) = created(&env);
    manifest.commit(&[put(1, b"one"), Change::References(span(8), 2), Change::NextRun(RunId(5))]).unwrap();
    manifest.commit(&[put(1, b"two"), put(2, b"x"), Change::References(span(8), -1)]).unwrap();
    manifest
        .commit(&[Change::DeleteObject(KEYSPACE, ObjectId(2)), Change::Flushed(KEYSPACE, Seqno(9))])
        .unwrap();
    manifest.commit(&[Change::SetOptions(KEYSPACE, vec![2, 3])]).unwrap();
    let before = manifest.with_state(Clone::clone);
    assert_eq!(before.keyspaces[&KEYSPACE].options, [2, 3]);
    drop(manifest);
    let reopened = Manifest::open(env, &directory, true).unwrap();
    assert_eq!(reopened.with_state(Clone::clone), before);
    assert_eq!(reopened.store(), STORE);
}

#[test]
fn rotation_preserves_the_state_and_leaves_one_file() {
    let env = MemEnv::new(2);
    let (manifest, directory) = created(&env);
    for round in 0..200u64 {
        manifest.commit(&[put(round % 7, &vec![u8::try_from(round).unwrap(); 20_000])]).unwrap();
    }
    assert!(manifest.stats().number > 1);
    let before = manifest.with_state(Clone::clone);
    let reopened = Manifest::open(env.clone(), &directory, true).unwrap();
    reopened.remove_strays().unwrap();
    assert_eq!(reopened.with_state(Clone::clone), before);
    assert_eq!(reopened.stats().last_edit, 200, "edit numbers continue across files");
    let names = env.list_dir(&directory).unwrap();
    assert_eq!(names.iter().filter(|e| e.name.starts_with("manifest-")).count(), 1);
}

#[test]
fn every_committed_edit_survives_every_crash_image() {
    for seed in 0..300u64 {
        let env = MemEnv::new(seed);
        let (manifest, directory) = created(&env);
        for round in 0..=seed % 20 {
            manifest.commit(&[put(round, &vec![7; 30_000]), Change::NextRun(RunId(round))]).unwrap();
        }
        let before = manifest.with_state(Clone::clone);
        let image = env.crash_image(&CrashPolicy::random(seed), seed);
        let reopened = Manifest::open(image, &directory, true).unwrap();
        assert_eq!(reopened.with_state(Clone::clone), before, "seed {seed}");
    }
}

#[test]
fn a_damaged_edit_before_a_valid_one_is_corruption_not_a_torn_tail() {
    let env = MemEnv::new(3);
    let (manifest, directory) = created(&env);
    let start = manifest.stats().file_bytes;
    manifest.commit(&[put(1, b"first")]).unwrap();
    let second = manifest.stats().file_bytes;
    manifest.commit(&[put(1, b"second")]).unwrap();
    let path = directory.join(file_name(1));
    let record_bytes = 46;
    assert!(start + record_bytes < second, "the rest is padding, which is not checked");
    for offset in start..start + record_bytes {
        env.corrupt(&path, offset, 0x10).unwrap();
        let error = Manifest::open(env.clone(), &directory, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert_eq!(error.location(), Some(("manifest-0000000001", start)));
        env.corrupt(&path, offset, 0x10).unwrap();
    }
}

#[test]
fn an_edit_that_contradicts_the_state_is_refused() {
    let mut state = ManifestState::default();
    assert!(state.apply(&put(1, b"")).is_err(), "unknown keyspace");
    state.apply(&Change::References(span(8), 1)).unwrap();
    assert!(state.apply(&Change::References(span(10), 1)).is_err(), "overlap");
    assert!(state.apply(&Change::References(span(6), 1)).is_err(), "overlap");
    assert!(state.apply(&Change::References(span(8), -2)).is_err(), "below zero");
    assert!(state.apply(&Change::References(ExtentSpan { first_page: u64::MAX, page_count: 9 }, 1)).is_err());
    state.apply(&Change::References(span(8), i32::MAX - 1)).unwrap();
    assert!(state.apply(&Change::References(span(8), 1)).is_err(), "a snapshot could not encode it");
    state.apply(&Change::References(span(12), 1)).unwrap();
}

#[test]
fn a_span_whose_byte_offset_overflows_is_refused() {
    let mut state = ManifestState::default();
    assert!(state.apply(&Change::References(span(1 << 52), 1)).is_err());
    assert!(state.apply(&Change::References(span(u64::MAX - 4), 1)).is_err());
    assert!(state.apply(&Change::References(span(1 << 40), 1)).is_ok());
}

#[test]
fn an_edit_whose_sync_failed_during_opening_is_not_trusted() {
    let env = MemEnv::new(1);
    let (manifest, directory) = created(&env);
    manifest.close(Seqno(0)).unwrap();
    drop(manifest);
    let faulty = FaultyEnv::new(env.clone());
    let opening = Manifest::open(faulty.clone(), &directory, true).unwrap();
    assert!(opening.was_closed());
    faulty.set_plan(Some(FaultPlan::once(0, FaultError::Device).of_class(IoClass::Sync)));
    opening.commit(&[put(1, b"one")]).unwrap_err();
    drop(opening);
    // The edit is readable, but it is not on the device, and no later sync of the file writes it.
    env.fail_sync(directory.join("manifest-0000000001"), &CrashPolicy::LOSE_ALL, false, 1).unwrap();
    let again = Manifest::open(env.clone(), &directory, true).unwrap();
    assert!(!again.was_closed());
    again.rewrite().unwrap();
    again.commit(&[put(2, b"two")]).unwrap();
    let before = again.with_state(Clone::clone);
    let image = env.crash_image(&CrashPolicy::LOSE_ALL, 1);
    assert_eq!(Manifest::open(image, &directory, true).unwrap().with_state(Clone::clone), before);
}

#[test]
fn a_record_encoded_in_chunks_equals_one_encoded_in_memory() {
    let seed = RecordSeed::new(STORE, 3);
    for (count, bytes) in [(0, 0), (3, 10), (40, 100_000), (600, 1_000), (2, 3 << 20), (1, (48 << 10) - 17)] {
        let edit: Vec<Change> = (0..count).map(|object| put(object, &vec![7; bytes])).collect();
        let (mut file, mut longest) = (Vec::new(), 0);
        let write_at = |offset, chunk: &[u8]| {
            let from = usize_of(offset);
            file.resize(file.len().max(from + chunk.len()), 0);
            file[from..from + chunk.len()].copy_from_slice(chunk);
            longest = longest.max(chunk.len());
            Ok::<(), ()>(())
        };
        let end = encode_record_in_chunks(edit.iter().cloned(), 5, seed, write_at).unwrap();
        assert_eq!(end, u64_of(file.len()));
        let mut at_once = encode_record(&edit, 5, seed);
        at_once.resize(at_once.len().next_multiple_of(PAGE_SIZE), 0);
        assert!(file == at_once, "{count} objects of {bytes} bytes");
        assert!(longest <= (48 << 10) + bytes + 2 * PAGE_SIZE, "{longest} bytes in memory at once");
    }
}

#[test]
fn an_edit_that_fails_transiently_changes_nothing_and_can_be_retried() {
    let number = rustix_number("ENOMEM");
    let machine = MemEnv::new(7);
    let env = FaultyEnv::new(machine.clone());
    let directory = PathBuf::from("/db");
    env.create_dir(&directory).unwrap();
    env.sync_dir(Path::new("/")).unwrap();
    let first = [Change::CreateKeyspace(KEYSPACE, "k".into(), vec![1])];
    let manifest = Manifest::create(env.clone(), &directory, STORE, &first).unwrap();
    for round in 0..30u64 {
        // An edit of several chunks; each of its system calls fails once.
        let edit = [put(round % 3, &vec![u8::try_from(round).unwrap(); 90_000])];
        let before = manifest.with_state(Clone::clone);
        let classes = [IoClass::Write, IoClass::Create, IoClass::List, IoClass::Open];
        let class = classes[usize_of(round % 4)];
        env.set_plan(Some(FaultPlan::once(round / 4, FaultError::Number(number)).of_class(class)));
        while let Err(error) = manifest.commit(&edit) {
            assert!(error.is_transient(), "{error:?}");
            assert_eq!(manifest.with_state(Clone::clone), before);
        }
        env.set_plan(None);
        let image = machine.crash_image(&CrashPolicy::LOSE_ALL, round);
        let reopened = Manifest::open(image, &directory, true).unwrap();
        assert_eq!(reopened.with_state(Clone::clone), manifest.with_state(Clone::clone));
    }
    manifest.close(Seqno(0)).unwrap();
}

fn rustix_number(name: &str) -> i32 {
    let known = testudo_base::errno::TREATMENTS.iter().find(|(_, known, _)| *known == name);
    known.unwrap().0.raw_os_error()
}
