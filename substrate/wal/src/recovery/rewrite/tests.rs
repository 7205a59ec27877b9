use testudo_base::{Incarnation, Seqno, StoreId};
use testudo_env::{CrashPolicy, FaultError, FaultPlan, FaultyEnv, IoClass, MemEnv};

use super::*;
use crate::{LogEvidence, NoListener, ReplayEnd, Verdict, Wal, WalOptions, WalStart, replay};

const STORE: StoreId = StoreId(77);

fn dir() -> &'static Path {
    Path::new("/")
}

fn options() -> WalOptions {
    WalOptions { segment_bytes: 32 << 10, buffer_bytes: 8 << 10, buffer_count: 2, ..WalOptions::new(STORE) }
}

fn commit(wal: &Wal) -> Seqno {
    let reservation = wal.reserve(3000, 1).unwrap();
    let seqno = reservation.first_seqno();
    reservation.write(&[low_byte(seqno); 3000]);
    seqno
}

fn low_byte(seqno: Seqno) -> u8 {
    seqno.0.to_le_bytes()[0]
}

fn read(env: &MemEnv) -> ReplayEnd {
    replay(env, dir(), STORE, &LogEvidence::starting_at(1), |record| {
        assert!(record.payload.iter().all(|byte| *byte == low_byte(record.first_seqno)));
        Ok(())
    })
    .unwrap()
}

/// A log of several segments, synced up to `synced`, then written without a sync.
fn log(env: &Arc<MemEnv>, synced: u64, written: u64) {
    let wal =
        Wal::create(env.clone(), dir(), options(), WalStart::new_store(Incarnation(1)), Arc::new(NoListener))
            .unwrap();
    for _ in 0..synced {
        let seqno = commit(&wal);
        wal.sync_to(seqno).unwrap();
    }
    for _ in 0..written {
        commit(&wal);
    }
    wal.write_all().unwrap();
}

#[test]
fn only_unproven_segments_are_copied_and_replay_is_unchanged() {
    let env = MemEnv::new(1);
    log(&env, 30, 5);
    let before = read(&env);
    assert!(before.segments.len() > 3 && before.last_seqno == Seqno(35));
    let copied = rewrite_unproven(&*env, dir(), 1).unwrap();
    assert!(copied > 0 && copied <= 3 * (32 << 10), "{copied}");
    assert_eq!(read(&env), before);
    // Data that was only in caches before is durable now.
    assert_eq!(read(&env.crash_image(&CrashPolicy::LOSE_ALL, 3)).last_seqno, Seqno(35));
}

#[test]
fn crash_or_failure_during_rewrite_leaves_the_log_unchanged() {
    for skip in 0.. {
        let env = MemEnv::new(2);
        log(&env, 12, 3);
        let before = read(&env);
        let faulty = FaultyEnv::new(env.clone());
        faulty.set_plan(Some(FaultPlan::once(skip, FaultError::Device)));
        let outcome = rewrite_unproven(&*faulty, dir(), 1);
        let image = env.crash_image(&CrashPolicy { keep_percent: 50, ..CrashPolicy::LOSE_ALL }, skip);
        assert!(read(&image).last_seqno >= Seqno(12));
        assert_eq!(read(&env), before);
        rewrite_unproven(&*env, dir(), 1).unwrap();
        assert_eq!(read(&env.crash_image(&CrashPolicy::LOSE_ALL, skip)).last_seqno, before.last_seqno);
        assert!(!env.all_files().iter().any(|path| path.to_string_lossy().ends_with(COPY_SUFFIX)));
        if outcome.is_ok() {
            assert!(skip > 10);
            return;
        }
    }
}

#[test]
fn full_device_syncs_instead_of_copying() {
    let env = MemEnv::new(3);
    log(&env, 5, 5);
    env.space_limit(Some(env.used_bytes()));
    assert_eq!(rewrite_unproven(&*env, dir(), 1).unwrap(), 0);
    assert_eq!(read(&env.crash_image(&CrashPolicy::LOSE_ALL, 3)).last_seqno, Seqno(10));
}

#[test]
fn rewritten_copy_survives_after_a_failed_sync() {
    let env = MemEnv::new(4);
    let faulty = FaultyEnv::new(env.clone());
    let wal = Wal::create(
        faulty.clone(),
        dir(),
        options(),
        WalStart::new_store(Incarnation(1)),
        Arc::new(NoListener),
    )
    .unwrap();
    faulty.set_plan(Some(FaultPlan::once(0, FaultError::Device).of_class(IoClass::Sync)));
    let seqno = commit(&wal);
    wal.sync_to(seqno).unwrap_err();
    faulty.set_plan(None);
    drop(wal);
    rewrite_unproven(&*env, dir(), 1).unwrap();
    assert_eq!(read(&env.crash_image(&CrashPolicy::LOSE_ALL, 5)).last_seqno, seqno);
}

/// Reads the log as if data that this commit refers to were missing.
fn read_without(env: &MemEnv, missing: u64) -> Result<ReplayEnd> {
    replay(env, dir(), STORE, &LogEvidence::starting_at(1), |record| {
        Ok(if record.first_seqno.0 == missing { Verdict::Unbacked } else { Verdict::Taken })
    })
}

#[test]
fn unbacked_commit_ends_the_log_and_is_cut_permanently() {
    for (synced, written, missing) in [(3, 20, 4), (3, 20, 11), (20, 1, 21)] {
        let env = MemEnv::new(1);
        log(&env, synced, written);
        // As an opening does: which segments were synced before the crash is a matter of luck.
        rewrite_unproven(&*env, dir(), 1).unwrap();
        let end = read_without(&env, missing).unwrap();
        assert_eq!(end.last_seqno, Seqno(missing - 1));
        let (segment, offset) = end.unbacked.unwrap();
        cut_segment(&*env, dir(), segment, offset).unwrap();
        let lost = env.crash_image(&CrashPolicy::LOSE_ALL, 1);
        for env in [&env, &lost] {
            let found = read(env);
            assert_eq!((found.last_seqno, found.unbacked), (Seqno(missing - 1), None));
        }
        // The next incarnation continues where the log was cut.
        let start = WalStart::after(&end, Incarnation(2));
        let wal = Wal::create(env.clone(), dir(), options(), start, Arc::new(NoListener)).unwrap();
        wal.begin().unwrap();
        let seqno = commit(&wal);
        assert_eq!(seqno, Seqno(missing));
        wal.sync_to(seqno).unwrap();
        assert_eq!(read(&env).last_seqno, seqno);
    }
}

#[test]
fn durable_commit_is_never_unbacked() {
    let env = MemEnv::new(1);
    log(&env, 20, 1);
    for missing in [1, 7, 19] {
        assert_eq!(read_without(&env, missing).unwrap_err().kind(), ErrorKind::Corruption);
    }
}
