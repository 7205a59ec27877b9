use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use testudo_base::ErrorKind;
use testudo_env::{CrashPolicy, MemEnv, SplitMix};

use super::*;
use crate::{NoListener, Wal, WalOptions, WalStart, remove_segments, rewrite_unproven};

const STORE: StoreId = StoreId(0xbeef_0000_0000_0001);

fn dir() -> PathBuf {
    PathBuf::from("/db")
}

fn new_env(seed: u64) -> Arc<MemEnv> {
    let env = MemEnv::new(seed);
    env.create_dir(&dir()).unwrap();
    env.sync_dir(Path::new("/")).unwrap();
    env
}

fn open(env: &Arc<MemEnv>, start: WalStart) -> Arc<Wal> {
    let wal = open_unbegun(env, start);
    wal.begin().unwrap();
    wal
}

/// Like [`open`], but creates no segment yet.
fn open_unbegun(env: &Arc<MemEnv>, start: WalStart) -> Arc<Wal> {
    let options = WalOptions {
        segment_bytes: 32 << 10,
        buffer_bytes: 8 << 10,
        buffer_count: 2,
        ..WalOptions::new(STORE)
    };
    let start = WalStart { incarnation: Incarnation(env.random_u64()), ..start };
    Wal::create(env.clone(), &dir(), options, start, Arc::new(NoListener)).unwrap()
}

/// The payload of the commit beginning at `seqno`, in every test.
fn payload(seqno: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    SplitMix::new(seqno).fill(&mut bytes);
    bytes
}

fn commit(wal: &Wal, size: usize, count: u32) -> Seqno {
    let reservation = wal.reserve(size, count).unwrap();
    let (first, last) = (reservation.first_seqno(), reservation.last_seqno());
    reservation.write(&payload(first.0, size));
    last
}

/// Replays and checks that the delivered commits are a prefix without holes, with their original payloads.
fn read(env: &MemEnv) -> Result<ReplayEnd> {
    read_from(env, 1)
}

fn read_from(env: &MemEnv, first_segment: u64) -> Result<ReplayEnd> {
    let mut delivered = 0;
    let end = replay(env, &dir(), STORE, &LogEvidence::starting_at(first_segment), |record| {
        assert_eq!(record.payload, payload(record.first_seqno.0, record.payload.len()));
        assert!(record.first_seqno.0 > delivered);
        delivered = record.first_seqno.0 + u64::from(record.seqno_count) - 1;
        Ok(())
    })?;
    assert!(end.last_seqno.0 >= delivered);
    Ok(end)
}

fn path(number: u64) -> PathBuf {
    dir().join(segment_file_name(number))
}

#[test]
fn empty_directory_has_an_empty_log() {
    let env = new_env(1);
    let end = read_from(&env, 5).unwrap();
    let (torn_tail, unbacked, segments) = (None, None, Vec::new());
    let nothing = ReplayEnd { last_seqno: Seqno(0), last_segment: 4, torn_tail, unbacked, segments };
    assert_eq!(end, nothing);
}

/// One life of a log: random commits, flushes and syncs. Returns the last durable and the last reserved
/// seqno; adds the abandoned seqnos to `skipped`.
fn live(
    env: &Arc<MemEnv>,
    start: WalStart,
    random: &mut SplitMix,
    skipped: &mut BTreeSet<u64>,
) -> (u64, u64) {
    let wal = open(env, start);
    for _ in 0..random.below(80) {
        let size = match random.below(20) {
            0 => random.below(40_000),
            1..4 => random.below(5_000),
            _ => random.below(300),
        };
        let size = usize::try_from(size).unwrap();
        match random.below(12) {
            0 => {
                let given_up = wal.reserve(size, 2).unwrap();
                skipped.extend(given_up.first_seqno().0..=given_up.last_seqno().0);
            }
            1 | 2 => wal.sync_all().unwrap(),
            3 => wal.write_sealed().unwrap(),
            4 | 5 => wal.write_all().unwrap(),
            _ => drop(commit(&wal, size, 1 + u32::try_from(random.below(3)).unwrap())),
        }
    }
    (wal.durable_seqno().0, wal.last_reserved_seqno().0)
}

#[test]
fn synced_commits_survive_repeated_crashes_and_survivors_are_a_prefix() {
    let seeds = if cfg!(miri) { 3 } else { 700 };
    for seed in 0..seeds {
        let mut random = SplitMix::new(seed);
        let mut env = new_env(seed);
        let (mut start, mut skipped) = (WalStart::new_store(Incarnation(1)), BTreeSet::new());
        for life in 0..3 {
            let (durable, reserved) = live(&env, start, &mut random, &mut skipped);
            env = if random.percent(20) {
                env.live_image()
            } else {
                env.crash_image(&CrashPolicy::random(random.next_u64()), random.next_u64())
            };
            rewrite_unproven(&*env, &dir(), 1).unwrap();
            let end = read(&env).unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
            let last = end.last_seqno.0;
            assert!(durable <= last && last <= reserved, "seed {seed}: {durable} <= {last} <= {reserved}");
            skipped.retain(|&seqno| seqno <= last);
            assert_eq!(missing_seqnos(&env, last), skipped, "seed {seed}, life {life}: no hole");
            start = WalStart::after(&end, Incarnation(2));
            if random.percent(30) {
                // The engine writes the recovered commits to the new log again.
                start.next_seqno = Seqno(1);
                let wal = open(&env, start);
                rewrite(&env, &wal, last, &mut random);
                env = env.crash_image(&CrashPolicy::random(random.next_u64()), random.next_u64());
                rewrite_unproven(&*env, &dir(), 1).unwrap();
                let again = read(&env).unwrap_or_else(|error| panic!("seed {seed}, rewritten: {error}"));
                assert_eq!(again.last_seqno.0, last, "seed {seed}: nothing recovered is lost");
                start = WalStart::after(&again, Incarnation(2));
            }
        }
    }
}

/// Returns the seqnos of `1..=last` that replay does not deliver.
fn missing_seqnos(env: &MemEnv, last: u64) -> BTreeSet<u64> {
    let mut missing: BTreeSet<u64> = (1..=last).collect();
    replay(env, &dir(), STORE, &LogEvidence::starting_at(1), |record| {
        let first = record.first_seqno.0;
        missing.retain(|&seqno| seqno < first || seqno >= first + u64::from(record.seqno_count));
        Ok(())
    })
    .unwrap();
    missing
}

/// Writes some or all of the old commits to `wal`, which is in the same directory.
fn rewrite(env: &MemEnv, wal: &Wal, last: u64, random: &mut SplitMix) {
    let mut left = random.below(last + 2);
    let mut next = 1;
    replay(env, &dir(), STORE, &LogEvidence::starting_at(1), |record| {
        while next < record.first_seqno.0 && left > 0 {
            drop(wal.reserve(0, 1).unwrap());
            next += 1;
        }
        if left > 0 && next == record.first_seqno.0 {
            wal.reserve(record.payload.len(), record.seqno_count).unwrap().write(record.payload);
            next += u64::from(record.seqno_count);
            left -= 1;
        }
        Ok(())
    })
    .unwrap();
    if random.percent(50) {
        wal.sync_all().unwrap();
    }
}

#[test]
fn torn_tail_is_cut_and_reported() {
    let env = new_env(1);
    let wal = open(&env, WalStart::new_store(Incarnation(1)));
    let durable = commit(&wal, 100, 1);
    wal.sync_to(durable).unwrap();
    commit(&wal, 3000, 1);
    wal.write_all().unwrap();
    // The second page of the segment's records; its commit was never synced.
    env.corrupt(path(1), 8192 + 1000, 0xff).unwrap();
    let end = read(&env).unwrap();
    assert_eq!(end.last_seqno, durable);
    let torn = end.torn_tail.unwrap();
    assert_eq!((torn.file, torn.ignored_segments), (segment_file_name(1), 0));
    assert!(torn.offset <= 8192);
}

#[test]
fn replay_must_reach_the_end_found_by_recovery() {
    let env = new_env(1);
    let wal = open(&env, WalStart::new_store(Incarnation(1)));
    for _ in 0..5 {
        commit(&wal, 100, 1);
    }
    wal.sync_all().unwrap();
    let end = read(&env).unwrap();
    let offset = 4096 + 4 * 144;
    env.corrupt(path(1), offset, 1).unwrap();
    assert_eq!(read(&env).unwrap().last_seqno, Seqno(4), "nothing proves yet that there were five");
    env.corrupt(path(1), offset, 1).unwrap();
    drop(open(&env, WalStart::after(&end, Incarnation(2))));
    assert_eq!(read(&env).unwrap().last_seqno, Seqno(5));
    env.corrupt(path(1), offset, 1).unwrap();
    assert_eq!(read(&env).unwrap_err().location(), Some((segment_file_name(1).as_str(), offset)));
}

/// Fills the seven pages of segment 1 with one commit each, calls `after` after every commit, and begins
/// segment 2.
fn fill_first_segment(env: &Arc<MemEnv>, after: impl Fn(&Wal)) -> Arc<Wal> {
    let wal = open(env, WalStart::new_store(Incarnation(1)));
    for _ in 0..7 {
        commit(&wal, 500, 1);
        after(&wal);
    }
    commit(&wal, 500, 1);
    wal.write_all().unwrap();
    assert_eq!(wal.segments().len(), 2);
    wal
}

#[test]
fn next_segment_header_proves_durability() {
    let env = new_env(1);
    fill_first_segment(&env, |wal| wal.sync_all().unwrap());
    let env = env.crash_image(&CrashPolicy::LOSE_ALL, 1);
    assert_eq!(read(&env).unwrap().last_seqno, Seqno(7));
    env.corrupt(path(1), 7 * 4096 + 100, 1).unwrap();
    assert_eq!(read(&env).unwrap_err().location(), Some((segment_file_name(1).as_str(), 7 * 4096)));
}

#[test]
fn next_segment_record_proves_durability() {
    let env = new_env(1);
    let wal = fill_first_segment(&env, |wal| wal.write_all().unwrap());
    wal.sync_all().unwrap();
    commit(&wal, 500, 1);
    wal.sync_all().unwrap();
    env.corrupt(path(1), 7 * 4096 + 100, 1).unwrap();
    assert_eq!(read(&env).unwrap_err().location(), Some((segment_file_name(1).as_str(), 7 * 4096)));
}

/// The state after a power loss that lost all commits of segment 1, but not the header of segment 2.
fn with_a_segment_behind_a_hole() -> (Arc<MemEnv>, ReplayEnd) {
    let env = new_env(1);
    fill_first_segment(&env, |wal| wal.write_all().unwrap());
    let env = env.crash_image(&CrashPolicy::LOSE_ALL, 1);
    let end = read(&env).unwrap();
    (env, end)
}

#[test]
fn segments_behind_an_unproven_hole_are_ignored_and_counted() {
    let (_, end) = with_a_segment_behind_a_hole();
    assert_eq!(end.last_seqno, Seqno(0));
    assert_eq!(end.torn_tail.unwrap().ignored_segments, 1);
    assert_eq!((end.last_segment, end.segments.len()), (2, 2));
}

#[test]
fn a_log_never_begins_with_a_segment_behind_a_hole() {
    let (env, end) = with_a_segment_behind_a_hole();
    let wal = open_unbegun(&env, WalStart::after(&end, Incarnation(2)));
    let first = wal.first_needed_segment(end.last_seqno);
    wal.release_before(first);
    wal.remove_released().unwrap();
    assert_eq!((first, read_from(&env, first).unwrap().last_seqno), (1, end.last_seqno));
    wal.begin().unwrap();
    assert_eq!(wal.first_needed_segment(end.last_seqno), 3);
}

#[test]
fn no_flipped_byte_of_a_closed_log_loses_a_commit_silently() {
    let env = new_env(1);
    let wal = open(&env, WalStart::new_store(Incarnation(1)));
    for _ in 0..60 {
        let seqno = commit(&wal, 500, 1);
        if seqno.0.is_multiple_of(10) {
            wal.sync_to(seqno).unwrap();
        }
    }
    wal.close().unwrap();
    let step = if cfg!(miri) { 1021 } else { 1 };
    for segment in wal.segments() {
        for offset in (0..segment.bytes).step_by(step) {
            for mask in [0x01, 0xff] {
                env.corrupt(path(segment.number), offset, mask).unwrap();
                match read(&env) {
                    Ok(end) => assert_eq!(end.last_seqno, Seqno(60), "{} at {offset}", segment.number),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
                        assert!(error.location().is_some());
                    }
                }
                env.corrupt(path(segment.number), offset, mask).unwrap();
            }
        }
    }
    read(&env).unwrap();
}

#[test]
fn no_truncation_of_a_closed_log_loses_a_commit_silently() {
    let env = new_env(1);
    let wal = open(&env, WalStart::new_store(Incarnation(1)));
    for _ in 0..60 {
        commit(&wal, 500, 1);
    }
    wal.close().unwrap();
    for segment in wal.segments() {
        let bytes = env.file_bytes(path(segment.number)).unwrap();
        for length in (4096..bytes.len()).step_by(517) {
            env.replace(path(segment.number), &bytes[..length]).unwrap();
            assert_eq!(read(&env).unwrap_err().kind(), ErrorKind::Corruption, "{length}");
        }
        env.replace(path(segment.number), &bytes).unwrap();
    }
}

#[test]
fn misplaced_records_and_segments_are_corruption() {
    let env = new_env(1);
    let wal = open(&env, WalStart::new_store(Incarnation(1)));
    for _ in 0..60 {
        wal.sync_to(commit(&wal, 500, 1)).unwrap();
    }
    wal.close().unwrap();
    let first = env.file_bytes(path(1)).unwrap();
    let second = env.file_bytes(path(2)).unwrap();
    for page in 1..first.len() / 4096 {
        let mut swapped = first.clone();
        swapped[page * 4096..][..4096].copy_from_slice(&second[4096..8192]);
        env.replace(path(1), &swapped).unwrap();
        assert_eq!(read(&env).unwrap_err().kind(), ErrorKind::Corruption, "page {page}");
    }
    env.replace(path(1), &second).unwrap();
    assert_eq!(read(&env).unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn stale_records_of_an_earlier_log_in_the_same_place_are_never_replayed() {
    let env = new_env(1);
    let old = open(&env, WalStart::new_store(Incarnation(1)));
    for _ in 0..20 {
        commit(&old, 500, 1);
    }
    old.close().unwrap();
    let stale = env.file_bytes(path(1)).unwrap();
    let other = new_env(2);
    let new = open(&other, WalStart::new_store(Incarnation(1)));
    let seqno = commit(&new, 500, 1);
    new.sync_to(seqno).unwrap();
    let mut mixed = other.file_bytes(path(1)).unwrap();
    mixed[8192..].copy_from_slice(&stale[8192..]);
    other.replace(path(1), &mixed).unwrap();
    let end = read(&other).unwrap();
    assert_eq!(end.last_seqno, seqno);
    assert!(end.torn_tail.is_some());
}

#[test]
fn missing_segment_is_corruption_that_names_it() {
    for missing in [1, 2] {
        let env = new_env(1);
        let wal = open(&env, WalStart::new_store(Incarnation(1)));
        for _ in 0..200 {
            commit(&wal, 500, 1);
        }
        wal.close().unwrap();
        env.remove_file(&path(missing)).unwrap();
        let error = read(&env).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert_eq!(error.location(), Some((segment_file_name(missing).as_str(), 0)));
    }
}

#[test]
fn segment_of_another_store_is_corruption_that_names_it() {
    let env = new_env(1);
    let wal = open(&env, WalStart::new_store(Incarnation(1)));
    commit(&wal, 1, 1);
    wal.close().unwrap();
    let error = replay(&*env, &dir(), StoreId(5), &LogEvidence::starting_at(1), |_| Ok(())).unwrap_err();
    assert_eq!(error.location(), Some((segment_file_name(1).as_str(), 0)));
}

#[test]
fn segment_with_zeroed_header_is_not_unused() {
    let env = new_env(1);
    let wal = open(&env, WalStart::new_store(Incarnation(1)));
    for _ in 0..200 {
        commit(&wal, 500, 1);
    }
    wal.close().unwrap();
    for segment in wal.segments() {
        let bytes = env.file_bytes(path(segment.number)).unwrap();
        for keep_records in [true, false] {
            let is_last = segment.number == wal.segments().last().unwrap().number;
            if is_last && !keep_records {
                continue;
            }
            let mut zeroed = bytes.clone();
            let end = if keep_records { 4096 } else { zeroed.len() };
            zeroed[..end].fill(0);
            env.replace(path(segment.number), &zeroed).unwrap();
            assert_eq!(read(&env).unwrap_err().kind(), ErrorKind::Corruption, "{}", segment.number);
        }
        env.replace(path(segment.number), &bytes).unwrap();
    }
}

#[test]
fn random_bytes_never_replay_or_panic() {
    let seeds = if cfg!(miri) { 2 } else { 300 };
    for seed in 0..seeds {
        let env = new_env(seed);
        let wal = open(&env, WalStart::new_store(Incarnation(1)));
        for _ in 0..20 {
            commit(&wal, 500, 1);
        }
        wal.close().unwrap();
        let mut random = SplitMix::new(seed);
        let mut bytes = env.file_bytes(path(1)).unwrap();
        let at = usize::try_from(random.below(16_000)).unwrap();
        let count = usize::try_from(random.below(9_000)).unwrap();
        random.fill(&mut bytes[at..at + count]);
        env.replace(path(1), &bytes).unwrap();
        if let Err(error) = read(&env) {
            assert_eq!(error.kind(), ErrorKind::Corruption);
        }
    }
}

#[test]
fn receiver_error_aborts_replay() {
    let env = new_env(1);
    let wal = open(&env, WalStart::new_store(Incarnation(1)));
    wal.sync_to(commit(&wal, 5, 1)).unwrap();
    let error = replay(&*env, &dir(), STORE, &LogEvidence::starting_at(1), |_| -> Result<()> {
        Err(Error::invalid("enough"))
    })
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn replay_is_repeatable_and_read_only() {
    let env = new_env(1);
    let wal = open(&env, WalStart::new_store(Incarnation(1)));
    for _ in 0..100 {
        commit(&wal, 300, 1);
    }
    wal.write_all().unwrap();
    let image = env.crash_image(&CrashPolicy { keep_percent: 50, torn: testudo_env::TornMode::Mix }, 3);
    let before = image.operation_count();
    assert_eq!(read(&image).unwrap(), read(&image).unwrap());
    assert_eq!(image.operation_count(), before);
}

#[test]
fn new_log_replays_after_old_segments_are_removed() {
    let env = new_env(1);
    let wal = open(&env, WalStart::new_store(Incarnation(1)));
    for _ in 0..100 {
        commit(&wal, 500, 1);
    }
    wal.close().unwrap();
    let end = read(&env).unwrap();
    let mut start = WalStart::after(&end, Incarnation(2));
    start.old_segments.clear();
    let first = start.segment_number;
    let next = open(&env, start);
    remove_segments(&*env, &dir(), first).unwrap();
    next.sync_to(commit(&next, 10, 1)).unwrap();
    assert_eq!(read_from(&env, first).unwrap().last_seqno, Seqno(101));
}
