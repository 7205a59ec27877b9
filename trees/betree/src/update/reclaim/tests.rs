//! The choice of a step is pure: steps offered, and the one taken.
//!
//! **Invariants**
//! - Steps are identified by the leaf that they merge.

use testudo_sequence::Overwrites;

use super::*;
use crate::Policy;

fn options(leaf_bytes: u64) -> BeTreeOptions {
    BeTreeOptions { leaf_bytes, ..BeTreeOptions::new(Policy::Turtle) }
}

/// A step's space and gain in KiB.
type Offer = (u64, u64);

fn leaf(number: usize) -> Target {
    Target::Leaf { path: vec![number], waiting_max: u64::MAX }
}

fn tried(target: Target) -> Reclaim {
    Chosen { target, space_bytes: 0, gain_bytes: 0 }.into_reclaim()
}

/// Index of the step taken from those offered.
fn choose(least_gain: LeastGain, space_kib: u64, but: &[usize], offers: &[Offer]) -> Option<usize> {
    let tried = |&number: &usize| tried(leaf(number));
    let but: Vec<Reclaim> = but.iter().map(tried).collect();
    let limits = ReclaimLimits { space_bytes: space_kib << 10, least_gain, but: &but };
    let mut choice = Choice { limits: &limits, gain_min: GAIN_BYTES_MIN, best: None };
    for (number, (space, gain)) in offers.iter().enumerate() {
        choice.offer(leaf(number), space << 10, gain << 10);
    }
    if least_gain == LeastGain::None {
        for (number, (space, _)) in offers.iter().enumerate() {
            choice.offer_next(leaf(number), space << 10);
        }
    }
    let best = choice.best?;
    offers.iter().enumerate().map(|(number, _)| number).find(|&number| leaf(number) == best.target)
}

#[test]
fn the_step_with_the_largest_gain_is_taken() {
    let offers = [(100, 40), (500, 90), (100, 90), (20, 30)];
    assert_eq!(choose(LeastGain::Worthwhile, 1000, &[], &offers), Some(1));
}

#[test]
fn a_step_that_does_not_fit_or_failed_is_not_taken() {
    let offers = [(100, 40), (500, 90), (100, 80), (20, 30)];
    assert_eq!(choose(LeastGain::Worthwhile, 400, &[], &offers), Some(2));
    assert_eq!(choose(LeastGain::Worthwhile, 400, &[2], &offers), Some(0));
    assert_eq!(choose(LeastGain::None, 19, &[], &offers), None);
}

#[test]
fn the_minimum_gain_is_a_32nd_unless_a_delete_waits() {
    // 8 KiB are the minimum of any run, and yield no gain.
    let (enough, too_little) = ((32 * 20 + 8, 20), (32 * 20 + 40, 20));
    assert_eq!(choose(LeastGain::Worthwhile, 1000, &[], &[enough]), Some(0));
    assert_eq!(choose(LeastGain::Worthwhile, 1000, &[], &[too_little]), None);
    assert_eq!(choose(LeastGain::Any, 1000, &[], &[too_little]), Some(0));
    assert_eq!(choose(LeastGain::Worthwhile, 1000, &[], &[(20, 15)]), None, "nor less than 16 KiB");
    assert_eq!(choose(LeastGain::Any, 1000, &[], &[(20, 15)]), Some(0));
}

#[test]
fn steps_without_gain_are_done_in_order_before_a_delete_is_refused() {
    let offers = [(300, 0), (100, 0), (20, 0)];
    assert_eq!(choose(LeastGain::Any, 1000, &[], &offers), None);
    assert_eq!(choose(LeastGain::None, 1000, &[], &offers), Some(0));
    assert_eq!(choose(LeastGain::None, 200, &[], &offers), Some(1));
    assert_eq!(choose(LeastGain::None, 200, &[1], &offers), Some(2));
    assert_eq!(choose(LeastGain::None, 1000, &[], &[(300, 0), (100, 1)]), Some(1), "but a gain comes first");
}

#[test]
fn pivots_with_much_gain_are_flushed_whatever_their_first_leaf_gains() {
    let kib = |gain: u64, written: u64| (gain << 10, written << 10);
    let of_pivots = [kib(20, 100), kib(15, 20), kib(90, 500), kib(20, 32 * 20), kib(20, 32 * 20 + 40)];
    assert_eq!(promising(&of_pivots, GAIN_BYTES_MIN), [2, 0, 3]);
}

/// A leaf of 1000 KiB with entries of 1000 bytes.
fn candidate(waiting_kib: u64, tombstones: u64, replacing_bytes: u64) -> Candidate {
    let bytes = waiting_kib << 10;
    let waiting = Waiting { bytes, page_bytes: bytes, tombstones };
    Candidate { path: vec![0], held_bytes: 1000 << 10, entry_bytes: 1000, waiting, replacing_bytes }
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
    let in_vain = in_vain.map(|kib| tried(Target::Leaf { path: vec![0], waiting_max: kib << 10 }));
    let but: Vec<Reclaim> = in_vain.into_iter().collect();
    let limits = ReclaimLimits { space_bytes: space_kib << 10, least_gain: LeastGain::None, but: &but };
    let step = candidate.largest_step(&limits, rest_kib << 10)?;
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
    assert!(emptied.largest_step(&limits, 1 << 30).is_some(), "a step with a gain needs none");
}

#[test]
fn space_on_top_grows_with_the_buffer_not_with_small_leaves() {
    for leaf_bytes in [4 << 10, 16 << 10, 64 << 10, 2 << 20] {
        let on_top = |bytes| on_top_bytes(bytes, &options(leaf_bytes));
        let sizes = [0, 1, 100 << 10, 1 << 20, 16 << 20];
        assert!(sizes.is_sorted_by(|&a, &b| on_top(a) < on_top(b)), "leaves of {leaf_bytes} bytes");
        assert!(on_top(1 << 20) < 4 << 20, "leaves of {leaf_bytes} bytes");
    }
    assert_eq!(on_top_bytes(1 << 20, &options(4 << 10)), on_top_bytes(1 << 20, &options(64 << 10)));
}

#[test]
fn short_space_enlarges_small_leaves_only() {
    assert_eq!(options(4 << 10).sparing().leaf_bytes, 64 << 10);
    assert_eq!(options(2 << 20).sparing(), options(2 << 20));
}

#[test]
fn a_part_of_a_run_takes_its_share_of_the_space() {
    assert_eq!([low64_of(0, 90, 30), low64_of(10, 90, 30), low64_of(40, 90, 30)], [0, 30, 90]);
    assert_eq!(low64_of(1, 90, 0), 0, "an empty run has nothing");
}

/// Space on top, with the tree's settings.
fn on_top_bytes(memory_bytes: u64, options: &BeTreeOptions) -> u64 {
    testudo_sequence::on_top_bytes(memory_bytes, options.sparing().tier_run_bytes(Overwrites::UNKNOWN))
}
