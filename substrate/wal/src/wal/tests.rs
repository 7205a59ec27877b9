use std::{collections::BTreeMap, path::PathBuf};

use testudo_base::{ErrorKind, Incarnation, StoreId};
use testudo_env::{FaultError, FaultPlan, FaultyEnv, IoClass, MemEnv};

use super::*;
use crate::{LogEvidence, NoListener, ReplayEnd, recovery::replay::replay};

mod shortages;

const STORE: StoreId = StoreId(0xfeed);

fn dir() -> PathBuf {
    PathBuf::from("/db")
}

fn options() -> WalOptions {
    WalOptions { segment_bytes: 32 << 10, buffer_bytes: 4 << 10, buffer_count: 2, ..WalOptions::new(STORE) }
}

fn open(env: &Arc<impl Env>, start: WalStart) -> Arc<Wal> {
    let env: Arc<dyn Env> = Arc::clone(env) as Arc<dyn Env>;
    let start = WalStart { incarnation: Incarnation(env.random_u64()), ..start };
    let wal = Wal::create(env, &dir(), options(), start, Arc::new(NoListener)).unwrap();
    wal.begin().unwrap();
    wal
}

fn new_log(env: &Arc<MemEnv>) -> Arc<Wal> {
    env.create_dir(&dir()).unwrap();
    env.sync_dir(std::path::Path::new("/")).unwrap();
    open(env, WalStart::new_store(Incarnation(1)))
}

/// Commits `payload` as one operation and returns its seqno.
fn commit(wal: &Wal, payload: &[u8]) -> Seqno {
    let reservation = wal.reserve(payload.len(), 1).unwrap();
    let seqno = reservation.last_seqno();
    reservation.write(payload);
    seqno
}

fn patterned(index: usize) -> u8 {
    u8::try_from(index % 251).unwrap()
}

fn read(env: &MemEnv) -> Result<(BTreeMap<u64, Vec<u8>>, ReplayEnd)> {
    let mut commits = BTreeMap::new();
    let end = replay(env, &dir(), STORE, &LogEvidence::starting_at(1), |record| {
        commits.insert(record.first_seqno.0, record.payload.to_vec());
        Ok(())
    })?;
    Ok((commits, end))
}

#[test]
fn synced_commits_are_durable_and_replayed_in_order() {
    let env = MemEnv::new(1);
    let wal = new_log(&env);
    for index in 0..500u64 {
        let seqno = commit(&wal, &index.to_le_bytes());
        if index % 7 == 0 {
            wal.sync_to(seqno).unwrap();
            assert_eq!(wal.durable_seqno(), seqno);
        }
    }
    wal.close().unwrap();
    let (commits, end) = read(&env).unwrap();
    assert_eq!(commits.len(), 500);
    assert!(commits.iter().all(|(seqno, payload)| (*seqno - 1).to_le_bytes() == payload[..]));
    assert_eq!((end.last_seqno, end.torn_tail), (Seqno(500), None));
    assert_eq!(end.segments, wal.segments());
    assert!(end.segments.len() > 5);
}

#[test]
fn commit_takes_one_seqno_per_operation() {
    let env = MemEnv::new(1);
    let wal = new_log(&env);
    let first = wal.reserve(3, 10).unwrap();
    assert_eq!((first.first_seqno(), first.last_seqno()), (Seqno(1), Seqno(10)));
    first.write(b"abc");
    assert_eq!(commit(&wal, b""), Seqno(11));
    wal.sync_all().unwrap();
    let (commits, end) = read(&env).unwrap();
    assert_eq!(commits.keys().copied().collect::<Vec<_>>(), [1, 11]);
    assert_eq!(end.last_seqno, Seqno(11));
}

#[test]
fn dropped_reservation_leaves_no_hole() {
    let env = MemEnv::new(1);
    let wal = new_log(&env);
    commit(&wal, b"before");
    drop(wal.reserve(100, 3).unwrap());
    commit(&wal, b"after");
    wal.sync_all().unwrap();
    let (commits, end) = read(&env).unwrap();
    assert_eq!(commits.into_iter().collect::<Vec<_>>(), [(1, b"before".to_vec()), (5, b"after".to_vec())]);
    assert_eq!(end.last_seqno, Seqno(5));
}

#[test]
fn commit_longer_than_buffer_and_segment_is_replayed() {
    let env = MemEnv::new(1);
    let wal = new_log(&env);
    let sizes = [10, 5_000, 100_000, 3, 300_000, 32_000, 4096 - 40, 4096, 1];
    for size in sizes {
        let payload: Vec<u8> = (0..size).map(patterned).collect();
        commit(&wal, &payload);
    }
    wal.sync_all().unwrap();
    let (commits, _) = read(&env).unwrap();
    assert_eq!(commits.values().map(Vec::len).collect::<Vec<_>>(), sizes);
    assert!(
        commits
            .values()
            .all(|payload| payload.iter().enumerate().all(|(index, &byte)| byte == patterned(index)))
    );
}

#[test]
fn writer_without_an_empty_buffer_writes_the_oldest_itself() {
    let env = MemEnv::new(1);
    let wal = new_log(&env);
    for _ in 0..100 {
        if wal.would_block(1000) {
            wal.wait_for_space(1000).unwrap();
            assert!(!wal.would_block(1000));
        }
        commit(&wal, &[7; 1000]);
    }
    assert!(wal.stats().bytes_written > 80_000);
    assert_eq!(wal.durable_seqno(), Seqno(0));
}

#[test]
fn one_buffer_is_enough() {
    let env = MemEnv::new(1);
    env.create_dir(&dir()).unwrap();
    let options = WalOptions { buffer_count: 1, ..options() };
    let wal =
        Wal::create(env.clone(), &dir(), options, WalStart::new_store(Incarnation(1)), Arc::new(NoListener))
            .unwrap();
    for _ in 0..50 {
        wal.wait_for_space(900).unwrap();
        commit(&wal, &[1; 900]);
    }
    wal.close().unwrap();
    assert_eq!(read(&env).unwrap().0.len(), 50);
}

#[test]
fn only_small_synced_commits_write_zeros_ahead() {
    let env = MemEnv::new(1);
    let wal = new_log(&env);
    for _ in 0..50 {
        commit(&wal, &[1; 2000]);
        commit(&wal, &[1; 2000]);
        wal.write_sealed().unwrap();
    }
    wal.sync_all().unwrap();
    assert_eq!(wal.stats().zero_bytes, 0);
    for _ in 0..20 {
        wal.sync_to(commit(&wal, b"small")).unwrap();
    }
    assert!(wal.stats().zero_bytes > 0);
    assert_eq!(read(&env).unwrap().0.len(), 120);
}

#[test]
fn idle_log_writes_one_durability_marker() {
    let env = MemEnv::new(1);
    let wal = new_log(&env);
    wal.sync_to(commit(&wal, b"x")).unwrap();
    let before = wal.stats().bytes_written;
    wal.write_all().unwrap();
    let noted = wal.stats().bytes_written;
    assert_eq!(noted, before + 4096);
    wal.write_all().unwrap();
    assert_eq!(wal.stats().bytes_written, noted);
    commit(&wal, b"y");
    wal.write_all().unwrap();
    assert_eq!(read(&env).unwrap().0.len(), 2);
}

#[test]
fn synced_commits_do_not_wake_the_flusher() {
    let env = MemEnv::with_threads(1, 2);
    let wal = new_log(&env);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| wal.wait_for_sealed(Duration::from_millis(50)));
        for _ in 0..7 {
            wal.sync_to(commit(&wal, b"one page each")).unwrap();
        }
        assert!(!waiter.join().unwrap());
    });
    assert_eq!(wal.stats().bytes_written, 8 * 4096);
}

#[test]
fn release_removes_segments_and_replay_starts_at_the_first_needed() {
    let env = MemEnv::new(1);
    let wal = new_log(&env);
    for _ in 0..100 {
        commit(&wal, &[3; 1000]);
    }
    wal.sync_all().unwrap();
    let before = wal.segments();
    let bytes = wal.live_bytes();
    let first = wal.first_needed_segment(Seqno(50));
    wal.release_before(first);
    wal.remove_released().unwrap();
    assert!(wal.live_bytes() < bytes && first > 1);
    assert_eq!(wal.segments()[0].number, first);
    assert!(before.iter().all(|old| old.number >= first || old.last_seqno <= Seqno(50)));
    let mut seqnos = Vec::new();
    replay(&*env, &dir(), STORE, &LogEvidence::starting_at(first), |record| {
        seqnos.push(record.first_seqno.0);
        Ok(())
    })
    .unwrap();
    assert_eq!(seqnos, (wal.segments()[0].first_seqno.0..=100).collect::<Vec<_>>());
    wal.release_before(wal.first_needed_segment(Seqno(u64::MAX)));
    wal.remove_released().unwrap();
    assert_eq!(wal.segments().len(), 1, "the current segment stays");
    assert_eq!(crate::list_segments(&*env, &dir()).unwrap(), [wal.segments()[0].number]);
}

#[test]
fn release_keeps_segments_from_the_persisted_first_needed_on() {
    let env = MemEnv::new(1);
    let wal = new_log(&env);
    wal.sync_to(commit(&wal, &[3; 1000])).unwrap();
    let last = wal.last_reserved_seqno();
    let remembered = wal.first_needed_segment(last);
    // Meanwhile commits continue, and the segment that was current fills up.
    for _ in 0..100 {
        commit(&wal, &[3; 1000]);
    }
    wal.sync_all().unwrap();
    assert!(wal.segments().len() > 2, "segments were begun");
    wal.release_before(remembered);
    wal.remove_released().unwrap();
    assert_eq!(wal.segments()[0].number, remembered, "replay begins there");
    let mut seqnos = 0;
    replay(&*env, &dir(), STORE, &LogEvidence::starting_at(remembered), |_| {
        seqnos += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(seqnos, 101);
}

#[test]
fn prepared_segment_is_used_or_harmless_if_unused() {
    let env = MemEnv::new(1);
    let wal = new_log(&env);
    for _ in 0..26 {
        commit(&wal, &[3; 1000]);
        wal.write_all().unwrap();
        wal.prepare_segment().unwrap();
        let listed = crate::list_segments(&*env, &dir()).unwrap().len();
        assert!(listed <= wal.segments().len() + 1);
    }
    wal.sync_all().unwrap();
    let killed = env.live_image();
    let (commits, end) = read(&killed).unwrap();
    assert_eq!((commits.len(), end.torn_tail.clone()), (26, None));
    assert!(end.last_segment > wal.segments().last().unwrap().number, "one was created ahead");
    let again = open(&killed, WalStart::after(&end, Incarnation(2)));
    again.sync_to(commit(&again, b"next")).unwrap();
    assert_eq!(read(&killed).unwrap().0.len(), 27);
    wal.close().unwrap();
    let last = wal.segments().last().unwrap().number;
    assert_eq!(crate::list_segments(&*env, &dir()).unwrap().pop(), Some(last), "closing removes it");
}

#[test]
fn close_truncates_the_log_and_removes_empty_segments() {
    let env = MemEnv::new(1);
    let listed = || crate::list_segments(&*env, &dir()).unwrap();
    let length_of =
        |number| env.file_bytes(dir().join(crate::segment_file_name(number))).unwrap().len() as u64;
    let go_on = |incarnation| open(&env, WalStart::after(&read(&env).unwrap().1, Incarnation(incarnation)));
    // The only segment stays: its header states how far the log has come.
    new_log(&env).close().unwrap();
    assert_eq!(listed(), [1]);
    assert!(length_of(1) <= 64 << 10, "{} bytes", length_of(1));
    let wal = go_on(2);
    for _ in 0..20 {
        wal.sync_to(commit(&wal, &[3; 100])).unwrap();
    }
    let last = wal.segments().pop().unwrap();
    wal.close().unwrap();
    let before = listed();
    assert_eq!(before.last(), Some(&last.number));
    assert!(length_of(last.number) <= last.bytes.max(64 << 10) + 4096, "{last:?}");
    go_on(3).close().unwrap();
    assert_eq!(listed(), before);
    assert_eq!(read(&env).unwrap().0.len(), 20);
}

#[test]
fn continued_log_has_no_own_segment_before_its_first_commit() {
    let env = MemEnv::new(1);
    let listed = || crate::list_segments(&*env, &dir()).unwrap();
    let wal = new_log(&env);
    wal.sync_to(commit(&wal, b"x")).unwrap();
    wal.close().unwrap();
    let go_on = |incarnation| {
        let start = WalStart::after(&read(&env).unwrap().1, Incarnation(incarnation));
        Wal::create(env.clone(), &dir(), options(), start, Arc::new(NoListener)).unwrap()
    };
    let wal = go_on(2);
    wal.write_all().unwrap();
    wal.write_sealed().unwrap();
    wal.sync_all().unwrap();
    wal.release_before(wal.first_needed_segment(Seqno(1)));
    wal.remove_released().unwrap();
    assert_eq!((wal.first_needed_segment(Seqno(1)), listed()), (1, vec![1]));
    wal.close().unwrap();
    assert_eq!(listed(), [1]);
    let wal = go_on(3);
    wal.begin().unwrap();
    assert_eq!(wal.last_reserved_seqno(), Seqno(1));
    assert_eq!(listed(), [1, 2]);
    wal.sync_to(commit(&wal, b"y")).unwrap();
    assert_eq!(wal.first_needed_segment(Seqno(1)), 2);
    wal.close().unwrap();
    assert_eq!(read(&env).unwrap().0.len(), 2);
}

#[test]
fn first_segment_creation_is_retried_after_out_of_space() {
    let inner = MemEnv::new(1);
    new_log(&inner).close().unwrap();
    let env = FaultyEnv::new(inner.clone());
    let start = WalStart::after(&read(&inner).unwrap().1, Incarnation(2));
    let wal = Wal::create(env.clone(), &dir(), options(), start, Arc::new(NoListener)).unwrap();
    for class in [IoClass::Write, IoClass::Sync] {
        env.set_plan(Some(FaultPlan::once(0, FaultError::NoSpace).of_class(class)));
        assert_eq!(wal.begin().unwrap_err().kind(), ErrorKind::OutOfSpace);
        assert_eq!(crate::list_segments(&*env, &dir()).unwrap(), [1]);
    }
    wal.begin().unwrap();
    wal.sync_to(commit(&wal, b"x")).unwrap();
    assert_eq!(read(&inner).unwrap().0.len(), 1);
}

fn faulty_log() -> (Arc<FaultyEnv>, Arc<Wal>) {
    let inner = MemEnv::new(1);
    inner.create_dir(&dir()).unwrap();
    let env = FaultyEnv::new(inner);
    let wal = open(&env, WalStart::new_store(Incarnation(1)));
    (env, wal)
}

#[test]
fn failed_sync_poisons_the_log_permanently() {
    let (env, wal) = faulty_log();
    let durable = commit(&wal, b"a");
    wal.sync_to(durable).unwrap();
    env.set_plan(Some(FaultPlan::once(0, FaultError::Device).of_class(IoClass::Sync)));
    let lost = commit(&wal, b"b");
    assert_eq!(wal.sync_to(lost).unwrap_err().kind(), ErrorKind::Io);
    let later = wal.sync_to(lost).unwrap_err();
    assert_eq!(later.kind(), ErrorKind::Poisoned);
    assert!(later.to_string().contains("wal-"), "{later}");
    assert_eq!(wal.reserve(1, 1).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(wal.write_all().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(wal.wait_for_space(1).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(wal.close().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(wal.durable_seqno(), durable);
    wal.sync_to(durable).unwrap();
}

#[test]
fn out_of_space_write_is_reported_once_then_poisons() {
    let (env, wal) = faulty_log();
    env.set_plan(Some(FaultPlan::once(0, FaultError::NoSpace).of_class(IoClass::Write).for_good()));
    let failure = (0..100).find_map(|_| {
        let reservation = match wal.reserve(1000, 1) {
            Ok(reservation) => reservation,
            Err(error) => return Some(error),
        };
        reservation.write(&[0; 1000]);
        wal.write_sealed().err()
    });
    assert_eq!(failure.unwrap().kind(), ErrorKind::OutOfSpace);
    assert_eq!(wal.sync_all().unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn log_works_without_preallocated_space() {
    let (env, wal) = faulty_log();
    env.set_plan(Some(FaultPlan::once(0, FaultError::NoSpace).of_class(IoClass::Allocate).for_good()));
    for _ in 0..100 {
        wal.reserve(1000, 1).unwrap().write(&[0; 1000]);
        wal.sync_all().unwrap();
    }
}

#[test]
fn any_failing_call_returns_an_error_and_keeps_synced_commits() {
    for skip in 0..200 {
        let inner = MemEnv::new(1);
        inner.create_dir(&dir()).unwrap();
        inner.sync_dir(std::path::Path::new("/")).unwrap();
        let env = FaultyEnv::new(Arc::clone(&inner) as Arc<dyn Env>);
        env.set_plan(Some(FaultPlan::once(skip, FaultError::Device).with_partial_writes()));
        let mut synced = 0;
        let created = Wal::create(
            env.clone(),
            &dir(),
            options(),
            WalStart::new_store(Incarnation(1)),
            Arc::new(NoListener),
        );
        if let Ok(wal) = created {
            for index in 0..60usize {
                let Ok(reservation) = wal.reserve(index * 50, 1) else { break };
                reservation.write(&vec![9; index * 50]);
                let outcome = if index % 5 == 0 { wal.sync_all() } else { wal.write_sealed() };
                synced = wal.durable_seqno().0;
                if outcome.is_err() {
                    break;
                }
            }
        }
        let image = inner.crash_image(&testudo_env::CrashPolicy::LOSE_ALL, skip);
        let (commits, _) = read(&image).unwrap();
        assert!(commits.len() as u64 >= synced, "call {skip}: {} of {synced}", commits.len());
        if env.failures().is_empty() {
            return;
        }
    }
    panic!("every call failed once");
}

#[test]
fn closed_log_refuses_writes() {
    let env = MemEnv::new(1);
    let wal = new_log(&env);
    wal.close().unwrap();
    assert_eq!(wal.reserve(1, 1).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn empty_and_oversized_commits_are_rejected() {
    let env = MemEnv::new(1);
    let wal = new_log(&env);
    assert_eq!(wal.reserve(1, 0).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(wal.reserve(usize::MAX, 1).unwrap_err().kind(), ErrorKind::Invalid);
}

/// Eight writers under a lock like the engine's, each syncing occasionally, and a flushing thread.
fn run_writers(wal: &Arc<Wal>, writers: usize, commits: usize) {
    let commit_lock = Mutex::new(());
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if wal.wait_for_sealed(Duration::from_millis(1)) {
                    wal.write_sealed().unwrap();
                } else {
                    wal.write_all().unwrap();
                }
                wal.prepare_segment().unwrap();
            }
        });
        let handles: Vec<_> = (0..writers)
            .map(|writer| {
                let (wal, commit_lock) = (Arc::clone(wal), &commit_lock);
                scope.spawn(move || {
                    for index in 0..commits {
                        let size = 8 + (index * 37 + writer * 11) % 700;
                        wal.wait_for_space(size).unwrap();
                        let guard = commit_lock.lock();
                        let reservation = wal.reserve(size, 1).unwrap();
                        drop(guard);
                        let seqno = reservation.last_seqno();
                        reservation.fill(|bytes| {
                            bytes.fill(0);
                            bytes[..8].copy_from_slice(&seqno.0.to_le_bytes());
                        });
                        if (index + writer) % 3 == 0 {
                            wal.sync_to(seqno).unwrap();
                            assert!(wal.durable_seqno() >= seqno);
                        }
                    }
                })
            })
            .collect();
        for handle in handles {
            handle.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        flusher.join().unwrap();
    });
}

#[test]
fn concurrent_synced_writers_leave_every_seqno_in_order() {
    let commits = if cfg!(miri) { 10 } else { 500 };
    let env = MemEnv::with_threads(1, 4);
    let wal = new_log(&env);
    run_writers(&wal, 8, commits);
    wal.close().unwrap();
    let mut next = 1;
    replay(&*env, &dir(), STORE, &LogEvidence::starting_at(1), |record| {
        assert_eq!(record.first_seqno, Seqno(next));
        assert_eq!(record.payload[..8], next.to_le_bytes());
        next += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(next, 8 * commits as u64 + 1);
    let stats = wal.stats();
    assert!(stats.sync_rounds <= 8 * commits as u64 / 3 + 8);
}

#[test]
fn failing_sync_wakes_every_waiter_with_an_error() {
    let inner = MemEnv::with_threads(1, 4);
    inner.create_dir(&dir()).unwrap();
    let env = FaultyEnv::new(inner);
    let wal = open(&env, WalStart::new_store(Incarnation(1)));
    env.set_plan(Some(FaultPlan::once(20, FaultError::Device).of_class(IoClass::Sync)));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let Ok(reservation) = wal.reserve(8, 1) else { break };
                    let seqno = reservation.last_seqno();
                    reservation.write(&[0; 8]);
                    if wal.sync_to(seqno).is_err() {
                        break;
                    }
                }
            });
        }
    });
    assert_eq!(wal.reserve(8, 1).unwrap_err().kind(), ErrorKind::Poisoned);
}
