//! Decisions of the governor for the counts of typical workloads.

use testudo_base::{Kind, Seqno, chunks::ChunkPool};
use testudo_memtable::Memtable;

use super::*;

const TOTAL: u64 = 64 << 20;

fn of_keyspaces(keyspaces: f64, share: f64) -> Conditions {
    let writing = Writing { rewrites: 0.5, keyspaces };
    Conditions { total: TOTAL, share, ghost_bytes: TOTAL / 8, writing }
}

fn conditions(share: f64) -> Conditions {
    of_keyspaces(1.0, share)
}

/// The share after `rounds`, each with `written` bytes and `missed` reads.
fn after(rounds: u64, mut share: f64, written: u64, missed: u64) -> f64 {
    let mut governor = Governor::default();
    for round in 1..=rounds {
        let now = Counted { written: round * written, missed_pages: round * missed, missed_records: 0 };
        share = governor.decide(now, &conditions(share)).unwrap_or(share);
    }
    share
}

#[test]
fn write_only_gets_the_maximum_and_read_only_the_minimum() {
    assert!((after(12, 0.45, 4 << 20, 0) - MOST).abs() < LEAST_CHANGE);
    assert!((after(12, 0.45, 0, 1000) - LEAST).abs() < LEAST_CHANGE);
    // From one end to the other while the budget is written a few times, or missed once.
    assert!(after(6, LEAST, TOTAL / 32, 0) > 0.7);
    assert!(after(6, MOST, 0, TOTAL / 32 / BYTES_OF_A_MISS) < 0.2);
}

#[test]
fn marginal_savings_are_equal_in_between() {
    // W = 8 MiB · 0.5 · 8 MiB / (ln 2 · 100 · 16 KiB) = 29.5 MiB.
    let share = after(20, 0.2, 8 << 20, 100);
    assert!((share - 29.5 / 64.0).abs() < 2.0 * LEAST_CHANGE, "{share}");
    let more_misses = after(20, 0.2, 8 << 20, 200);
    assert!((more_misses - 14.8 / 64.0).abs() < 2.0 * LEAST_CHANGE, "{more_misses}");
    assert_eq!(after(20, 0.2, 8 << 20, 100).to_bits(), share.to_bits(), "decisions do not depend on time");
}

#[test]
fn nothing_is_decided_without_evidence() {
    let mut governor = Governor::default();
    let little = Counted { written: TOTAL / 64 - 1, missed_pages: 127, missed_records: 127 };
    assert_eq!(governor.decide(little, &conditions(0.45)), None);
    assert_eq!(governor.last(), Decision::default());
    assert!(governor.decide(Counted { missed_records: 128, ..little }, &conditions(0.45)).is_some());
    // Decreasing counts, as after reopening a store, are no evidence.
    assert_eq!(governor.decide(Counted::default(), &conditions(0.45)), None);
}

#[test]
fn share_near_the_wanted_one_does_not_change() {
    let mut governor = Governor::default();
    let now = Counted { written: TOTAL, ..Counted::default() };
    assert_eq!(governor.decide(now, &conditions(MOST - LEAST_CHANGE / 2.0)), None);
    assert_eq!(governor.last().changes, 0);
    governor.begin_anew(now);
    assert_eq!(governor.last(), Decision::default());
}

#[test]
fn thousands_of_keyspaces_get_more_than_their_fixed_bytes() {
    let settle = |keyspaces, missed| {
        let (mut governor, mut share) = (Governor::default(), 0.45);
        for round in 1..=20 {
            let now = Counted { written: round << 20, missed_pages: round * missed, missed_records: 0 };
            share = governor.decide(now, &of_keyspaces(keyspaces, share)).unwrap_or(share);
        }
        share
    };
    // Workload A misses one read per 120 bytes that it writes.
    let (one, many) = (settle(1.0, 8_700), settle(4096.0, 8_700));
    assert!(one < LEAST + LEAST_CHANGE, "{one}");
    // 4,096 buffers of 3 KiB are 12 MiB; flushes cost as much as reads with 2.8 MiB more.
    assert!((many - 14.8 / 64.0).abs() < 2.0 * LEAST_CHANGE, "{many}");
    // Without writes, buffers are flushed when readers need their memory.
    let mut governor = Governor::default();
    let now = Counted { written: 0, missed_pages: 100_000, missed_records: 0 };
    assert!(governor.decide(now, &of_keyspaces(4096.0, 0.45)).is_some_and(|share| share < 0.3));
}

#[test]
fn buffer_with_one_record_matches_the_fixed_bytes() {
    let table = Memtable::new(ChunkPool::new(1 << 20));
    table.insert(Seqno(1), Kind::Value, b"user00000001", &[7; 100], None);
    let bytes = table.memory_bytes() as f64;
    assert!(bytes > BUFFER_BYTES * 0.8 && bytes < BUFFER_BYTES * 1.1, "{bytes}");
}
