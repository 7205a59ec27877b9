//! A cursor over a whole tree, part by part: one merge of all sources that may hold keys of the current part.
//!
//! A *part* is the range of keys of one run of the lowest level, the leaf. Every other sequence of the tree
//! contributes its data for that part, newest first. So a step compares as many sources as there are
//! sequences, however many runs they have. At the border of a part the cursor enters the next one, and runs
//! that extend into it stay open.
//!
//! **Invariants**
//! - A source is bounded by the part, or holds nothing outside it.

use std::sync::Arc;

use testudo_base::{Cursor, DropSink, Entry, Result, key, planted};
use testudo_run::{Direction, MergeCursor, ScanLimits, ScanProgress, Target, seek_together};
use testudo_storage::DataFile;

use crate::{FencedRun, SequenceCursor, read_forecast::forecast_reads};

/// Selects the part to enter.
#[derive(Clone, Copy, Debug)]
pub enum Entrance<'a> {
    /// The part that contains this key.
    At(&'a [u8]),
    /// The part that contains the keys right before this one.
    Before(&'a [u8]),
    /// The part with the greatest keys.
    Last,
}

/// A range of keys of a tree.
#[derive(Clone, Debug, Default)]
pub struct PartRange {
    /// Inclusive lower bound.
    pub low: Option<Arc<[u8]>>,
    /// Exclusive upper bound.
    pub high: Option<Arc<[u8]>>,
}

/// The sources of a part.
#[derive(Debug)]
pub struct PartSources {
    /// Range of the part.
    pub range: PartRange,
    /// One cursor for each sequence that may hold its keys, newest first; the leaf last.
    pub cursors: Vec<SequenceCursor>,
    /// Approximate bytes of entries in the part, for each cursor.
    pub waiting_bytes: Vec<u64>,
}

/// The parts of a tree.
pub trait ScanParts: Send {
    /// Enters the part at `entrance`. `goes_on`: a scan continues from the adjacent part.
    fn enter(&mut self, entrance: Entrance<'_>, goes_on: bool) -> PartSources;
    /// Called when the sources of that part are positioned and have recorded their reads.
    fn on_positioned(&mut self, _sources: &[SequenceCursor]) {}
    /// Returns the leaf of the part that begins at `border`, if it has one.
    fn leaf_at(&self, border: &[u8]) -> Option<FencedRun>;
}

/// A cursor over all parts, which reports skipped entries to `S`.
#[derive(Debug)]
pub struct PartCursor<P, S = ()> {
    parts: P,
    data: Arc<DataFile>,
    part: PartRange,
    merge: MergeCursor<SequenceCursor, S>,
    sink: S,
    /// Leaf of the next part, during a long scan.
    prepared: Option<SequenceCursor>,
    /// Limits and progress of the scan.
    progress: Arc<ScanProgress>,
}

impl<P: ScanParts> PartCursor<P> {
    /// Creates an unpositioned cursor for a scan within `limits`, which only size the read-ahead.
    pub fn new(parts: P, data: &Arc<DataFile>, limits: &ScanLimits) -> Self {
        Self::with_sink(parts, data, limits, ())
    }
}

impl<P: ScanParts, S: DropSink + Clone> PartCursor<P, S> {
    /// Like [`PartCursor::new`]; `sink` is used as in [`MergeCursor::with_sink`], part by part.
    pub fn with_sink(parts: P, data: &Arc<DataFile>, limits: &ScanLimits, sink: S) -> Self {
        Self {
            parts,
            data: Arc::clone(data),
            part: PartRange::default(),
            merge: MergeCursor::with_sink(Vec::new(), 0, sink.clone()),
            sink,
            prepared: None,
            progress: ScanProgress::new(limits),
        }
    }

    /// Opens the part at `entrance` and positions its sources.
    fn enter(&mut self, entrance: Entrance<'_>, target: Target<'_>, goes_on: bool) -> Result<()> {
        let PartSources { range, cursors: mut sources, waiting_bytes } = self.parts.enter(entrance, goes_on);
        debug_assert_eq!(sources.len(), waiting_bytes.len(), "one estimate for each source");
        debug_assert!(
            range.low.is_none() || range.high.is_none() || range.low < range.high,
            "a part has keys"
        );
        self.part = range;
        let nothing = MergeCursor::with_sink(Vec::new(), 0, self.sink.clone());
        let earlier = std::mem::replace(&mut self.merge, nothing);
        let mut open = earlier.into_sources();
        open.extend(self.prepared.take());
        let direction = match target {
            Target::First | Target::From(_) => Direction::Forward,
            Target::Last | Target::Before(_) => Direction::Backward,
        };
        let passed_pages = open.iter().map(SequenceCursor::passed_leaf_pages).max().unwrap_or_default();
        for mut earlier in open {
            if !goes_on {
                earlier.begin_anew();
            }
            let _ = sources.iter_mut().any(|source| source.take_over(&mut earlier));
        }
        let is_forward = direction == Direction::Forward;
        if !goes_on {
            self.progress = self.progress.begun_anew();
        }
        if is_forward && (goes_on || self.progress.is_limited()) {
            forecast_reads(&self.progress, &mut sources, &waiting_bytes);
        }
        if goes_on && is_forward && passed_pages > 0 {
            sources.iter_mut().for_each(|source| source.go_on_after(passed_pages));
            if self.goes_beyond(&sources) {
                let behind = self.part.high.as_deref().and_then(|border| self.parts.leaf_at(border));
                self.prepared = behind.map(|leaf| SequenceCursor::prepared_leaf(&leaf, passed_pages));
            }
        }
        let shared = match (&self.part.low, &self.part.high) {
            (Some(low), Some(high)) => key::common_prefix(low, high),
            _ => 0,
        };
        self.merge = MergeCursor::with_sink(sources, shared, self.sink.clone());
        let (data, parts) = (&self.data, &mut self.parts);
        self.merge.place(direction, |sources| {
            for source in &mut *sources {
                source.begin(target);
            }
            seek_together(sources, data)?;
            parts.on_positioned(sources);
            Ok(())
        })
    }

    /// Whether a scan may extend beyond the current part, which has these sources.
    fn goes_beyond(&self, sources: &[SequenceCursor]) -> bool {
        let leaf = sources.last().filter(|source| source.is_leaf());
        let entries = leaf.map_or(0, |leaf| leaf.first_run().reference().entries);
        let high = self.part.high.as_deref();
        let ends_within = self.progress.end().is_some_and(|end| high.is_none_or(|high| end <= high));
        self.progress.entries_left().is_none_or(|left| left > entries) && !ends_within
    }

    /// While the part is exhausted, moves to the next one.
    fn go_on_forward(&mut self) -> Result<()> {
        while self.merge.entry().is_none() {
            let Some(border) = self.part.high.clone() else { return Ok(()) };
            self.enter(Entrance::At(&border), Target::From(&border), true)?;
            debug_assert!(
                self.part.low.as_ref() == Some(&border),
                "the next part begins where this one ends"
            );
        }
        Ok(())
    }

    /// While the part is exhausted, moves to the previous one.
    fn go_on_backward(&mut self) -> Result<()> {
        while self.merge.entry().is_none() {
            let Some(border) = self.part.low.clone() else { return Ok(()) };
            self.enter(Entrance::Before(&border), Target::Before(&border), true)?;
            debug_assert!(
                self.part.high.as_ref() == Some(&border),
                "the part before ends where this one begins"
            );
        }
        Ok(())
    }
}

impl<P: ScanParts, S: DropSink + Clone> Cursor for PartCursor<P, S> {
    fn seek_first(&mut self) -> Result<()> {
        self.enter(Entrance::At(&[]), Target::First, false)?;
        self.go_on_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.enter(Entrance::Last, Target::Last, false)?;
        self.go_on_backward()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.enter(Entrance::At(key), Target::From(key), false)?;
        self.go_on_forward()
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.enter(Entrance::Before(key), Target::Before(key), false)?;
        self.go_on_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.merge.entry().is_none() {
            return Ok(());
        }
        self.progress.count_entry();
        self.merge.next()?;
        if self.merge.entry().is_some() { Ok(()) } else { self.go_on_forward() }
    }

    fn prev(&mut self) -> Result<()> {
        if self.merge.entry().is_none() {
            return Ok(());
        }
        self.merge.prev()?;
        if self.merge.entry().is_some() {
            return Ok(());
        }
        if planted!("backward-skips-a-part")
            && let Some(border) = self.part.low.clone()
        {
            self.part = self.parts.enter(Entrance::Before(&border), true).range;
        }
        self.go_on_backward()
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        self.merge.entry()
    }

    fn memory_bytes(&self) -> usize {
        self.merge.memory_bytes() + self.prepared.as_ref().map_or(0, Cursor::memory_bytes)
    }
}
