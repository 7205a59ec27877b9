//! Writing the runs of one destination, and the covered ranges of leaves.
//!
//! **Invariants**
//! - The covered ranges of a leaf's runs are contiguous and fill the leaf.
//! - Dropped and converted entries are reported to the work's progress at the end.
//! - A staying run keeps its bytes and its covered range; new runs are put before and after it.

use testudo_base::{DropSink, Entry, Kind, Result, Seqno, key, num::u64_of, planted, sync::Arc};
use testudo_contract::{Height, Work};
use testudo_run::{KeyBounds, Run, RunLayout, RunOrigin, RunWriter};

use crate::{Fence, FencedRun, resolver::Resolver};

/// Common properties of the runs of a destination.
#[derive(Clone, Copy, Debug)]
pub struct SequenceOrigin {
    /// Their newest seqno.
    pub newest_seqno: Seqno,
    /// Approximate target size of each in bytes.
    pub target: u64,
    /// Their height above the bottom.
    pub height: Height,
    /// Tombstones are kept, although nothing older is below.
    pub keeps_tombstones: bool,
    /// Layout of their pages.
    pub layout: RunLayout,
}

impl SequenceOrigin {
    /// Whether they are leaves: nothing older is below.
    fn is_leaf(&self) -> bool {
        self.height == Height::Bottom
    }
}

/// Outcome of pushing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It was written.
    Written,
    /// It was written as the first one after the staying run.
    BehindStaying,
    /// It is a tombstone that was dropped.
    Ended,
}

/// The runs of one destination while they are written. A full run is finished when the next one begins,
/// because only then the end of its covered range is known.
pub struct RunSequence<'w> {
    work: &'w Work,
    origin: SequenceOrigin,
    /// The keys from the start of the open run to the end of the destination.
    rest: KeyBounds,
    open: Option<RunWriter>,
    /// The open run gets no more entries.
    is_full: bool,
    runs: Vec<FencedRun>,
    /// The leaf's existing run, if it stays: it is put in order among the others.
    staying: Option<Staying>,
    /// The first tombstone of a leaf, or of one side of the staying run, while nothing else was written
    /// there.
    first_tombstone: Option<Vec<u8>>,
    resolver: Resolver<'w>,
    /// Bytes of entries pushed in excess of bytes written for them.
    separated_bytes: u64,
    /// Bytes of the last entry written.
    written_bytes: u64,
}

/// A staying run, with its first and last key.
struct Staying {
    run: Arc<Run>,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl<'w> RunSequence<'w> {
    /// Creates a sequence for the keys of `rest` within the tree's range. `staying`: an existing run that
    /// stays.
    pub fn new(
        work: &'w Work,
        origin: SequenceOrigin,
        rest: KeyBounds,
        staying: Option<Arc<Run>>,
    ) -> Result<Self> {
        debug_assert!(origin.is_leaf() || staying.is_none(), "only leaves have runs that stay");
        debug_assert!(origin.is_leaf() || !origin.keeps_tombstones, "elsewhere tombstones are always kept");
        debug_assert!(origin.target > 0, "a run holds something");
        let staying = match staying {
            None => None,
            Some(run) => {
                let (first, last) = run.exact_ends()?;
                Some(Staying { run, first, last })
            }
        };
        Ok(Self {
            work,
            origin,
            rest: rest.intersection(&work.keys),
            open: None,
            is_full: false,
            runs: Vec::new(),
            staying,
            first_tombstone: None,
            resolver: Resolver::new(work, origin.newest_seqno, origin.height),
            separated_bytes: 0,
            written_bytes: 0,
        })
    }

    /// Adds an entry. REQUIRES: its key is greater than those before.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<Pushed> {
        let staying = self.staying.take_if(|staying| entry.key > staying.first.as_slice());
        let is_behind_staying = staying.is_some();
        if let Some(staying) = staying {
            debug_assert!(entry.key > staying.last.as_slice(), "no incoming key is between its keys");
            self.put(staying, Some(entry.key))?;
        }
        let drops_tombstones = self.origin.is_leaf() && !self.origin.keeps_tombstones;
        if (drops_tombstones || planted!("tombstone-dropped-early")) && entry.kind == Kind::Tombstone {
            if self.open.is_none() && self.first_tombstone.is_none() {
                self.first_tombstone = Some(entry.key.to_vec());
            } else {
                self.resolver.drops.dropped(entry);
            }
            return Ok(Pushed::Ended);
        }
        if std::mem::take(&mut self.is_full) {
            self.finish_open(Some(entry.key))?;
        }
        self.write(entry)?;
        Ok(if is_behind_staying { Pushed::BehindStaying } else { Pushed::Written })
    }

    /// Records that the last pushed entry is warm ([`testudo_base::Cursor::is_warm`]). REQUIRES: it was
    /// written.
    #[inline]
    pub fn note_warm(&mut self) {
        debug_assert!(self.open.is_some(), "the entry was written");
        if let Some(open) = &mut self.open {
            open.note_warm();
        }
    }

    /// Sets the maximum bytes that are filled of the open page and the following ones of its run. REQUIRES:
    /// the last pushed entry was written.
    #[inline]
    pub fn set_fill_bytes(&mut self, bytes: u16) {
        debug_assert!(self.open.is_some(), "the entry was written");
        if let Some(open) = &mut self.open {
            open.set_fill_bytes(bytes);
        }
    }

    /// Adds the converted entry to the open run.
    fn write(&mut self, entry: &Entry<'_>) -> Result<()> {
        let Self { work, origin, open, resolver, .. } = self;
        let mut written_bytes = 0;
        resolver.write(entry, |written| {
            written_bytes = written.user_bytes();
            opened(open, work, origin)?.push(written)
        })?;
        self.separated_bytes += u64_of(entry.user_bytes().saturating_sub(written_bytes));
        self.written_bytes = u64_of(written_bytes);
        Ok(())
    }

    /// Bytes by which separating values has shortened entries.
    pub fn separated_bytes(&self) -> u64 {
        self.separated_bytes
    }

    /// Bytes of the last entry written, as it was written.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Returns the replacement of operands; `None` if they are written as they are.
    ///
    /// Errors: those of reading a value that operands apply to.
    pub fn resolve_operands(&mut self, entry: &Entry<'_>) -> Result<Option<(Kind, Vec<u8>)>> {
        self.resolver.resolve_operands(entry)
    }

    /// Records that the value of this reference entry is pushed next.
    pub fn note_came_back(&mut self, entry: &Entry<'_>) {
        self.resolver.note_came_back(entry);
    }

    /// Reports `bytes` of input as done.
    pub fn report(&self, bytes: u64) {
        self.work.progress.advance(bytes);
    }

    /// Closes the open run to more entries.
    pub fn cut(&mut self) {
        self.is_full = true;
    }

    /// Bytes of the open run's pages.
    pub fn open_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, RunWriter::data_bytes)
    }

    /// Returns the fence before the next run, sharing its prefix with the previous one: there may be many.
    fn fence(&self, low: Option<&[u8]>) -> Fence {
        let key = low.unwrap_or_default();
        self.runs.last().map_or_else(|| key.into(), |last| Fence::beside(&last.low, key))
    }

    /// Finishes the open run; `next` is the first key of the following one.
    fn finish_open(&mut self, next: Option<&[u8]>) -> Result<()> {
        let Some(writer) = self.open.take() else { return Ok(()) };
        let border = next.map(|next| key::separator(writer.last_key(), next));
        let high = border.clone().or_else(|| self.rest.high.clone());
        let low = std::mem::replace(&mut self.rest.low, border);
        let fence = self.fence(low.as_deref());
        let covered_range = self.origin.is_leaf().then_some(KeyBounds { low, high });
        self.runs.push(FencedRun { low: fence, run: writer.finish(covered_range)? });
        Ok(())
    }

    /// Puts the staying run after those written; `next` is the first key that follows.
    fn put(&mut self, staying: Staying, next: Option<&[u8]>) -> Result<()> {
        let Staying { run, first, last } = staying;
        let behind = next.map(|next| key::separator(&last, next));
        // The covered range extends up to the staying run: dropped tombstones may have been after the last
        // key written.
        let high = self.rest.high.replace(first.clone());
        self.take_tombstone()?;
        let low = match &self.open {
            Some(writer) => Some(key::separator(writer.last_key(), &first)),
            None => self.rest.low.clone(),
        };
        self.finish_open(None)?;
        self.rest = KeyBounds { low: behind, high };
        self.is_full = false;
        let low = self.fence(low.as_deref());
        self.runs.push(FencedRun { low, run });
        Ok(())
    }

    /// Writes the first tombstone if there are only tombstones at the start of the leaf, or after the staying
    /// run.
    fn take_tombstone(&mut self) -> Result<()> {
        let Some(key) = self.first_tombstone.take() else { return Ok(()) };
        debug_assert!(self.origin.is_leaf(), "only leaves drop tombstones");
        let tombstone = Entry { key: &key, kind: Kind::Tombstone, value: &[] };
        if self.open.is_none() {
            let Self { work, origin, open, .. } = self;
            return opened(open, work, origin)?.push(&tombstone);
        }
        self.resolver.drops.dropped(&tombstone);
        Ok(())
    }

    /// Finishes the last run; returns all of them, in key order.
    pub fn finish(mut self) -> Result<Vec<FencedRun>> {
        match self.staying.take() {
            Some(staying) => self.put(staying, None)?,
            None => {
                self.take_tombstone()?;
                self.finish_open(None)?;
            }
        }
        debug_assert!(self.open.is_none() && self.first_tombstone.is_none(), "everything was written");
        debug_assert!(self.runs.is_sorted_by(|a, b| a.low < b.low), "runs are in key order");
        self.work.progress.record_drops(self.resolver.drops);
        Ok(self.runs)
    }
}

/// Returns the open run; opens one if there is none.
fn opened<'o>(
    open: &'o mut Option<RunWriter>,
    work: &Work,
    origin: &SequenceOrigin,
) -> Result<&'o mut RunWriter> {
    let SequenceOrigin { newest_seqno, target, layout, .. } = *origin;
    match open {
        Some(open) => Ok(open),
        closed => Ok(closed.insert(new_writer(work, newest_seqno, target)?.with_layout(layout))),
    }
}

/// Creates a writer of the next run.
pub(crate) fn new_writer(work: &Work, newest_seqno: Seqno, target: u64) -> Result<RunWriter> {
    let origin = RunOrigin {
        id: work.run_ids.take(),
        keyspace: work.keyspace,
        keyspace_name: Arc::clone(&work.keyspace_name),
        newest_seqno,
    };
    RunWriter::new(Arc::clone(&work.data), origin, target).map(RunWriter::collected)
}
