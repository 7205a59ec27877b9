use std::{collections::BTreeMap, path::PathBuf};

use testudo_base::{ErrorKind, Incarnation};
use testudo_env::{CrashPolicy, FaultError, FaultPlan, FaultyEnv, IoClass, MemEnv};

use super::*;
use crate::{LogEvidence, NoListener, ReplayEnd, Wal, WalOptions, WalStart, replay, rewrite_unproven};

const STORE: StoreId = StoreId(0xfeed);
const FIRST: (StoreId, u64) = (STORE, 1);

fn dir() -> PathBuf {
    PathBuf::from("/db")
}

fn options() -> WalOptions {
    WalOptions { segment_bytes: 32 << 10, buffer_bytes: 8 << 10, buffer_count: 3, ..WalOptions::new(STORE) }
}

fn new_machine() -> Arc<MemEnv> {
    let env = MemEnv::new(1);
    env.create_dir(&dir()).unwrap();
    env.sync_dir(Path::new("/")).unwrap();
    env
}

fn open_with(env: Arc<dyn Env>, start: WalStart) -> Arc<Wal> {
    let start = WalStart { incarnation: Incarnation(env.random_u64()), ..start };
    let wal = Wal::create(env, &dir(), options(), start, Arc::new(NoListener)).unwrap();
    wal.begin().unwrap();
    wal
}

fn open(env: &Arc<MemEnv>, start: WalStart) -> Arc<Wal> {
    open_with(Arc::clone(env) as Arc<dyn Env>, start)
}

fn new_log(env: &Arc<MemEnv>) -> Arc<Wal> {
    open(env, WalStart::new_store(Incarnation(1)))
}

fn commit(wal: &Wal, payload: &[u8]) -> Seqno {
    let reservation = wal.reserve(payload.len(), 1).unwrap();
    let seqno = reservation.last_seqno();
    reservation.write(payload);
    wal.keep(seqno).unwrap();
    seqno
}

fn commit_with_values(wal: &Wal, payload: &[u8], values: &[u8]) -> Seqno {
    let mut reservation = wal.reserve_with_values(payload.len(), 1, values.len()).unwrap();
    let seqno = reservation.last_seqno();
    reservation.fill_values(|out| out.copy_from_slice(values));
    reservation.write(payload);
    wal.keep(seqno).unwrap();
    seqno
}

/// Concatenates payload and values.
fn restore(payload: &[u8], values: &[u8]) -> Result<Vec<u8>> {
    Ok([payload, values].concat())
}

type Commits = BTreeMap<u64, Vec<u8>>;

fn replayed(env: &MemEnv, evidence: &LogEvidence) -> (Commits, ReplayEnd) {
    let mut commits = BTreeMap::new();
    let end = replay(env, &dir(), STORE, evidence, |record| {
        commits.insert(record.first_seqno.0, record.payload.to_vec());
        Ok(())
    });
    (commits, end.unwrap())
}

/// Recovers as a reader, then as an opening for writing; the results must be equal.
fn recovered(env: &MemEnv) -> (Commits, ReplayEnd) {
    let tail = read_tail(env, &dir(), FIRST, &mut restore).unwrap();
    let seen = replayed(env, &LogEvidence { tail, ..LogEvidence::starting_at(1) });
    rewrite_unproven(env, &dir(), 1).unwrap();
    drain_tail(env, &dir(), FIRST, &mut restore).unwrap();
    let found = replayed(env, &LogEvidence::starting_at(1));
    assert_eq!((&seen.0, seen.1.last_seqno), (&found.0, found.1.last_seqno));
    assert_eq!(list_tail_files(env, &dir()).unwrap(), Vec::<String>::new());
    found
}

#[test]
fn every_filled_commit_survives_the_end_of_the_process() {
    let env = new_machine();
    let wal = new_log(&env);
    for index in 0..900u64 {
        commit(&wal, &index.to_le_bytes().repeat(1 + usize_of(index % 9)));
        if index % 100 == 7 {
            wal.write_all().unwrap();
        }
        if index % 37 == 0 {
            let (commits, end) = recovered(&env.live_image());
            assert_eq!((commits.len(), end.last_seqno), (usize_of(index) + 1, Seqno(index + 1)));
            assert!(commits.iter().all(|(seqno, payload)| payload.starts_with(&(seqno - 1).to_le_bytes())));
        }
    }
}

#[test]
fn written_tail_files_do_not_hide_newer_ones() {
    let env = new_machine();
    let wal = new_log(&env);
    for index in 0..60u64 {
        // Several buffers fill up before any is written, so that they are used in turn.
        commit(&wal, &[7; 700]);
        if index % 25 == 24 {
            wal.write_sealed().unwrap();
        }
        let (commits, _) = recovered(&env.live_image());
        assert_eq!(commits.len(), usize_of(index) + 1);
    }
}

#[test]
fn log_continues_after_a_drained_tail() {
    let mut env = new_machine();
    let mut wal = new_log(&env);
    let mut expected = BTreeMap::new();
    for round in 0..6u8 {
        for index in 0..50u8 {
            let payload = vec![round ^ index; 70];
            expected.insert(commit(&wal, &payload).0, payload);
        }
        env = env.live_image();
        let (commits, end) = recovered(&env);
        assert_eq!(commits, expected);
        wal = open(&env, WalStart::after(&end, Incarnation(1)));
    }
    expected.insert(commit(&wal, b"last").0, b"last".to_vec());
    assert_ne!(list_tail_files(&*env, &dir()).unwrap(), Vec::<String>::new());
    wal.close().unwrap();
    assert_eq!(list_tail_files(&*env, &dir()).unwrap(), Vec::<String>::new(), "a closed log has no tail");
    assert_eq!(replayed(&env, &LogEvidence::starting_at(1)).0, expected);
}

#[test]
fn commits_behind_an_unfilled_one_survive() {
    let env = new_machine();
    let wal = new_log(&env);
    commit(&wal, b"before");
    let stuck = wal.reserve(300, 3).unwrap();
    let stuck_with_values = wal.reserve_with_values(20, 1, 500).unwrap();
    let behind = commit_with_values(&wal, b"behind ", b"it");
    let (commits, end) = recovered(&env.live_image());
    assert_eq!(end.last_seqno, behind);
    let expected = [(1, b"before".to_vec()), (behind.0, b"behind it".to_vec())];
    assert_eq!(commits, BTreeMap::from(expected));
    drop((stuck, stuck_with_values));
    let (given_up, _) = recovered(&env.live_image());
    assert_eq!(given_up, commits);
}

#[test]
fn values_are_kept_until_their_record_is_in_a_segment() {
    let env = new_machine();
    let wal = new_log(&env);
    commit_with_values(&wal, b"written ", b"elsewhere by now");
    wal.write_all().unwrap();
    for index in 0..40u8 {
        commit_with_values(&wal, b"kept ", &vec![index; 700]);
    }
    let (commits, _) = recovered(&env.live_image());
    assert_eq!(commits.len(), 41);
    assert_eq!(commits[&1], b"written ", "its values were written before it");
    for index in 0..40u8 {
        let payload = &commits[&(u64::from(index) + 2)];
        // Full buffers were written, together with the values of their records.
        let is_kept = *payload == [&b"kept "[..], &[index; 700]].concat();
        assert!(is_kept || payload == b"kept ");
        assert!(is_kept || index < 35, "the last ones are in the tail");
    }
}

#[test]
fn power_loss_discards_the_tail() {
    let env = new_machine();
    let wal = new_log(&env);
    let synced = commit(&wal, b"synced");
    wal.sync_to(synced).unwrap();
    commit(&wal, b"acknowledged");
    let image = env.crash_image(&CrashPolicy::KEEP_ALL, 3);
    let (commits, _) = recovered(&image);
    assert_eq!(commits, BTreeMap::from([(1, b"synced".to_vec())]));
}

#[test]
fn tail_of_an_older_opening_is_ignored() {
    let env = new_machine();
    let wal = new_log(&env);
    commit(&wal, b"first");
    let killed = env.live_image();
    // The original continues elsewhere under the same incarnation and is copied here later.
    for _ in 0..9 {
        commit(&wal, b"elsewhere");
    }
    let old: Vec<_> = list_tail_files(&*env, &dir()).unwrap();
    let bytes: Vec<_> = old.iter().map(|name| env.file_bytes(dir().join(name)).unwrap()).collect();
    let (_, end) = recovered(&killed);
    let wal = open(&killed, WalStart::after(&end, Incarnation(1)));
    commit(&wal, b"second");
    wal.sync_all().unwrap();
    let again = killed.live_image();
    for (name, bytes) in old.iter().zip(&bytes) {
        again.replace(dir().join(name), bytes).unwrap();
    }
    let (commits, end) = recovered(&again);
    assert_eq!(commits, BTreeMap::from([(1, b"first".to_vec()), (2, b"second".to_vec())]));
    assert_eq!(end.last_seqno, Seqno(2));
}

#[test]
fn drain_can_be_repeated_after_a_crash_at_any_call() {
    let env = new_machine();
    let wal = new_log(&env);
    for index in 0..60u64 {
        commit(&wal, &index.to_le_bytes().repeat(20));
    }
    let killed = env.live_image();
    for calls in 0.. {
        let machine = killed.live_image();
        machine.crash_after(calls);
        let outcome = drain_tail(&*machine, &dir(), FIRST, &mut restore);
        machine.crash_after(1 << 40);
        let (commits, end) = recovered(&machine.live_image());
        assert_eq!((commits.len(), end.last_seqno), (60, Seqno(60)), "after {calls} calls");
        if outcome.is_ok() {
            assert!(calls > 5, "the drain was cut at each of its calls");
            break;
        }
    }
}

#[test]
fn without_mappings_commits_are_written_before_acknowledgment() {
    let machine = new_machine();
    let env = FaultyEnv::new(Arc::clone(&machine) as Arc<dyn Env>);
    let wal = open_with(env.clone(), WalStart::new_store(Incarnation(1)));
    let refused = FaultPlan::once(0, FaultError::Kind(std::io::ErrorKind::Unsupported))
        .of_class(IoClass::Create)
        .on_path("log-tail")
        .for_good();
    env.set_plan(Some(refused));
    for index in 1..=40u64 {
        commit(&wal, &index.to_le_bytes().repeat(30));
        let (commits, end) = recovered(&machine.live_image());
        assert_eq!((commits.len(), end.last_seqno), (usize_of(index), Seqno(index)));
    }
    assert_eq!(list_tail_files(&*machine, &dir()).unwrap(), Vec::<String>::new());
}

#[test]
fn oversized_commit_and_its_successors_are_written_before_ack() {
    let env = new_machine();
    let wal = new_log(&env);
    let mut expected = BTreeMap::new();
    for index in 0..30u8 {
        let payload = vec![index; if index % 7 == 3 { 20_000 } else { 50 }];
        expected.insert(commit(&wal, &payload).0, payload);
        assert_eq!(recovered(&env.live_image()).0, expected);
    }
    commit_with_values(&wal, b"values ", &vec![7; 200_000]);
    let (commits, _) = recovered(&env.live_image());
    assert!(commits[&31] == b"values ", "its values were written elsewhere");
}

/// Toggles the format version between 1 and 3, with a valid checksum.
fn reseal(env: &MemEnv, name: &str) {
    let path = dir().join(name);
    env.corrupt(&path, 8, 2).unwrap();
    let mut header = env.file_bytes(&path).unwrap()[..128].to_vec();
    header[16..24].fill(0);
    env.overwrite(&path, 16, &checksum64(&header, 0).to_le_bytes()).unwrap();
}

#[test]
fn unsupported_tail_format_is_refused_and_left_unchanged() {
    let env = new_machine();
    let wal = new_log(&env);
    commit(&wal, b"kept");
    let killed = env.live_image();
    let name = list_tail_files(&*killed, &dir()).unwrap().remove(0);
    reseal(&killed, &name);
    let error = drain_tail(&*killed, &dir(), FIRST, &mut restore).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    reseal(&killed, &name);
    assert_eq!(recovered(&killed).0.len(), 1);
}
