use std::path::Path;

use testudo_base::{ErrorKind, Incarnation, KeyspaceId, RunId, StoreId};
use testudo_env::{Env, FaultError, FaultPlan, FaultyEnv, IoClass, MemEnv, OpenMode, OpenOptions};

use super::*;
use crate::ValueLogReader;

const STORE: StoreId = StoreId(7);

fn data_file() -> Arc<DataFile> {
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
    let file = MemEnv::new(1).open(Path::new("/data"), options).unwrap();
    DataFile::new(file, STORE, 1 << 20, [].into_iter(), Some(Incarnation(3))).unwrap()
}

fn origin() -> RunOrigin {
    RunOrigin { id: RunId(5), keyspace: KeyspaceId(1), keyspace_name: "k".into(), newest_seqno: Seqno(0) }
}

fn value(number: usize) -> Vec<u8> {
    let length = [97, 1, 5_000, 300, 9_000, 20_000, 114, 4_000][number % 8];
    (0..length).map(|at| u8::try_from((at * 7 + number) % 251).unwrap()).collect()
}

#[test]
fn written_values_are_read_back_without_an_index() {
    for every in [1, 2, 3, 7, 1_000] {
        let data = data_file();
        let log = ValueLog::begin(&data, origin(), 1 << 20).unwrap();
        let mut references = Vec::new();
        for number in 0..60 {
            references.push(log.append(&value(number)).unwrap().unwrap());
            if number % every == 0 {
                log.write_out().unwrap();
            }
        }
        log.write_out().unwrap();
        let mut reader = ValueLogReader::new(data.shared_file(), STORE, log.record().clone());
        for (number, reference) in references.iter().enumerate() {
            assert_eq!(
                reader.read(reference).unwrap(),
                Some(value(number)),
                "{number}, written every {every}"
            );
        }
        for (number, reference) in references.iter().enumerate().rev() {
            assert_eq!(reader.read(reference).unwrap(), Some(value(number)), "{number}, backwards");
        }
        let beyond = ValueReference { number: 60, ..references[0] };
        assert_eq!(reader.read(&beyond).unwrap(), None);
        let (noted, living) = (Seqno(9), references[7]);
        log.note(noted, living);
        let logged = log.finish(false).unwrap().unwrap();
        assert_eq!(logged.reference_of(noted, value(7).len()), Some(living));
        assert_eq!(logged.reference_of(Seqno(8), 1), None);
        for (number, reference) in references.iter().enumerate() {
            let read = logged.segment().read(b"any", reference, testudo_run::Access::Blocking).unwrap();
            assert_eq!(read.map(|(value, _)| value), Some(value(number)));
        }
    }
}

/// The file has every value once `write_out` has returned: commits are acknowledged then, and must outlive a
/// killed process.
#[test]
fn written_values_outlive_the_process() {
    let env = MemEnv::new(1);
    let open = |mode| env.open(Path::new("/data"), OpenOptions { mode, direct: true }).unwrap();
    let file = open(OpenMode::CreateNew);
    let data = DataFile::new(file, STORE, 16 << 20, [].into_iter(), Some(Incarnation(3))).unwrap();
    let log = ValueLog::begin(&data, origin(), 1 << 20).unwrap();
    for number in 0..60 {
        let reference = log.append(&value(number)).unwrap().unwrap();
        log.write_out().unwrap();
        let mut reader = ValueLogReader::new(open(OpenMode::Read), STORE, log.record().clone());
        assert_eq!(reader.read(&reference).unwrap(), Some(value(number)), "{number}");
    }
}

#[test]
fn a_value_log_stays_within_its_space() {
    let data = data_file();
    let log = ValueLog::begin(&data, origin(), 64 << 10).unwrap();
    let pages: u64 = log.record().spans.iter().map(|span| u64::from(span.page_count)).sum();
    let mut bytes = 0;
    for number in 0.. {
        let value = value(number);
        if log.append(&value).unwrap().is_none() {
            break;
        }
        bytes += testudo_base::num::u64_of(value.len());
    }
    assert!(bytes <= pages * testudo_base::PAGE_BYTES && bytes >= 40 << 10, "{bytes}");
    let segment = log.finish(false).unwrap().unwrap().segment().clone();
    assert_eq!(segment.stored_bytes(), bytes);
    let mut living = segment.with_all_dead();
    assert!(living.is_dead() && living.dead_bytes() == bytes);
    let one = ValueReference { segment: segment.id(), number: 2, length: u32_of(value(2).len()) };
    (0..2).for_each(|_| living.revive(&one));
    assert!(!living.is_dead() && living.dead_bytes() == bytes - u64::from(one.length));
}

/// A long value that waits to be written has all of its pages allocated already.
#[test]
fn appended_values_are_in_the_space_of_the_durable_state() {
    let lengths =
        [[300_000, 300_000], [300_000, 600_000], [100, 900_000], [70_000, 30_000], [900_000, 9_000]];
    for lengths in lengths {
        let data = data_file();
        let log = ValueLog::begin(&data, origin(), 1 << 20).unwrap();
        let value = |number: usize| vec![7; lengths[number % 2]];
        let appended = (0..).map_while(|number| log.append(&value(number)).unwrap());
        let references: Vec<ValueReference> = appended.collect();
        log.write_out().unwrap();
        let mut reader = ValueLogReader::new(data.shared_file(), STORE, log.record().clone());
        for (number, reference) in references.iter().enumerate() {
            assert_eq!(reader.read(reference).unwrap(), Some(value(number)), "{number} of {lengths:?}");
        }
    }
}

/// The kernel reports a failed write once, to the first waiter.
#[test]
fn a_value_log_with_a_failed_write_is_never_finished() {
    let env = FaultyEnv::new(MemEnv::new(1));
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
    let file = env.open(Path::new("/data"), options).unwrap();
    let data = DataFile::new(file, STORE, 1 << 20, [].into_iter(), Some(Incarnation(3))).unwrap();
    let log = ValueLog::begin(&data, origin(), 4 << 20).unwrap();
    log.append(&value(0)).unwrap();
    log.write_out().unwrap();
    env.set_plan(Some(FaultPlan::once(0, FaultError::Device).of_class(IoClass::Write)));
    let failed = (0..500).find_map(|_| log.append(&[7; 9_000]).err());
    assert_eq!(failed.expect("a write fails").kind(), ErrorKind::Io);
    assert_eq!(env.failures().len(), 1, "once");
    assert!(log.is_open(), "so that syncs of the log check it");
    assert_eq!(log.write_out().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(log.append(b"more").unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(log.finish(false).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn memory_of_a_value_log_is_that_of_its_buffers() {
    let data = data_file();
    let log = ValueLog::begin(&data, origin(), 8 << 20).unwrap();
    assert_eq!(log.memory_bytes(), 0, "nothing was written to it");
    let buffer = 256 << 10;
    for number in 0..700 {
        let reference = log.append(&[7; 10_000]).unwrap().unwrap();
        log.note(Seqno(number), reference);
    }
    let written = log.memory_bytes();
    assert!(written > buffer && written < (WRITES_MAX + 2) * buffer, "{written} bytes");
    let logged = log.finish(false).unwrap().unwrap();
    let finished = log.memory_bytes();
    assert!((700 * 4..40_000).contains(&finished), "{finished} bytes of numbers");
    drop(logged);
    log.give_up();
    let left = log.memory_bytes();
    assert!(left < 40_000, "{left} bytes, and only a buffer for one entry is needed");
}
