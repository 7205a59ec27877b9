//! Transient errors of a log, and errors that poison it despite a transient number.

use super::*;

/// The raw error numbers that are treated as transient.
fn transient_numbers() -> impl Iterator<Item = i32> {
    use testudo_base::errno::{TREATMENTS, Treatment};
    let waits = TREATMENTS.iter().filter(|(_, _, treatment)| *treatment == Treatment::Wait);
    waits.map(|(errno, _, _)| errno.raw_os_error())
}

#[test]
fn log_recovers_from_transient_errors_by_itself() {
    let classes = [IoClass::Create, IoClass::Write, IoClass::SetLen, IoClass::Allocate, IoClass::Remove];
    for (number, class) in transient_numbers().flat_map(|number| classes.map(|class| (number, class))) {
        for (skip, times) in [(0, 1), (1, 3), (2, 7), (5, 1)] {
            let inner = MemEnv::new(1);
            inner.create_dir(&dir()).unwrap();
            inner.sync_dir(std::path::Path::new("/")).unwrap();
            let env = FaultyEnv::new(Arc::clone(&inner) as Arc<dyn Env>);
            let wal = open(&env, WalStart::new_store(Incarnation(1)));
            env.set_plan(Some(
                FaultPlan::once(skip, FaultError::Number(number)).of_class(class).times(times),
            ));
            let (mut taken, mut refused) = (0u64, 0);
            while taken < 60 {
                let size = 50 * usize_of(taken);
                match wal.reserve(size, 1) {
                    Ok(reservation) => {
                        reservation.write(&vec![patterned(usize_of(taken)); size]);
                        taken += 1;
                    }
                    Err(error) => {
                        assert!(error.is_transient(), "{error:?}");
                        refused += 1;
                        assert!(refused < 20, "class {class:?}, {number}: the log does not continue");
                    }
                }
                for outcome in [wal.write_all(), wal.prepare_segment(), wal.record_edit()] {
                    assert!(outcome.as_ref().is_ok_and(|()| true) || outcome.unwrap_err().is_transient());
                }
            }
            env.set_plan(None);
            wal.sync_all().unwrap();
            wal.check_not_stalled().unwrap();
            let (commits, _) = read(&inner.crash_image(&testudo_env::CrashPolicy::LOSE_ALL, skip)).unwrap();
            assert_eq!(commits.len(), 60, "class {class:?}, {number}, {skip}");
            for (seqno, payload) in commits {
                assert_eq!(payload, vec![patterned(usize_of(seqno - 1)); 50 * usize_of(seqno - 1)]);
            }
        }
    }
}

/// The writing thread may hold the writer nearly all the time, with attempts that each wait for a while.
#[test]
fn commits_without_a_buffer_are_refused_while_another_thread_is_stalled() {
    let inner = MemEnv::new(1);
    inner.create_dir(&dir()).unwrap();
    let env = FaultyEnv::new(inner as Arc<dyn Env>);
    let wal = open(&env, WalStart::new_store(Incarnation(1)));
    env.set_plan(Some(FaultPlan::once(0, FaultError::Number(24)).of_class(IoClass::Create).for_good()));
    while let Ok(reservation) = wal.reserve(900, 1) {
        reservation.write(&[1; 900]);
    }
    let writer = wal.writer.lock();
    let refused = wal.reserve(900, 1).err().unwrap();
    assert!(refused.is_transient(), "{refused:?}");
    drop(writer);
    env.set_plan(None);
    // Written again, but not synced yet: a slow thread is no stall.
    wal.write_sealed().unwrap();
    while !wal.would_block(900) {
        commit(&wal, &[1; 900]);
    }
    let writer = wal.writer.lock();
    wal.wait_or_write().unwrap();
    drop(writer);
    wal.sync_all().unwrap();
}

#[test]
fn partial_writes_and_failed_syncs_poison_even_with_transient_errno() {
    let halves = |plan: FaultPlan| plan.of_class(IoClass::Write).with_partial_writes();
    let syncs = |plan: FaultPlan| plan.of_class(IoClass::Sync);
    for number in transient_numbers() {
        for of_kind in [halves as fn(FaultPlan) -> FaultPlan, syncs] {
            let inner = MemEnv::new(1);
            inner.create_dir(&dir()).unwrap();
            let env = FaultyEnv::new(inner as Arc<dyn Env>);
            let wal = open(&env, WalStart::new_store(Incarnation(1)));
            commit(&wal, &[1; 9000]);
            env.set_plan(Some(of_kind(FaultPlan::once(0, FaultError::Number(number)))));
            assert!(!wal.sync_all().unwrap_err().is_transient());
            assert_eq!(wal.reserve(1, 1).err().unwrap().kind(), ErrorKind::Poisoned);
        }
    }
}
