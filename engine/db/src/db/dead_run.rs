//! How a scan skips tombstones: step by step, or past a gap that another scan has recorded.
//!
//! Both ends of an iterator use the same code. A long run of tombstones is recorded as a gap of the keyspace
//! (`gaps.rs` of `testudo-store`).
//!
//! **Invariants**
//! - A stretch of a dead run holds no live entry at the seqno of the scan.
//! - A gap is proposed first; then the write buffers are searched for writes since that seqno. A commit
//!   inserts first and checks for gaps afterwards. So one of the two sees the other.

use testudo_base::{
    Cursor, Kind, Result,
    num::u64_of,
    planted,
    sync::{Arc, scaled},
};
use testudo_run::Direction;
use testudo_store::{
    gaps::{Edge, Stretch, Terms, successor},
    keyspace::WriteBuffer,
    read::scan_sources::Sources,
};

use crate::db::pinned::Pinned;

/// Minimum cost, in steps, of a dead run that is recorded as a gap.
const REMEMBERED_STEPS: usize = scaled(16, 1);
/// Cost of a seek past a gap, in steps.
const SEEK_STEPS: usize = 4;
/// Maximum recorded stretches of one dead run.
const STRETCHES_MAX: usize = 64;
/// Maximum memory of all gaps: one part in this many of the memory budget.
pub(crate) const GAP_PARTS: u64 = 64;

/// The tombstones that one end of an iterator skips before a live entry.
#[derive(Debug)]
pub(crate) struct DeadRun {
    direction: Direction,
    /// Where the scan was placed, if it has not moved since.
    placed_at: Option<Place>,
    /// Stretches skipped step by step.
    stretches: Vec<Stretch>,
    steps: usize,
    seeks: usize,
}

/// A boundary between keys: those below it, and those at or above it. `None`: unbounded.
#[derive(Clone, Debug)]
struct Place(Option<Vec<u8>>);

/// Result of skipping a dead run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Led {
    /// The sources are on a live entry within the bounds of the scan, beyond them, or unpositioned.
    On,
    /// No entries remain within the bounds; the position of the sources is unspecified.
    ToTheEnd,
}

impl DeadRun {
    pub(crate) fn new(direction: Direction) -> Self {
        Self { direction, placed_at: None, stretches: Vec::new(), steps: 0, seeks: 0 }
    }

    /// Positions `sources` at the boundary `key` (`None`: at the end where the direction begins), or past the
    /// gap there.
    pub(crate) fn place(
        &mut self,
        sources: &mut Sources,
        pinned: &Pinned,
        key: Option<&[u8]>,
    ) -> Result<Led> {
        self.forget();
        let gap = match self.direction {
            Direction::Forward => pinned.gaps.end_of(key.unwrap_or_default(), pinned.seqno),
            Direction::Backward => pinned.gaps.begin_of(key, pinned.seqno),
        };
        match gap {
            Some(Edge::End) => return Ok(Led::ToTheEnd),
            Some(Edge::Key(key)) => self.seek(sources, key)?,
            None => {
                match (self.direction, key) {
                    (Direction::Forward, Some(key)) => sources.seek(key)?,
                    (Direction::Forward, None) => sources.seek_first()?,
                    (Direction::Backward, Some(key)) => sources.seek_before(key)?,
                    (Direction::Backward, None) => sources.seek_last()?,
                }
                self.placed_at = Some(Place(key.map(<[u8]>::to_vec)));
            }
        }
        Ok(Led::On)
    }

    /// Ends the dead run: the scan has reached a live entry.
    #[inline]
    pub(crate) fn end(&mut self) {
        if self.placed_at.is_some() {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.placed_at = None;
        self.stretches.clear();
        (self.steps, self.seeks) = (0, 0);
    }

    /// Seeks past a gap, to its far boundary.
    fn seek(&mut self, sources: &mut Sources, border: Vec<u8>) -> Result<()> {
        self.seeks += 1;
        match self.direction {
            Direction::Forward => sources.seek(&border)?,
            Direction::Backward => sources.seek_before(&border)?,
        }
        self.placed_at = Some(Place(Some(border)));
        Ok(())
    }

    /// Moves `sources` from a tombstone within the bounds to the next entry that is not a tombstone.
    pub(crate) fn pass(
        &mut self,
        sources: &mut Sources,
        pinned: &Pinned,
        is_beyond: impl Fn(&[u8]) -> bool,
    ) -> Result<Led> {
        debug_assert!(
            sources.entry().is_some_and(|entry| entry.kind == Kind::Tombstone && !is_beyond(entry.key)),
            "a dead run begins at a tombstone within the bounds"
        );
        let steps_before = self.steps;
        let led = self.pass_each(sources, pinned, is_beyond);
        let counters = &pinned.store().counters;
        debug_assert!(self.steps >= steps_before, "steps are counted");
        counters.tombstones_passed.add(u64_of(self.steps - steps_before));
        if led.is_ok() && !planted!("gap-never-remembered") {
            self.remember(pinned);
        }
        self.forget();
        led
    }

    fn pass_each(
        &mut self,
        sources: &mut Sources,
        pinned: &Pinned,
        is_beyond: impl Fn(&[u8]) -> bool,
    ) -> Result<Led> {
        let (mut steps, mut asked_at) = (0, 1);
        while let Some(entry) = sources.entry().filter(|entry| !is_beyond(entry.key)) {
            if entry.kind != Kind::Tombstone {
                break;
            }
            let begin = self.placed_at.get_or_insert_with(|| border_before(self.direction, entry.key));
            steps += 1;
            if steps == asked_at {
                asked_at *= 2;
                let gap = match self.direction {
                    Direction::Forward => pinned.gaps.end_of(entry.key, pinned.seqno),
                    Direction::Backward => pinned.gaps.begin_of(Some(&successor(entry.key)), pinned.seqno),
                };
                if let Some(gap) = gap {
                    if steps > 1 {
                        let passed = stretch(self.direction, begin, border_before(self.direction, entry.key));
                        self.push(passed);
                    }
                    match gap {
                        Edge::Key(border) if !is_beyond(&border) => self.seek(sources, border)?,
                        _ => {
                            self.placed_at = None;
                            self.seeks += 1;
                            return Ok(Led::ToTheEnd);
                        }
                    }
                    (steps, asked_at) = (0, 1);
                    continue;
                }
            }
            self.steps += 1;
            match self.direction {
                Direction::Forward => sources.next()?,
                Direction::Backward => sources.prev()?,
            }
        }
        if steps > 0
            && let Some(begin) = self.placed_at.take()
        {
            let end = sources.entry().map_or(Place(None), |entry| border_before(self.direction, entry.key));
            self.push(stretch(self.direction, &begin, end));
        }
        Ok(Led::On)
    }

    fn push(&mut self, stretch: Stretch) {
        if self.stretches.len() < STRETCHES_MAX {
            self.stretches.push(stretch);
        }
    }

    /// Records the skipped stretches as gaps, if they cost enough.
    fn remember(&mut self, pinned: &Pinned) {
        let cost = self.steps + SEEK_STEPS * self.seeks.saturating_sub(1);
        if cost < REMEMBERED_STEPS || self.stretches.is_empty() {
            return;
        }
        debug_assert!(self.stretches.len() <= STRETCHES_MAX, "a dead run leaves a few gaps");
        let store = pinned.store();
        let Some(core) = pinned.core.upgrade() else { return };
        let gaps = &pinned.gaps;
        let stretches = std::mem::take(&mut self.stretches);
        let proposal = gaps.propose(stretches.clone());
        // Commits that choose their buffers after this section find the proposal.
        let commit = store.commits.lock();
        let view = core.view.load_full();
        drop(commit);
        // Later writes are in the buffer that was active at the scan's seqno, and in newer ones.
        let active = pinned.view.buffers.first().and_then(|held| held.memtable());
        let is_that =
            |buffer: &&Arc<WriteBuffer>| active.as_ref().is_some_and(|t| Arc::ptr_eq(&buffer.table, t));
        let Some(active) = active.as_ref().filter(|_| view.buffers().any(|buffer| is_that(&buffer))) else {
            return gaps.withdraw(&proposal);
        };
        let newer = view.buffers().take_while(|buffer| !is_that(buffer)).map(|buffer| &buffer.table);
        let mut written = Vec::new();
        for table in newer.chain([active]).filter(|_| !planted!("gap-known-unchecked")) {
            for Stretch { low, high } in &stretches {
                written.extend(table.first_newer(low, high.as_deref(), pinned.seqno));
            }
        }
        let is_free = |from, to| store.snapshots.live.lock().range(from..to).next().is_none();
        let limit_bytes = store.memory.total() / GAP_PARTS;
        gaps.confirm(&proposal, &written, &Terms { since: pinned.seqno, is_free: &is_free, limit_bytes });
    }
}

/// The boundary that a scan reaches directly before `key`.
fn border_before(direction: Direction, key: &[u8]) -> Place {
    Place(Some(match direction {
        Direction::Forward => key.to_vec(),
        Direction::Backward => successor(key),
    }))
}

/// The stretch between two boundaries, in the order in which a scan reaches them.
fn stretch(direction: Direction, begin: &Place, end: Place) -> Stretch {
    let (Place(low), Place(high)) = match direction {
        Direction::Forward => (begin.clone(), end),
        Direction::Backward => (end, begin.clone()),
    };
    let low = low.unwrap_or_default();
    debug_assert!(high.as_ref().is_none_or(|high| low <= *high), "a scan passes keys in its direction");
    Stretch { low, high }
}
