use std::path::PathBuf;

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

/// Writes `count` commits of one operation each in an epoch of its own, each synced.
fn live(env: &Arc<MemEnv>, start: WalStart, count: u64) {
    let options = WalOptions {
        segment_bytes: 32 << 10,
        buffer_bytes: 8 << 10,
        buffer_count: 2,
        ..WalOptions::new(STORE)
    };
    let wal = Wal::create(env.clone(), &dir(), options, start).unwrap();
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

fn two_epochs() -> Arc<MemEnv> {
    let env = new_env();
    live(&env, WalStart::new_store(), 60);
    let end = replay(&*env, &dir(), STORE, 1, |_| Ok(())).unwrap();
    live(&env, WalStart::after(&end), 40);
    env
}

#[test]
fn a_sound_log_is_read_as_replay_reads_it() {
    let env = two_epochs();
    assert_eq!(read(&env, None, 0), ((1..=100).collect(), vec![]));
    assert_eq!(read(&env, Some(Seqno(30)), 100), ((31..=100).collect(), vec![]));
}

#[test]
fn commits_behind_damage_are_found_and_the_hole_is_told() {
    let env = two_epochs();
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
fn a_lost_header_or_segment_costs_no_other_segment() {
    let env = two_epochs();
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
fn what_only_a_crash_cut_off_is_no_hole() {
    let env = new_env();
    let options = WalOptions {
        segment_bytes: 32 << 10,
        buffer_bytes: 8 << 10,
        buffer_count: 2,
        ..WalOptions::new(STORE)
    };
    let wal = Wal::create(env.clone(), &dir(), options, WalStart::new_store()).unwrap();
    for _ in 0..20 {
        let reservation = wal.reserve(300, 1).unwrap();
        let first = reservation.first_seqno();
        reservation.write(&[u8::try_from(first.0 % 251).unwrap(); 300]);
    }
    wal.sync_to(Seqno(20)).unwrap();
    let path = dir().join(segment_file_name(1));
    env.corrupt(&path, 4096 + 340 * 12, 0xff).unwrap();
    let end = replay(&*env, &dir(), STORE, 1, |_| Ok(())).unwrap().last_seqno.0;
    assert!(end < 20);
    assert_eq!(read(&env, None, 0), ((1..=end).collect(), vec![]));
    // What proves from elsewhere that more had been durable makes it a hole.
    let (commits, holes) = read(&env, None, 20);
    assert_eq!((u64_of(commits.len()), holes), (19, vec![(end + 1, end + 1)]));
}
