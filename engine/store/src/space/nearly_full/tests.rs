//! Bounds of a nearly full device, as plain numbers.
//!
//! **Invariants**
//! - Nothing here depends on a store or a device.

use super::*;
use crate::memory::shares::Share;

fn shares(total: u64) -> MemoryShares {
    MemoryShares::of(total, Share::of(0.45).unwrap(), 0, 0)
}

fn metadata(log_bytes: u64, manifest_growth_bytes: u64) -> Metadata {
    Metadata { log_bytes, manifest_growth_bytes }
}

#[test]
fn bounds_grow_with_capacity_up_to_those_of_memory() {
    for total in [1 << 20, 4 << 20, 64 << 20] {
        let shares = shares(total);
        let of = |capacity| Bounds::of(capacity, &metadata(0, 0), &shares);
        let capacities: Vec<Bounds> = (20..40).map(|bits| of(1 << bits)).collect();
        let grows = |a: &Bounds, b: &Bounds| {
            a.write_buffers <= b.write_buffers && a.segment_bytes <= b.segment_bytes && a.margin <= b.margin
        };
        assert!(capacities.is_sorted_by(grows), "{capacities:?}");
        let largest = capacities.last().unwrap();
        assert_eq!(largest.write_buffers, shares.write_buffers);
        assert!(largest.segment_bytes <= shares.wal_segment_bytes());
    }
}

#[test]
fn small_devices_get_minimum_buffers_and_log() {
    let bounds = Bounds::of(6 << 20, &metadata(0, 0), &shares(4 << 20));
    assert_eq!((bounds.write_buffers, bounds.segment_bytes), (128 << 10, 128 << 10));
    assert_eq!(bounds.log_bytes, 4 * bounds.segment_bytes);
    assert!(bounds.buffered_bytes() > bounds.write_buffers, "removals may use a little more");
}

#[test]
fn existing_log_is_not_reserved_again() {
    let shares = shares(4 << 20);
    let margin = |log_bytes| Bounds::of(80 << 20, &metadata(log_bytes, 0), &shares).margin;
    let bound = Bounds::of(80 << 20, &metadata(0, 0), &shares).log_bytes;
    assert_eq!(margin(0) - margin(bound / 2), bound / 2);
    assert_eq!(margin(bound), margin(10 * bound), "a minimum is left however long the log is");
    assert!(margin(10 * bound) >= MARGIN_BYTES_MIN);
}

#[test]
fn margin_includes_manifest_growth() {
    let margin = |growth| Bounds::of(80 << 20, &metadata(0, growth), &shares(4 << 20)).margin;
    assert_eq!(margin(300 << 10) - margin(0), 300 << 10);
}

#[test]
fn most_within_returns_the_largest_fitting_size() {
    let space_of = |bytes: u64| 2 * bytes + 100;
    assert_eq!(most_within(1100, space_of), 500);
    assert_eq!(most_within(1101, space_of), 500);
    assert_eq!(most_within(99, space_of), 0, "nothing fits");
    assert!((0..200u64).is_sorted_by_key(|space| most_within(space * 13, space_of)));
}

#[test]
fn jobs_leave_a_step_and_half_of_the_rest() {
    let state = NearlyFull::default();
    state.held_bytes.store(1000, Relaxed);
    state.step_bytes.store(200, Relaxed);
    assert_eq!(state.reclaiming_bytes(), 600);
    state.held_bytes.store(0, Relaxed);
    assert_eq!(state.reclaiming_bytes(), 200, "only a step if nothing is held");
}

#[test]
fn a_job_takes_a_part_of_the_free_space() {
    let state = NearlyFull::default();
    assert_eq!(state.job_bytes_max(), u64::MAX, "free space is not known yet");
    state.set_free(64 << 20);
    assert_eq!(state.job_bytes_max(), 8 << 20);
    state.set_free(0);
    assert_eq!(state.job_bytes_max(), JOB_BYTES_MIN, "a job does something");
}
