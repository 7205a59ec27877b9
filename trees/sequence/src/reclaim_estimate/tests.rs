use testudo_contract::LeastGain;

use super::*;

/// A leaf of 1000 KiB with entries of 1000 bytes.
fn candidate(waiting_kib: u64, tombstones: u64, replacing_bytes: u64) -> ReclaimEstimate {
    let bytes = waiting_kib << 10;
    let waiting = WaitingEntries { bytes, page_bytes: bytes, overhead_bytes: 0, tombstones };
    let (stored_bytes, entry_bytes, head_bytes) = (1000 << 10, 1000, 0);
    ReclaimEstimate { stored_bytes, entry_bytes, waiting, replacing_bytes, head_bytes }
}

#[test]
fn the_gain_of_a_leaf_is_removed_and_replaced_bytes_up_to_all() {
    let gain = |tombstones, replacing| candidate(100, tombstones, replacing).step(u64::MAX).gain_bytes;
    assert_eq!(gain(0, 0), 0);
    assert_eq!(gain(10, 0), 10 * (1000 + TOMBSTONE_BYTES));
    assert_eq!(gain(10, 5000), 10 * (1000 + TOMBSTONE_BYTES) + 5000);
    let emptied = candidate(100, 10_000, 0).step(u64::MAX);
    assert_eq!((emptied.gain_bytes, emptied.space_bytes), (1100 << 10, LEAST_RUN_BYTES));
    let merged = candidate(100, 0, 0).step(u64::MAX);
    assert!(merged.space_bytes > 1100 << 10, "merged entries are written");
}

#[test]
fn a_partial_flush_scales_space_and_gain() {
    let candidate = candidate(100, 20, 0);
    let (whole, half) = (candidate.step(u64::MAX), candidate.step(50 << 10));
    assert_eq!(half.gain_bytes * 2, whole.gain_bytes);
    assert_eq!(candidate.written_bytes(50 << 10), 1050 << 10);
    assert_eq!(candidate.written_bytes(1 << 30), 1100 << 10);
}

#[test]
fn buffered_entries_are_counted_in_pages() {
    let mut candidate = candidate(100, 0, 0);
    candidate.waiting.page_bytes *= 2;
    assert_eq!(candidate.written_bytes(u64::MAX), 1200 << 10);
    assert_eq!(candidate.written_bytes(50 << 10), 1100 << 10);
}

/// KiB of `waiting_kib` buffered that are flushed with `space_kib`. `in_vain`: KiB of a failed attempt.
fn step_of(waiting_kib: u64, space_kib: u64, in_vain: Option<u64>, rest_kib: u64) -> Option<u64> {
    let candidate = candidate(waiting_kib, 0, 0);
    let limits = ReclaimLimits { space_bytes: space_kib << 10, least_gain: LeastGain::None, but: &[] };
    let tried = in_vain.into_iter().map(|kib| kib << 10);
    let step = candidate.largest_step(&limits, tried, rest_kib << 10)?;
    Some(step.waiting_max.min(candidate.waiting.bytes) >> 10)
}

#[test]
fn a_part_is_flushed_if_not_all_fits() {
    assert_eq!(step_of(8000, 20_000, None, 0), Some(8000));
    assert_eq!(step_of(8000, 6000, None, 0), Some(4000));
    assert_eq!(step_of(8000, 1400, None, 0), Some(250));
    assert_eq!(step_of(8000, 1000, None, 0), None, "the leaf itself does not fit");
}

#[test]
fn a_failed_step_is_halved() {
    assert_eq!(step_of(8000, 20_000, Some(9000), 0), Some(4000));
    assert_eq!(step_of(8000, 20_000, Some(1000), 0), Some(500));
    assert_eq!(step_of(8000, 20_000, Some(6), 0), None, "less than a page is no step");
}

#[test]
fn a_step_that_grows_a_leaf_leaves_space_for_another() {
    assert_eq!(step_of(1000, 2300, None, 0), Some(1000));
    assert_eq!(step_of(1000, 2300, None, 600), Some(500));
    assert_eq!(step_of(1000, 2300, None, 1300), None);
    let emptied = candidate(100, 10_000, 0);
    let limits = ReclaimLimits { space_bytes: 20 << 10, least_gain: LeastGain::Any, but: &[] };
    assert!(
        emptied.largest_step(&limits, std::iter::empty(), 1 << 30).is_some(),
        "a step with a gain needs none"
    );
}

#[test]
fn a_part_of_a_run_takes_its_share_of_the_space() {
    assert_eq!([scaled(0, 90, 30), scaled(10, 90, 30), scaled(40, 90, 30)], [0, 30, 90]);
    assert_eq!(scaled(1, 90, 0), 0, "an empty run has nothing");
}
