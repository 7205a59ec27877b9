use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use testudo_base::{ErrorKind, Seqno, num::usize_of};
use testudo_env::{Env, MemEnv, OpenMode, OpenOptions, SplitMix};

use super::*;
use crate::{
    NoListener, ReplayEnd, Wal, WalOptions, WalStart, list_segments, replay, rewrite_unproven,
    segment::wal_format::segment_file_name, survey_log,
};

const STORE: StoreId = StoreId(0x1234_5678);
const WRITER: Incarnation = Incarnation(11);

fn dir() -> PathBuf {
    PathBuf::from("/db")
}

fn path(number: u64) -> PathBuf {
    dir().join(segment_file_name(number))
}

fn new_env(seed: u64) -> Arc<MemEnv> {
    let env = MemEnv::new(seed);
    env.create_dir(&dir()).unwrap();
    env.sync_dir(Path::new("/")).unwrap();
    env
}

fn open(env: &Arc<MemEnv>, store: StoreId, start: WalStart) -> Arc<Wal> {
    let options = WalOptions {
        segment_bytes: 32 << 10,
        buffer_bytes: 8 << 10,
        buffer_count: 2,
        ..WalOptions::new(store)
    };
    let wal = Wal::create(env.clone(), &dir(), options, start, Arc::new(NoListener)).unwrap();
    wal.begin().unwrap();
    wal
}

/// Makes `count` commits of one page each.
fn commit(wal: &Wal, count: u64) {
    for _ in 0..count {
        wal.reserve(500, 1).unwrap().write(&[7; 500]);
        wal.write_all().unwrap();
    }
    wal.sync_all().unwrap();
}

/// The log of `STORE` in `env`, with all segments it ever had; the last one is not full.
fn log_of_four_segments(env: &Arc<MemEnv>) -> u64 {
    let wal = open(env, STORE, WalStart::new_store(WRITER));
    commit(&wal, 24);
    assert_eq!(wal.segments().len(), 4);
    wal.last_reserved_seqno().0
}

fn evidence(openings: &[(Incarnation, u64)]) -> LogEvidence {
    let openings =
        openings.iter().map(|&(incarnation, first_segment)| Opening { incarnation, first_segment }).collect();
    LogEvidence { openings: Some(openings), ..LogEvidence::starting_at(1) }
}

fn read(env: &MemEnv, evidence: &LogEvidence) -> Result<ReplayEnd> {
    rewrite_unproven(env, &dir(), 1)?;
    replay(env, &dir(), STORE, evidence, |_| Ok(()))
}

/// A segment that was created ahead, on blocks that show `bytes`.
fn prepare(env: &MemEnv, number: u64, bytes: &[u8]) {
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
    let file = env.open(&path(number), options).unwrap();
    file.write_at(0, bytes).unwrap();
    file.sync().unwrap();
}

fn noise(seed: u64, bytes: u64) -> Vec<u8> {
    let mut noise = vec![0; usize_of(bytes)];
    SplitMix::new(seed).fill(&mut noise);
    noise
}

/// Checks that with `bytes` in prepared segment 5 the log is unchanged and continues, and that salvage finds
/// no more.
fn is_passed_over(env: &Arc<MemEnv>, bytes: &[u8]) {
    let last = log_of_four_segments(env);
    prepare(env, 5, bytes);
    let end = read(env, &evidence(&[(WRITER, 1)])).unwrap();
    assert_eq!((end.last_seqno.0, end.last_segment), (last, 5));
    assert_eq!(end.segments[4].first_seqno, Seqno(0), "it was never used");
    let next = Incarnation(12);
    let wal = open(env, STORE, WalStart::after(&end, next));
    commit(&wal, 3);
    drop(wal);
    let evidence = evidence(&[(WRITER, 1), (next, 6)]);
    let again = read(env, &evidence).unwrap();
    assert_eq!((again.last_seqno.0, again.last_segment), (last + 3, 6));
    let mut survey = survey_log(&(env.clone() as Arc<dyn Env>), &dir()).unwrap();
    survey.scan(STORE, |_| Ok(())).unwrap();
    assert_eq!(survey.compare(&evidence), Vec::<String>::new());
    let mut seqnos = Vec::new();
    let count = |event: crate::LogEvent<'_>| {
        match event {
            crate::LogEvent::Commit(record) => seqnos.push(record.first_seqno.0),
            crate::LogEvent::Hole(hole) => panic!("{hole:?}"),
            crate::LogEvent::Progress(_) => {}
        }
        Ok(())
    };
    survey.read(STORE, Some(Seqno(0)), Seqno(last + 3), count).unwrap();
    assert_eq!(seqnos, (1..=last + 3).collect::<Vec<_>>());
}

#[test]
fn noise_in_a_prepared_segment_is_ignored() {
    for (seed, bytes) in [(1, 100), (2, 4096), (3, 4104), (4, 32 << 10), (5, INITIAL_BYTES)] {
        let env = new_env(seed);
        is_passed_over(&env, &noise(seed, bytes));
        let behind = [vec![0; 4096], noise(seed, 8192)].concat();
        is_passed_over(&new_env(seed), &behind);
    }
}

#[test]
fn stale_segment_in_place_of_a_prepared_one_is_ignored() {
    let env = new_env(1);
    log_of_four_segments(&env);
    for older in 1..=3 {
        let stale = env.file_bytes(path(older)).unwrap();
        is_passed_over(&new_env(2), &stale);
        // Only its first page, then everything except that.
        is_passed_over(&new_env(2), &stale[..4096]);
        is_passed_over(&new_env(2), &[vec![0; 4096], stale[4096..].to_vec()].concat());
    }
}

#[test]
fn foreign_header_without_records_is_ignored() {
    // A segment without commits is removed when the store is closed, and its number is reused.
    for (store, incarnation) in [(STORE, Incarnation(3)), (StoreId(99), WRITER)] {
        let env = new_env(1);
        let start = WalStart { segment_number: 5, ..WalStart::new_store(incarnation) };
        drop(open(&env, store, start));
        is_passed_over(&new_env(2), &env.file_bytes(path(5)).unwrap());
    }
}

fn refusal(env: &Arc<MemEnv>, evidence: &LogEvidence) -> String {
    let error = read(env, evidence).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    error.to_string()
}

#[test]
fn records_prove_that_there_was_a_header() {
    let env = new_env(1);
    log_of_four_segments(&env);
    let whole = env.file_bytes(path(4)).unwrap();
    let used = (whole.len() - 4096).min(3 * 4096);
    for header in [vec![0; 4096], noise(1, 4096)] {
        for page in (4096..4096 + used).step_by(4096) {
            // Only one record is left.
            let mut bytes = header.clone();
            bytes.resize(whole.len(), 0);
            bytes[page..page + 4096].copy_from_slice(&whole[page..page + 4096]);
            env.replace(path(4), &bytes).unwrap();
            let why = refusal(&env, &evidence(&[(WRITER, 1)]));
            assert!(why.contains("no valid header"), "{why}");
        }
    }
}

#[test]
fn durable_evidence_proves_that_there_was_a_header() {
    let env = new_env(1);
    let last = log_of_four_segments(&env);
    env.replace(path(4), &noise(1, INITIAL_BYTES)).unwrap();
    let known = LogEvidence { durable_seqno: Seqno(last), ..evidence(&[(WRITER, 1)]) };
    refusal(&env, &known);
    // A later segment of its writer proves it too, and so does the file's length.
    let env = new_env(1);
    log_of_four_segments(&env);
    let third = env.file_bytes(path(3)).unwrap();
    env.replace(path(3), &noise(1, INITIAL_BYTES)).unwrap();
    refusal(&env, &evidence(&[(WRITER, 1)]));
    env.replace(path(3), &third).unwrap();
    prepare(&env, 5, &noise(1, INITIAL_BYTES + 4096));
    refusal(&env, &evidence(&[(WRITER, 1)]));
}

#[test]
fn foreign_whole_segments_are_refused() {
    for (store, incarnation, number) in
        [(StoreId(99), WRITER, 5), (STORE, Incarnation(77), 5), (STORE, WRITER, 6), (StoreId(99), WRITER, 2)]
    {
        let env = new_env(1);
        let start = WalStart { segment_number: number, ..WalStart::new_store(incarnation) };
        commit(&open(&env, store, start), 2);
        let other = env.file_bytes(path(number)).unwrap();
        let env = new_env(2);
        log_of_four_segments(&env);
        prepare(&env, 5, &other);
        refusal(&env, &evidence(&[(WRITER, 1)]));
    }
}

#[test]
fn without_a_known_writer_any_bytes_are_proof() {
    let env = new_env(1);
    log_of_four_segments(&env);
    prepare(&env, 5, &noise(1, INITIAL_BYTES));
    refusal(&env, &LogEvidence::starting_at(1));
    assert_eq!(list_segments(&*env, &dir()).unwrap().len(), 5);
}
