//! Which pieces of compaction buffers a scan goes through in the place of sequences, part by part
//! (LSbM §5, algorithm 4).
//!
//! Only those will do that together say all that the sequence says of the part. The page of the base where
//! the scan enters it must be in memory: otherwise the sequence is read, which takes fewer pages. Of what
//! came since some may be missing, for other scans will find it there. A scan that goes on from part to part
//! is a long one, for which the sequence is better anyway.
//!
//! **Invariants**
//! - A sequence is replaced for a whole part, from its first run on, or not at all.
//! - Once it is turned off nothing is chosen any more.

use std::sync::Arc;

use testudo_base::{
    Result,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};
use testudo_run::Run;
use testudo_sequence::{Bounds, Entrance, Share, note_damage};

use crate::levels::component::Component;

/// More pieces than these are more work to merge than a few pages are to read.
const PIECES_MAX: usize = 12;
/// So many pages that a scan would have to read where it enters are too many.
const MISSING_MAX: usize = 2;
/// A scan that has gone on into so many parts in a row is long.
const PARTS_MAX: u32 = 2;

/// What a scan has chosen; shared by its cursor and its parts. Only one thread at a time uses it.
#[derive(Debug, Default)]
pub(crate) struct BufferedPieces {
    is_off: AtomicBool,
    /// Parts that the scan has gone on into.
    parts: AtomicU32,
    /// Whether any are read in the present part.
    are_in_use: AtomicBool,
    runs: Mutex<Vec<Arc<Run>>>,
}

impl BufferedPieces {
    /// A scan comes to another part; `goes_on`: from the one beside it.
    pub(crate) fn enter_part(&self, goes_on: bool) {
        self.parts.store(if goes_on { self.parts.load(Relaxed) + 1 } else { 0 }, Relaxed);
        if self.are_in_use() {
            self.are_in_use.store(false, Relaxed);
            self.runs.lock().clear();
        }
    }

    /// What the buffer of `component` has in its place for the keys of a part, newest first; `None` if the
    /// sequence itself is to be read. REQUIRES: the sequence has runs there.
    pub(crate) fn choose(
        &self,
        component: &Component,
        part: &Bounds,
        entrance: Entrance<'_>,
    ) -> Option<Vec<(Arc<Run>, Bounds)>> {
        let buffer = component.buffer()?;
        if self.is_off.load(Relaxed) || self.parts.load(Relaxed) > PARTS_MAX {
            return None;
        }
        // What is retained of keys before the sequence is not said of those any more.
        let covered = Bounds { low: component.get(0)?.fenced.low.as_low(), high: None };
        let covered = covered.intersection(part);
        if covered.is_empty() {
            return None;
        }
        let pieces = buffer.all_within(&covered)?;
        if pieces.len() > PIECES_MAX {
            return None;
        }
        let missing = pieces.iter().filter(|share| !is_there(share, entrance));
        let missing: Vec<&Share<'_>> = missing.take(MISSING_MAX + 1).collect();
        if missing.len() > MISSING_MAX || missing.iter().any(|share| share.is_base) {
            return None;
        }
        self.are_in_use.store(true, Relaxed);
        self.runs.lock().extend(pieces.iter().map(|share| Arc::clone(share.run)));
        Some(pieces.into_iter().map(|share| (Arc::clone(share.run), share.bounds)).collect())
    }

    /// Whether pieces are read where the scan is.
    #[inline]
    pub(crate) fn are_in_use(&self) -> bool {
        self.are_in_use.load(Relaxed)
    }

    /// From here on sequences are read.
    pub(crate) fn turn_off(&self) {
        self.is_off.store(true, Relaxed);
        self.enter_part(false);
    }

    /// Notes which of the runs in use cannot be read as `read` does it.
    pub(crate) fn note_damaged(&self, read: impl Fn(&Arc<Run>) -> Result<()>) {
        let runs = self.runs.lock().clone();
        for run in runs {
            if let Err(error) = read(&run) {
                note_damage(&run, &error);
            }
        }
    }
}

/// Whether the page is in memory where a scan enters a piece; nothing is asked of those beside it.
fn is_there(share: &Share<'_>, entrance: Entrance<'_>) -> bool {
    let Share { run, bounds, .. } = share;
    let (key, is_inside) = match entrance {
        Entrance::At(key) => (key, bounds.contains(key)),
        Entrance::Before(key) => {
            let begins_before = bounds.low.as_ref().is_none_or(|low| low.is_less_than(key));
            (key, begins_before && bounds.high.as_ref().is_none_or(|high| !high.is_less_than(key)))
        }
        Entrance::Last => return false,
    };
    let keys = &run.reference().keys;
    !is_inside || keys.end_before(key) || run.has_page_for(key).unwrap_or(false)
}
