use std::path::PathBuf;

use testudo_base::PAGE_SIZE;
use testudo_env::MemEnv;

use super::*;
use crate::{Wal, WalOptions, WalStart, replay};

const STORE: StoreId = StoreId(0x77);

fn new_env() -> Arc<MemEnv> {
    let env = MemEnv::new(1);
    env.create_dir(&dir()).unwrap();
    env
}

fn dir() -> PathBuf {
    PathBuf::from("/db")
}

/// Writes `count` commits of one operation each in a new incarnation, each synced.
fn live(env: &Arc<MemEnv>, start: WalStart, count: u64) {
    let options = WalOptions {
        segment_bytes: 32 << 10,
        buffer_bytes: 8 << 10,
        buffer_count: 2,
        ..WalOptions::new(STORE)
    };
    let wal = Wal::create(env.clone(), &dir(), options, start, Arc::new(crate::NoListener)).unwrap();
    wal.begin().unwrap();
    for _ in 0..count {
        let reservation = wal.reserve(300, 1).unwrap();
        let (first, last) = (reservation.first_seqno(), reservation.last_seqno());
        reservation.write(&[u8::try_from(first.0 % 251).unwrap(); 300]);
        wal.sync_to(last).unwrap();
    }
}

fn read(env: &Arc<MemEnv>, start: Option<Seqno>, proven: u64) -> (Vec<u64>, Vec<(u64, u64)>) {
    let (mut commits, mut holes) = (Vec::new(), Vec::new());
    let mut survey = survey_log(&(env.clone() as Arc<dyn Env>), &dir()).unwrap();
    survey.scan(STORE, |_| Ok(())).unwrap();
    survey
        .read(STORE, start, Seqno(proven), |event| {
            match event {
                LogEvent::Commit(record) => {
                    let seqno = record.first_seqno.0;
                    assert!(record.payload.iter().all(|&byte| u64::from(byte) == seqno % 251));
                    commits.push(seqno);
                }
                LogEvent::Hole(hole) => holes.push((hole.first_seqno.0, hole.last_seqno.0)),
                LogEvent::Progress(_) => {}
            }
            Ok(())
        })
        .unwrap();
    (commits, holes)
}

fn two_incarnations() -> Arc<MemEnv> {
    let env = new_env();
    live(&env, WalStart::new_store(Incarnation(1)), 60);
    let end = replay(&*env, &dir(), STORE, &LogEvidence::starting_at(1), |_| Ok(())).unwrap();
    live(&env, WalStart::after(&end, Incarnation(2)), 40);
    env
}

#[test]
fn intact_log_is_surveyed_as_it_is_replayed() {
    let env = two_incarnations();
    assert_eq!(read(&env, None, 0), ((1..=100).collect(), vec![]));
    assert_eq!(read(&env, Some(Seqno(30)), 100), ((31..=100).collect(), vec![]));
}

#[test]
fn commits_behind_damage_are_found_and_the_hole_is_reported() {
    let env = two_incarnations();
    let path = dir().join(segment_file_name(1));
    for offset in (4096 + 9 * 4096)..(4096 + 11 * 4096) {
        env.corrupt(&path, offset, 0x5a).ok();
    }
    for offset in (5 * 4096)..(5 * 4096 + 60) {
        env.corrupt(&path, offset, 0x5a).ok();
    }
    let (commits, holes) = read(&env, None, 0);
    assert!(!holes.is_empty() && commits.len() > 80, "{commits:?} {holes:?}");
    let mut all: Vec<u64> = holes.iter().flat_map(|&(first, last)| first..=last).chain(commits).collect();
    all.sort_unstable();
    assert_eq!(all, (1..=100).collect::<Vec<_>>());
}

#[test]
fn lost_header_or_segment_affects_no_other_segment() {
    let env = two_incarnations();
    let numbers = list_segments(&*env, &dir()).unwrap();
    assert!(numbers.len() > 3);
    for &number in &numbers {
        let copy = env.crash_image(&testudo_env::CrashPolicy::KEEP_ALL, 1);
        copy.corrupt(dir().join(segment_file_name(number)), 30, 0xff).unwrap();
        let (commits, holes) = read(&copy, Some(Seqno(0)), 100);
        let missing: u64 = holes.iter().map(|&(first, last)| last + 1 - first).sum();
        assert_eq!(u64_of(commits.len()) + missing, 100, "header of {number}: {holes:?}");
        copy.remove_file(&dir().join(segment_file_name(number))).unwrap();
        let (commits, holes) = read(&copy, Some(Seqno(0)), 100);
        let missing: u64 = holes.iter().map(|&(first, last)| last + 1 - first).sum();
        assert_eq!(u64_of(commits.len()) + missing, 100, "file {number}: {holes:?}");
    }
}

#[test]
fn torn_tail_without_proof_is_no_hole() {
    let env = new_env();
    let options = WalOptions {
        segment_bytes: 32 << 10,
        buffer_bytes: 8 << 10,
        buffer_count: 2,
        ..WalOptions::new(STORE)
    };
    let wal = Wal::create(
        env.clone(),
        &dir(),
        options,
        WalStart::new_store(Incarnation(1)),
        Arc::new(crate::NoListener),
    )
    .unwrap();
    for _ in 0..20 {
        let reservation = wal.reserve(300, 1).unwrap();
        let first = reservation.first_seqno();
        reservation.write(&[u8::try_from(first.0 % 251).unwrap(); 300]);
    }
    wal.sync_to(Seqno(20)).unwrap();
    let path = dir().join(segment_file_name(1));
    env.corrupt(&path, 4096 + 340 * 12, 0xff).unwrap();
    let end = replay(&*env, &dir(), STORE, &LogEvidence::starting_at(1), |_| Ok(())).unwrap().last_seqno.0;
    assert!(end < 20);
    assert_eq!(read(&env, None, 0), ((1..=end).collect(), vec![]));
    // Evidence from elsewhere that more had been durable makes it a hole.
    let (commits, holes) = read(&env, None, 20);
    assert_eq!((u64_of(commits.len()), holes), (19, vec![(end + 1, end + 1)]));
}

/// Returns the bytes of a segment's file.
fn bytes_of(env: &MemEnv, number: u64) -> Vec<u8> {
    let options = testudo_env::OpenOptions { mode: testudo_env::OpenMode::Read, direct: false };
    let file = env.open(&dir().join(segment_file_name(number)), options).unwrap();
    let mut bytes = vec![0; testudo_base::num::usize_of(file.len().unwrap())];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Copies `bytes` of a segment from `from` to `to`.
fn copy_within(env: &MemEnv, number: u64, from: usize, bytes: usize, to: usize) {
    let all = bytes_of(env, number);
    let options = testudo_env::OpenOptions { mode: testudo_env::OpenMode::Write, direct: false };
    let file = env.open(&dir().join(segment_file_name(number)), options).unwrap();
    file.write_at(u64_of(to), &all[from..from + bytes]).unwrap();
}

/// Each commit of 300 bytes is synced by itself: it has a page, the rest of which is padding.
const PADDING: usize = 512;

#[test]
fn copied_record_in_padding_hides_no_commit() {
    for page in [1, 3] {
        let env = two_incarnations();
        copy_within(&env, 1, 6 * PAGE_SIZE, 344, page * PAGE_SIZE + PADDING);
        let mut replayed = Vec::new();
        replay(&*env, &dir(), STORE, &LogEvidence::starting_at(1), |record| {
            replayed.push(record.first_seqno.0);
            Ok(())
        })
        .unwrap();
        assert_eq!(replayed, (1..=100).collect::<Vec<_>>());
        assert_eq!(read(&env, None, 100), (replayed, vec![]), "page {page}");
    }
}

#[test]
fn copied_record_header_in_padding_hides_no_commit() {
    let env = two_incarnations();
    // Without its payload: the length that it states extends over the following records.
    copy_within(&env, 1, 6 * PAGE_SIZE, RECORD_HEADER_BYTES, 2 * PAGE_SIZE - RECORD_HEADER_BYTES);
    assert_eq!(read(&env, None, 100), ((1..=100).collect(), vec![]));
}

#[test]
fn stray_record_behind_damage_loses_only_the_damaged_commit() {
    let env = two_incarnations();
    env.corrupt(dir().join(segment_file_name(1)), u64_of(2 * PAGE_SIZE + 100), 0x5a).unwrap();
    copy_within(&env, 1, 6 * PAGE_SIZE, 344, 2 * PAGE_SIZE + PADDING);
    let (commits, holes) = read(&env, None, 100);
    assert_eq!(holes, vec![(2, 2)]);
    assert_eq!(commits, (1..=100).filter(|&seqno| seqno != 2).collect::<Vec<u64>>());
}
