//! Garbage collection of value segments: which segment is rewritten without its garbage, and when.
//!
//! Garbage is bounded for all segments together. Within the bound, segments are left to accumulate garbage,
//! because the larger its fraction, the less is written to reclaim the same space. An idle tree continues as
//! long as a segment is worth rewriting.
//!
//! Rewriting long values costs more than their space is worth, and is a large part of all writes to a store
//! of them: so more of them may be garbage.
//!
//! Values of transient segments become garbage by themselves when they reach the bottom of the tree, and
//! these segments are freed whole. But if keys are overwritten in such an order that a few live values keep
//! many segments, one of them is rewritten: if garbage in transient segments exceeds a fraction of the whole
//! store, and then the one with most garbage.
//!
//! **Invariants**
//! - Picking reads only counters. A segment without garbage is never picked, so that rewriting terminates.

use testudo_base::{RunId, num::low64, sync::Arc};
use testudo_values::{Segment, SegmentSet};

/// While writes continue, a segment is rewritten if more than one in this many bytes of values is garbage …
const DEAD_PART_OF_ALL: u64 = 11;
/// … or, if the mean value is at least this long, more than these parts.
const LONG_VALUE_BYTES: u64 = 16 << 10;
const DEAD_PARTS_OF_LONG: (u64, u64) = (2, 9);
/// Writers wait for rewriting if more than one in this many bytes of values is garbage …
const DEAD_PART_TO_WAIT_FOR: u64 = 4;
/// … or, of long values, more than these parts.
const DEAD_PARTS_OF_LONG_TO_WAIT_FOR: (u64, u64) = (2, 7);
/// They wait for at most this many bytes of segments read per incoming byte of values …
const READ_FOR_EACH: u64 = 3;
/// … unless more than one in this many bytes of values is garbage.
const DEAD_PART_AT_MOST: u64 = 2;
/// A transient segment is rewritten if garbage in transient segments is more than one in this many bytes of
/// the whole tree …
const DEAD_TRANSIENT_PART: u64 = 6;
/// … and at least one in this many bytes of its own values is garbage.
const DEAD_PART_OF_TRANSIENT: u64 = 2;
/// At least one in this many bytes of a segment to be rewritten is garbage (PAPERS P2).
const DEAD_PART_OF_SEGMENT: u64 = 10;

/// A segment to be rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) segment: RunId,
    /// Its current run.
    pub(crate) run: RunId,
}

impl Target {
    pub(crate) fn of(segment: &Segment) -> Self {
        Self { segment: segment.id(), run: segment.run().reference().id }
    }

    /// Returns the segment, if it is still in the same run.
    pub(crate) fn find<'s>(&self, segments: &'s SegmentSet) -> Option<&'s Arc<Segment>> {
        segments.get(self.segment).filter(|segment| segment.run().reference().id == self.run)
    }
}

/// Picks the segment with the largest garbage fraction, if it should be rewritten. `tree_bytes`: bytes of the
/// tree's runs.
pub(crate) fn pick(segments: &SegmentSet, tree_bytes: u64, is_idle: bool) -> Option<&Arc<Segment>> {
    let of_class = |is_transient: bool| move |segment: &&Arc<Segment>| segment.is_transient() == is_transient;
    let lasting = || segments.iter().filter(of_class(false));
    let transient = || segments.iter().filter(of_class(true));
    let totals = segments.totals();
    debug_assert!(totals.dead_bytes <= totals.value_bytes, "garbage is a part of the segments");
    let lasting_bytes = totals.value_bytes - totals.transient_bytes;
    let dead_lasting_bytes = totals.dead_bytes - totals.dead_transient_bytes;
    let (part, parts) = if are_long(segments) { DEAD_PARTS_OF_LONG } else { (1, DEAD_PART_OF_ALL) };
    if is_idle || dead_lasting_bytes * parts > lasting_bytes * part {
        let most_dead = most_dead(lasting()).filter(|segment| is_worthwhile(segment, DEAD_PART_OF_SEGMENT));
        if most_dead.is_some() {
            return most_dead;
        }
    }
    let is_too_much = totals.dead_transient_bytes * DEAD_TRANSIENT_PART > tree_bytes + totals.value_bytes;
    let most_dead = most_dead(transient()).filter(|_| is_too_much);
    most_dead.filter(|segment| is_worthwhile(segment, DEAD_PART_OF_TRANSIENT))
}

/// Progress of rewriting segments relative to incoming values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Bytes of the last incoming values …
    came_bytes: u64,
    /// … and of the segments read for rewriting since then.
    read_bytes: u64,
}

impl Pace {
    /// Returns the pace after `came_bytes` of incoming values.
    pub(crate) fn after(self, came_bytes: u64) -> Self {
        if came_bytes > 0 { Self { came_bytes, read_bytes: 0 } } else { self }
    }

    /// Returns the pace after rewriting a segment with `read_bytes`.
    pub(crate) fn after_rewriting(self, read_bytes: u64) -> Self {
        Self { read_bytes: self.read_bytes + read_bytes, ..self }
    }

    /// Approximate bytes to rewrite before more values come in. A merge can find much garbage at once: it is
    /// collected gradually, unless it is very much.
    pub(crate) fn behind_bytes(&self, segments: &SegmentSet) -> u64 {
        let totals = segments.totals();
        let lasting_bytes = totals.value_bytes - totals.transient_bytes;
        let dead_bytes = totals.dead_bytes - totals.dead_transient_bytes;
        let (part, parts) =
            if are_long(segments) { DEAD_PARTS_OF_LONG_TO_WAIT_FOR } else { (1, DEAD_PART_TO_WAIT_FOR) };
        let excess_bytes = dead_bytes.saturating_sub(lasting_bytes / parts * part);
        let is_enough = self.read_bytes >= self.came_bytes * READ_FOR_EACH;
        if excess_bytes == 0 || is_enough && dead_bytes * DEAD_PART_AT_MOST <= lasting_bytes {
            return 0;
        }
        let next = most_dead(segments.iter().filter(|segment| !segment.is_transient()));
        next.map_or(0, |next| {
            debug_assert!(next.dead_bytes() <= next.stored_bytes(), "garbage is a part of the segment");
            let (dead, living) = (next.dead_bytes().max(1), next.stored_bytes() - next.dead_bytes());
            low64(u128::from(excess_bytes) * u128::from(living) / u128::from(dead)).max(1)
        })
    }
}

/// Whether values are so long that rewriting them for little space does not pay.
fn are_long(segments: &SegmentSet) -> bool {
    let lasting = || segments.iter().filter(|segment| !segment.is_transient());
    let bytes: u64 = lasting().map(|segment| segment.stored_bytes()).sum();
    let values: u64 = lasting().map(|segment| segment.run().reference().entries).sum();
    bytes >= values * LONG_VALUE_BYTES
}

fn most_dead<'s>(segments: impl Iterator<Item = &'s Arc<Segment>>) -> Option<&'s Arc<Segment>> {
    segments.max_by_key(|segment| {
        let part = u128::from(segment.dead_bytes()) << 64;
        part / u128::from(segment.stored_bytes().max(1))
    })
}

/// Whether at least `1 / parts` of its bytes are garbage.
fn is_worthwhile(segment: &Segment, parts: u64) -> bool {
    segment.dead_bytes() > 0 && segment.dead_bytes() * parts >= segment.stored_bytes()
}

/// Approximate bytes of pages that rewriting a segment reclaims.
pub(crate) fn gain_bytes(segment: &Segment) -> u64 {
    segment.run().reference().stored_bytes().saturating_sub(segment.rewritten_bytes())
}
