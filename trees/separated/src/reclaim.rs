//! Which segment is rewritten without its dead values, and when.
//!
//! The space that dead values take is bounded for all segments together: as long as it is within the bound,
//! segments are left to die further, for the more of a segment is dead the less is written to win the same.
//! A tree that is idle goes on for as long as a segment is worth it.
//!
//! **Invariants**
//! - Choosing reads numbers only. A segment without dead values is never chosen, so that rewriting ends.

use testudo_base::{RunId, sync::Arc};
use testudo_values::{Segment, SegmentSet};

/// While data comes in a segment is rewritten if more than one in so many bytes of all values is dead.
const DEAD_PART_OF_ALL: u64 = 6;
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

/// The segment of which the greatest part is dead, if it is to be rewritten.
pub(crate) fn pick(segments: &SegmentSet, is_idle: bool) -> Option<&Arc<Segment>> {
    let totals = segments.totals();
    if !is_idle && totals.dead_bytes * DEAD_PART_OF_ALL <= totals.value_bytes {
        return None;
    }
    let most_dead = segments.iter().max_by_key(|segment| {
        let part = u128::from(segment.dead_bytes()) << 64;
        part / u128::from(segment.stored_bytes().max(1))
    });
    most_dead.filter(|segment| is_worthwhile(segment))
}

fn is_worthwhile(segment: &Segment) -> bool {
    segment.dead_bytes() > 0 && segment.dead_bytes() * DEAD_PART_OF_SEGMENT >= segment.stored_bytes()
}

/// Bytes of pages that rewriting a segment wins, about.
pub(crate) fn gain_bytes(segment: &Segment) -> u64 {
    segment.run().reference().stored_bytes().saturating_sub(segment.rewritten_bytes())
}
