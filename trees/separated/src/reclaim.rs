//! Which segment is rewritten without its dead values, and when.
//!
//! The space that dead values take is bounded for all segments together: as long as it is within the bound,
//! segments are left to die further, for the more of a segment is dead the less is written to win the same.
//! A tree that is idle goes on for as long as a segment is worth it.
//!
//! Long values cost more to read and write again than their space is worth, and much of what is written to a
//! store of them is their rewriting: there more of them may be dead.
//!
//! Transient segments die by themselves, as their values come to the bottom of the tree, and are freed whole.
//! Only where keys are rewritten in such an order that a few values keep many segments alive is one of them
//! rewritten: if their dead values would take more than a part of the whole store, and then the most dead.
//!
//! **Invariants**
//! - Choosing reads numbers only. A segment without dead values is never chosen, so that rewriting ends.

use testudo_base::{RunId, num::low64, sync::Arc};
use testudo_values::{Segment, SegmentSet};

/// While data comes in a segment is rewritten if more than one in so many bytes of all values is dead …
const DEAD_PART_OF_ALL: u64 = 11;
/// … or, if values are at least so long on average, more than these parts of them.
const LONG_VALUE_BYTES: u64 = 16 << 10;
const DEAD_PARTS_OF_LONG: (u64, u64) = (2, 9);
/// Writers wait for rewriting if more than one in so many bytes of all values is dead …
const DEAD_PART_TO_WAIT_FOR: u64 = 4;
/// … or, of long ones, more than these parts.
const DEAD_PARTS_OF_LONG_TO_WAIT_FOR: (u64, u64) = (2, 7);
/// They do not wait for more than this many bytes of segments to be read for each byte of values that comes
/// in …
const READ_FOR_EACH: u64 = 3;
/// … unless more than one in so many bytes of all values is dead.
const DEAD_PART_AT_MOST: u64 = 2;
/// A transient segment is rewritten if dead values of transient segments are more than one in so many bytes
/// of the whole tree …
const DEAD_TRANSIENT_PART: u64 = 6;
/// … and if of its own values at least one in so many bytes is dead.
const DEAD_PART_OF_TRANSIENT: u64 = 2;
/// Of a segment that is rewritten at least one in so many bytes is dead (PAPERS P2).
const DEAD_PART_OF_SEGMENT: u64 = 10;

/// A segment that is to be rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) segment: RunId,
    /// The run that it is in.
    pub(crate) run: RunId,
}

impl Target {
    pub(crate) fn of(segment: &Segment) -> Self {
        Self { segment: segment.id(), run: segment.run().reference().id }
    }

    /// The segment, if it is in the same run still.
    pub(crate) fn find<'s>(&self, segments: &'s SegmentSet) -> Option<&'s Arc<Segment>> {
        segments.get(self.segment).filter(|segment| segment.run().reference().id == self.run)
    }
}

/// The segment of which the greatest part is dead, if it is to be rewritten. `tree_bytes`: those of the runs
/// of the tree.
pub(crate) fn pick(segments: &SegmentSet, tree_bytes: u64, is_idle: bool) -> Option<&Arc<Segment>> {
    let of_class = |is_transient: bool| move |segment: &&Arc<Segment>| segment.is_transient() == is_transient;
    let lasting = || segments.iter().filter(of_class(false));
    let transient = || segments.iter().filter(of_class(true));
    let totals = segments.totals();
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

/// How fast segments are rewritten beside what comes in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Bytes of the values that came in last …
    came_bytes: u64,
    /// … and of the segments that were read since to be rewritten.
    read_bytes: u64,
}

impl Pace {
    /// After so many bytes of values came in.
    pub(crate) fn after(self, came_bytes: u64) -> Self {
        if came_bytes > 0 { Self { came_bytes, read_bytes: 0 } } else { self }
    }

    /// After a segment with so many bytes was rewritten.
    pub(crate) fn after_rewriting(self, read_bytes: u64) -> Self {
        Self { read_bytes: self.read_bytes + read_bytes, ..self }
    }

    /// About how many bytes are to be rewritten before more comes in. A merge can find many dead values at
    /// once: these are made up for little by little, unless they are very many.
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
            let (dead, living) = (next.dead_bytes().max(1), next.stored_bytes() - next.dead_bytes());
            low64(u128::from(excess_bytes) * u128::from(living) / u128::from(dead)).max(1)
        })
    }
}

/// Whether values are so long that little space is worth rewriting them.
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

/// Whether at least one in `parts` bytes of its values is dead.
fn is_worthwhile(segment: &Segment, parts: u64) -> bool {
    segment.dead_bytes() > 0 && segment.dead_bytes() * parts >= segment.stored_bytes()
}

/// Bytes of pages that rewriting a segment wins, about.
pub(crate) fn gain_bytes(segment: &Segment) -> u64 {
    segment.run().reference().stored_bytes().saturating_sub(segment.rewritten_bytes())
}
