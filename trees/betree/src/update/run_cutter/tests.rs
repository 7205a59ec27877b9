use testudo_sequence::Overwrites;

use super::*;
use crate::Policy;

const KIB: u64 = 1 << 10;

/// A stretch of consecutive one-KiB entries.
#[derive(Clone, Copy)]
enum Stretch {
    /// They flow in.
    New(u64),
    /// They are in the rewritten leaf.
    Old(u64),
    /// They are read but not written, like shadowed ones.
    Dropped(u64),
}
use Stretch::{Dropped, New, Old};

/// Settings with leaves of 64 KiB.
fn options(policy: Policy) -> BeTreeOptions {
    BeTreeOptions { leaf_bytes: 64 * KIB, ..BeTreeOptions::new(policy) }
}

/// A cutter for a leaf of a turtle tree.
fn leaf_cutter(incoming: u64) -> RunCutter {
    let options = options(Policy::Turtle);
    RunCutter::new(incoming, options.leaf_bytes, &options)
}

/// Cuts the entries of a destination with `cutter`; returns the KiB of entries in each run, as text.
/// `page_fill`: percentage of a page that is entries.
fn runs_of(mut cutter: RunCutter, page_fill: u64, stretches: &[Stretch]) -> String {
    let (mut runs, mut open, mut passed) = (Vec::new(), 0, 0);
    for stretch in stretches {
        let (New(count) | Old(count) | Dropped(count)) = *stretch;
        for _ in 0..count {
            let is_old = matches!(stretch, Old(_));
            if is_old && cutter.cuts_before_old(passed) {
                runs.push(std::mem::take(&mut open));
            }
            passed += KIB;
            if matches!(stretch, Dropped(_)) {
                continue;
            }
            open += 1;
            cutter.record_written(KIB, is_old);
            let data_bytes = (open * KIB * 100 / page_fill).next_multiple_of(PAGE_BYTES);
            if cutter.cuts_after(data_bytes, passed) {
                runs.push(std::mem::take(&mut open));
            }
        }
    }
    runs.extend((open > 0).then_some(open));
    runs.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

fn leaves(incoming_kib: u64, stretches: &[Stretch]) -> String {
    runs_of(leaf_cutter(incoming_kib * KIB), 100, stretches)
}

#[test]
fn entries_that_fit_a_leaf_are_one_leaf() {
    assert_eq!(leaves(0, &[]), "");
    assert_eq!(leaves(1, &[New(1)]), "1");
    assert_eq!(leaves(64, &[New(64)]), "64");
}

#[test]
fn leaves_are_about_equally_large() {
    assert_eq!(leaves(65, &[New(65)]), "29 36");
    assert_eq!(leaves(128, &[New(128)]), "61 67");
    assert_eq!(leaves(200, &[New(200)]), "45 45 45 65");
}

#[test]
fn a_small_remainder_goes_to_the_preceding_run() {
    // Half of the incoming entries are shadowed: two leaves were expected, and one is enough.
    assert_eq!(leaves(128, &[New(56), Dropped(64), New(8)]), "64");
}

#[test]
fn unexpected_excess_is_cut_at_one_and_a_half_leaves() {
    assert_eq!(leaves(10, &[New(300)]), "96 96 96 12");
}

#[test]
fn half_empty_pages_do_not_cut_joined_leaves() {
    let cutter = leaf_cutter(64 * KIB);
    assert_eq!(runs_of(cutter, 50, &[New(64)]), "64");
}

#[test]
fn tiers_of_the_splinter_policy_have_smaller_runs() {
    let options = BeTreeOptions { leaf_bytes: 2048 * KIB, ..options(Policy::Splinter) };
    let cutter = |run_bytes| RunCutter::new(2048 * KIB, run_bytes, &options);
    assert_eq!(runs_of(cutter(options.leaf_bytes), 100, &[New(2048)]), "2048");
    let run_bytes = options.tier_run_bytes(Overwrites::UNKNOWN);
    assert_eq!(runs_of(cutter(run_bytes), 100, &[New(2048)]), "509 509 509 521");
}

#[test]
fn old_entries_after_a_long_stretch_of_new_ones_begin_a_leaf() {
    assert_eq!(leaves(100, &[New(40), Old(60)]), "40 60");
    // Not after a short one, nor if everything fits one leaf.
    assert_eq!(leaves(100, &[New(30), Old(70)]), "45 55");
    assert_eq!(leaves(48, &[New(40), Old(8)]), "48");
    // New ones interspersed with old ones make no stretch.
    assert_eq!(leaves(100, &[Old(10), New(20), Old(10), New(20), Old(40)]), "45 55");
}

#[test]
fn a_cut_elsewhere_resets_the_open_run() {
    let mut cutter = leaf_cutter(10 * KIB);
    (0..90).for_each(|_| cutter.record_written(KIB, false));
    assert!(!cutter.cuts_after(90 * KIB, 10 * KIB));
    cutter.record_other_cut();
    (0..90).for_each(|_| cutter.record_written(KIB, false));
    assert!(!cutter.cuts_after(90 * KIB, 10 * KIB));
    (0..6).for_each(|_| cutter.record_written(KIB, false));
    assert!(cutter.cuts_after(96 * KIB, 10 * KIB));
}

#[test]
fn parts_of_a_leaf_become_leaves_as_large_as_of_the_whole() {
    let part = |part_kib: u64, whole_kib: u64| {
        let cutter = RunCutter::of_part(part_kib * KIB, whole_kib * KIB, &options(Policy::Turtle));
        runs_of(cutter, 100, &[New(part_kib)])
    };
    // Each run ends a page early, and the last one has the rest.
    assert_eq!(part(260, 1024), "61 61 61 77");
    assert_eq!(leaves(260, &[New(260)]), "49 49 49 49 64");
    assert_eq!(part(30, 1024), "30");
}
