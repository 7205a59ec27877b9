//! Tests of injected faults.

use std::{io, path::Path, sync::Arc};

use super::{FAILURES_MAX, FaultError, FaultPlan, FaultyEnv, IoClass};
use crate::{Env, File, MemEnv, OpenMode, OpenOptions, ReadRequest};

fn faulty() -> (Arc<MemEnv>, Arc<FaultyEnv>) {
    let memory = MemEnv::new(1);
    (Arc::clone(&memory), FaultyEnv::new(memory))
}

fn create(env: &FaultyEnv, path: &str) -> Arc<dyn File> {
    env.open(Path::new(path), OpenOptions { mode: OpenMode::CreateNew, direct: false }).unwrap()
}

#[test]
fn without_a_plan_nothing_fails_and_calls_are_counted() {
    let (_, env) = faulty();
    let file = create(&env, "/a");
    file.write_at(0, b"abc").unwrap();
    file.sync().unwrap();
    env.sync_dir(Path::new("/")).unwrap();
    assert_eq!(file.len().unwrap(), 3);
    let counts = [IoClass::Create, IoClass::Write, IoClass::Sync, IoClass::SyncDir, IoClass::Metadata];
    assert_eq!(counts.map(|class| env.call_count(class)), [1; 5]);
    assert_eq!(env.total_call_count(), 5);
    assert!(env.failures().is_empty());
}

#[test]
fn planned_call_fails_once_and_is_described() {
    let (_, env) = faulty();
    let file = create(&env, "/a");
    env.set_plan(Some(FaultPlan::once(2, FaultError::Device).of_class(IoClass::Write)));
    let results: Vec<bool> = (0..5).map(|index| file.write_at(index, b"x").is_ok()).collect();
    assert_eq!(results, [true, true, false, true, true]);
    assert!(file.sync().is_ok());
    let failures = env.failures();
    assert_eq!(failures.len(), 1);
    assert!(failures[0].starts_with("Write of /a at 2, 1 bytes: "), "{failures:?}");
}

#[test]
fn permanent_failure_stays_until_healed() {
    let (_, env) = faulty();
    let file = create(&env, "/a");
    env.set_plan(Some(FaultPlan::once(1, FaultError::NoSpace).of_class(IoClass::Write).for_good()));
    file.write_at(0, b"x").unwrap();
    for _ in 0..FAILURES_MAX + 10 {
        assert_eq!(file.write_at(0, b"x").unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
    assert_eq!(env.failures().len(), FAILURES_MAX);
    env.set_plan(None);
    file.write_at(0, b"x").unwrap();
    assert!(env.failures().is_empty());
}

#[test]
fn each_class_fails_separately() {
    for class in IoClass::ALL {
        let (_, env) = faulty();
        let file = create(&env, "/a");
        env.set_plan(Some(
            FaultPlan::once(0, FaultError::Kind(io::ErrorKind::TimedOut)).of_class(class).for_good(),
        ));
        let root = Path::new("/");
        let open =
            |path: &str, mode| env.open(Path::new(path), OpenOptions { mode, direct: false }).map(drop);
        let calls: [(IoClass, io::Result<()>); 15] = [
            (IoClass::Write, file.write_at(0, b"x")),
            (IoClass::Allocate, file.allocate(0, 10)),
            (IoClass::SetLen, file.set_len(10)),
            (IoClass::Read, file.read_at(0, &mut [])),
            (IoClass::PunchHole, file.punch_hole(0, 1)),
            (IoClass::Sync, file.sync()),
            (IoClass::Metadata, file.allocated_bytes().map(drop)),
            (IoClass::Open, open("/a", OpenMode::Read)),
            (IoClass::Create, open("/b", OpenMode::CreateNew)),
            (IoClass::List, env.list_dir(root).map(drop)),
            (IoClass::Rename, env.rename(Path::new("/a"), Path::new("/c"))),
            (IoClass::SyncDir, env.sync_dir(root)),
            (IoClass::Lock, env.lock(Path::new("/LOCK"), true, true).map(drop)),
            (IoClass::Remove, env.remove_file(Path::new(if class == IoClass::Rename { "/a" } else { "/c" }))),
            (IoClass::Spawn, env.spawn("t", Box::new(|| ())).map(drop)),
        ];
        for (called, result) in calls {
            let kind = result.err().map(|error| error.kind());
            // Stepped execution never starts threads.
            let otherwise = (called == IoClass::Spawn).then_some(io::ErrorKind::Unsupported);
            let expected = if called == class { Some(io::ErrorKind::TimedOut) } else { otherwise };
            assert_eq!(kind, expected, "{called:?} under a plan for {class:?}");
        }
    }
}

#[test]
fn a_plan_without_class_counts_everything() {
    for skip in 0..4 {
        let (_, env) = faulty();
        env.set_plan(Some(FaultPlan::once(skip, FaultError::NoDescriptor)));
        let run = || -> io::Result<()> {
            let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
            let file = env.open(Path::new("/a"), options)?;
            file.write_at(0, b"abc")?;
            file.sync()?;
            env.sync_dir(Path::new("/"))
        };
        let error = run().unwrap_err();
        assert!(error.to_string().ends_with("(os error 24)"), "EMFILE at call {skip}: {error}");
        // A failed sync is never retried.
        assert_eq!(testudo_base::errno::is_transient(&error), skip < 2, "call {skip}");
        assert_eq!(env.total_call_count(), skip + 1);
    }
}

#[test]
fn plan_can_select_files_by_path() {
    let (_, env) = faulty();
    let (wal, data) = (create(&env, "/wal-1"), create(&env, "/data"));
    env.set_plan(Some(FaultPlan::once(0, FaultError::Device).on_path("wal").for_good()));
    data.write_at(0, b"x").unwrap();
    assert!(wal.write_at(0, b"x").is_err());
    assert!(wal.sync().is_err());
}

#[test]
fn one_request_of_a_batch_can_fail() {
    let (_, env) = faulty();
    let file = create(&env, "/a");
    file.write_at(0, b"abcdef").unwrap();
    env.set_plan(Some(FaultPlan::once(1, FaultError::Device).of_class(IoClass::Read)));
    let (mut first, mut second, mut third) = ([0; 2], [0; 2], [0; 2]);
    let mut requests =
        [ReadRequest::new(0, &mut first), ReadRequest::new(2, &mut second), ReadRequest::new(4, &mut third)];
    file.read_batch(&mut requests);
    assert_eq!(requests.map(|request| request.result.is_ok()), [true, false, true]);
    assert_eq!((&first, &second, &third), (b"ab", &[0; 2], b"ef"));
}

#[test]
fn a_failed_write_may_have_written_half() {
    let (memory, env) = faulty();
    let file = create(&env, "/a");
    let plan = FaultPlan::once(0, FaultError::NoSpace).of_class(IoClass::Write).with_partial_writes();
    env.set_plan(Some(plan.clone()));
    assert!(file.write_at(0, b"abcdef").is_err());
    assert_eq!(memory.file_bytes("/a").unwrap(), b"abc");
    env.set_plan(Some(plan));
    assert!(file.write_at(0, &[7; 3 * 4096]).is_err());
    assert_eq!(memory.file_bytes("/a").unwrap(), [7; 4096]);
}

#[test]
fn a_failed_sync_syncs_nothing() {
    let (memory, env) = faulty();
    let file = create(&env, "/a");
    env.sync_dir(Path::new("/")).unwrap();
    file.write_at(0, b"abc").unwrap();
    env.set_plan(Some(FaultPlan::once(0, FaultError::Device).of_class(IoClass::Sync)));
    assert!(file.sync().is_err());
    let image = memory.crash_image(&crate::CrashPolicy::LOSE_ALL, 1);
    assert_eq!(image.file_bytes("/a").unwrap(), b"");
}
