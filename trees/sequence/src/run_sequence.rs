//! The runs of one destination while they are written, and what the covered ranges of leaves say.
//!
//! **Invariants**
//! - The covered ranges of a leaf's runs follow each other without gaps, from end to end of the leaf.
//! - Of entries that end here, and of those that become another one, the work's progress is told at the end.
//! - A run that stays keeps its bytes and its covered range; others are put on either side of it.

use testudo_base::{DropSink, Entry, Kind, Result, Seqno, key, num::u64_of, planted, sync::Arc};
use testudo_contract::{Height, Work};
use testudo_run::{KeyBounds, Run, RunLayout, RunOrigin, RunWriter};

use crate::{Fence, FencedRun, resolver::Resolver};

/// What the runs of a destination have in common.
#[derive(Clone, Copy, Debug)]
pub struct SequenceOrigin {
    /// How new they are.
    pub newest_seqno: Seqno,
    /// About how many bytes each of them will have.
    pub target: u64,
    /// How high above the bottom they lie.
    pub height: Height,
    /// Tombstones stay, although nothing older lies below.
    pub keeps_tombstones: bool,
    /// How their pages are laid out.
    pub layout: RunLayout,
}

impl SequenceOrigin {
    /// They are leaves: nothing older lies below.
    fn is_leaf(&self) -> bool {
        self.height == Height::Bottom
    }
}

/// What has become of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It was written.
    Written,
    /// It was written as the first one behind the run that stays.
    BehindStaying,
    /// It is a tombstone that ends here.
    Ended,
}

/// The runs of one destination in the making. A full run is finished when the next one begins, because only
/// then it is known how far it covers keys.
pub struct RunSequence<'w> {
    work: &'w Work,
    origin: SequenceOrigin,
    /// The keys from the start of the open run to the end of the destination.
    rest: KeyBounds,
    open: Option<RunWriter>,
    /// The open run gets no more entries.
    is_full: bool,
    runs: Vec<FencedRun>,
    /// The run that the leaf held, if it stays: it is put in its place among the others.
    staying: Option<Staying>,
    /// The first tombstone of a leaf, or of what lies on one side of the run that stays, for as long as
    /// nothing else was written there.
    first_tombstone: Option<Vec<u8>>,
    resolver: Resolver<'w>,
    /// Bytes by which what was pushed is more than what was written in its place.
    outlying_bytes: u64,
    /// Bytes of the entry that was written last.
    written_bytes: u64,
}

/// A run that stays, and its first and last key.
struct Staying {
    run: Arc<Run>,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl<'w> RunSequence<'w> {
    /// For the keys of `rest`, as far as they are the tree's. `staying`: a run that the leaf held, and keeps.
    pub fn new(
        work: &'w Work,
        origin: SequenceOrigin,
        rest: KeyBounds,
        staying: Option<Arc<Run>>,
    ) -> Result<Self> {
        debug_assert!(origin.is_leaf() || staying.is_none(), "only leaves have runs that stay");
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
            outlying_bytes: 0,
            written_bytes: 0,
        })
    }

    /// Adds an entry. REQUIRES: its key is greater than those before.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<Pushed> {
        let staying = self.staying.take_if(|staying| entry.key > staying.first.as_slice());
        let is_behind_staying = staying.is_some();
        if let Some(staying) = staying {
            debug_assert!(entry.key > staying.last.as_slice(), "nothing flows in between its keys");
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

    /// What was pushed last is warm ([`testudo_base::Cursor::is_warm`]). REQUIRES: it was written.
    #[inline]
    pub fn note_warm(&mut self) {
        if let Some(open) = &mut self.open {
            open.note_warm();
        }
    }

    /// Adds to the open run what is to stand there for an entry.
    fn write(&mut self, entry: &Entry<'_>) -> Result<()> {
        let Self { work, origin, open, resolver, .. } = self;
        let mut written_bytes = 0;
        resolver.write(entry, |written| {
            written_bytes = written.user_bytes();
            opened(open, work, origin)?.push(written)
        })?;
        self.outlying_bytes += u64_of(entry.user_bytes().saturating_sub(written_bytes));
        self.written_bytes = u64_of(written_bytes);
        Ok(())
    }

    /// Bytes by which values that were put outside the runs have made entries shorter.
    pub fn outlying_bytes(&self) -> u64 {
        self.outlying_bytes
    }

    /// Bytes of the entry that was written last, as it was written.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// What is written in the place of operands, if it is not they.
    ///
    /// Errors: those of reading a value that operands change.
    pub fn resolve_operands(&mut self, entry: &Entry<'_>) -> Result<Option<(Kind, Vec<u8>)>> {
        self.resolver.resolve_operands(entry)
    }

    /// The value of this entry, which is a reference, is pushed next.
    pub fn note_came_back(&mut self, entry: &Entry<'_>) {
        self.resolver.note_came_back(entry);
    }

    /// Bytes that flow in were passed.
    pub fn report(&self, bytes: u64) {
        self.work.progress.advance(bytes);
    }

    /// The open run gets no more entries.
    pub fn cut(&mut self) {
        self.is_full = true;
    }

    /// Bytes of the open run's pages.
    pub fn open_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, RunWriter::data_bytes)
    }

    /// The fence before the next run: many can be written before anybody shares what they begin with.
    fn fence(&self, low: Option<&[u8]>) -> Fence {
        let key = low.unwrap_or_default();
        self.runs.last().map_or_else(|| key.into(), |last| Fence::beside(&last.low, key))
    }

    /// Finishes the open run; `next` is the first key of the one that follows.
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

    /// Puts the run that stays behind what was written; `next` is the first key of what follows.
    fn put(&mut self, staying: Staying, next: Option<&[u8]>) -> Result<()> {
        let Staying { run, first, last } = staying;
        let behind = next.map(|next| key::separator(&last, next));
        // The covered range reaches up to the run that stays: tombstones that have ended may lie behind what
        // was written.
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

    /// If all that lies at the start of the leaf, or behind the run that stays, are tombstones: writes the
    /// first of them.
    fn take_tombstone(&mut self) -> Result<()> {
        let Some(key) = self.first_tombstone.take() else { return Ok(()) };
        let tombstone = Entry { key: &key, kind: Kind::Tombstone, value: &[] };
        if self.open.is_none() {
            let Self { work, origin, open, .. } = self;
            return opened(open, work, origin)?.push(&tombstone);
        }
        self.resolver.drops.dropped(&tombstone);
        Ok(())
    }

    /// Ends the last run; all of them, in key order.
    pub fn finish(mut self) -> Result<Vec<FencedRun>> {
        match self.staying.take() {
            Some(staying) => self.put(staying, None)?,
            None => {
                self.take_tombstone()?;
                self.finish_open(None)?;
            }
        }
        self.work.progress.record_drops(self.resolver.drops);
        Ok(self.runs)
    }
}

/// The open run, which begins here if there is none.
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

/// A writer of the next run.
pub(crate) fn new_writer(work: &Work, newest_seqno: Seqno, target: u64) -> Result<RunWriter> {
    let origin = RunOrigin {
        id: work.run_ids.take(),
        keyspace: work.keyspace,
        keyspace_name: Arc::clone(&work.keyspace_name),
        newest_seqno,
    };
    RunWriter::new(Arc::clone(&work.data), origin, target)
}
