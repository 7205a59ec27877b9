//! Puts values outside the runs of the tree while these are written, and back into them.
//!
//! Values of large pairs go out wherever they are written. Those of medium pairs go out above the lowest
//! levels of the tree, into transient segments; where a reference to one of these comes to there, its value
//! takes its place. Each sequence of runs that is written has a [`Placer`]; they share the segments that are
//! being written.
//!
//! Where the thresholds of a keyspace move, what is written is counted for what it costs to have values of
//! large pairs outside, or beside their keys (decision 0053).
//!
//! **Invariants**
//! - The keys of a segment ascend: a sequence takes an open segment only if all keys of that come before.
//! - A value is written before the reference to it is shown to anybody.

use std::collections::BTreeMap;

use testudo_base::{
    Entry, Kind, Result, RunId, Seqno, ValueReference,
    num::{u64_of, usize_of},
    sync::{Arc, Mutex},
};
use testudo_contract::{Height, OutlyingValues, PlaceValues, Work};
use testudo_run::{Access, RunOrigin};
use testudo_values::{
    LargeValues, PairClass, Placement, Segment, SegmentReader, SegmentSet, SegmentWriter, ValueCosts,
};

use crate::resolve::damaged;

/// How values are separated.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which values, where the thresholds are at present.
    pub placement: Placement,
    /// Bytes of values of a full segment.
    pub segment_bytes: u64,
    /// If the thresholds move.
    pub watched: Option<Watched>,
}

/// What is counted of a keyspace whose thresholds move.
#[derive(Clone, Debug)]
pub struct Watched {
    /// By which pairs count as large.
    pub placement: Placement,
    /// Where their values are.
    pub large_values: LargeValues,
    /// What that costs, and what the other way would.
    pub costs: Arc<ValueCosts>,
}

/// By thresholds that move, nothing goes outside in keyspaces of less than so many segments …
const SEGMENTS_MIN: u64 = 2;
/// … nor of updates of which less than this part of a segment would.
const SEGMENT_PARTS: u64 = 16;

/// Whether values of a keyspace of so many bytes are not worth segments of their own. Where thresholds move,
/// its tree does without a [`SeparatedTree`](crate::SeparatedTree) then.
pub fn is_too_small_for_segments(segment_bytes: u64, keyspace_bytes: u64) -> bool {
    keyspace_bytes < SEGMENTS_MIN * segment_bytes
}

impl Settings {
    /// Whether so many bytes of values that come in together are.
    pub(crate) fn are_many(&self, outlying_bytes: u64) -> bool {
        self.watched.is_none() || outlying_bytes >= self.segment_bytes / SEGMENT_PARTS
    }

    /// Whether values that lie outside come back to their keys where all of a range is written anew.
    pub(crate) fn brings_back(&self) -> bool {
        self.watched.as_ref().is_some_and(|watched| {
            watched.large_values == LargeValues::WithKeys && !watched.costs.is_paused()
        })
    }
}

/// The values of a state, and where those go that a piece of work writes.
#[derive(Debug)]
pub(crate) struct Values {
    segments: Arc<SegmentSet>,
    work: Work,
    settings: Settings,
    outlying_bytes: u64,
    made: Arc<Made>,
}

/// The segments that a piece of work writes.
#[derive(Debug, Default)]
struct Made {
    full: Mutex<Vec<Segment>>,
    /// Those to which other sequences of runs may go on writing.
    open: Mutex<Vec<SegmentWriter>>,
}

impl Values {
    /// Of a state with these segments, for `work`, which takes about `outlying_bytes` outside.
    pub(crate) fn new(
        segments: SegmentSet,
        work: &Work,
        settings: Settings,
        outlying_bytes: u64,
    ) -> Arc<Self> {
        let (segments, work) = (Arc::new(segments), work.clone());
        Arc::new(Self { segments, work, settings, outlying_bytes, made: Arc::default() })
    }

    fn placer(&self, placement: Placement, newest_seqno: Seqno, keeps_medium: bool) -> Placer {
        Placer {
            segments: Arc::clone(&self.segments),
            work: self.work.clone(),
            settings: Settings { placement, ..self.settings.clone() },
            merged_bytes: 0,
            newest_seqno,
            keeps_medium,
            made: Arc::clone(&self.made),
            large: None,
            medium: None,
            readers: BTreeMap::new(),
            unsorted_value: Vec::new(),
            reference: Vec::new(),
        }
    }

    /// The segments that the work has written. REQUIRES: it has ended well.
    pub(crate) fn take_made(&self) -> Result<Vec<Segment>> {
        let mut made = std::mem::take(&mut *self.made.full.lock());
        for open in std::mem::take(&mut *self.made.open.lock()) {
            made.push(open.finish()?);
        }
        Ok(made)
    }
}

impl OutlyingValues for Values {
    fn read(&self, key: &[u8], reference: &ValueReference) -> Result<Vec<u8>> {
        let value = self.segments.read(key, reference, Access::Blocking)?;
        Ok(value.expect("a blocking read waits for its page").0)
    }

    fn read_together(&self, wanted: &[(&[u8], ValueReference)]) -> Result<Vec<Vec<u8>>> {
        self.segments.read_together(wanted).map(|(values, _)| values)
    }

    fn comes_back(&self, entry: &Entry<'_>) -> Result<Option<ValueReference>> {
        if entry.kind != Kind::Reference || !self.settings.brings_back() {
            return Ok(None);
        }
        let reference = ValueReference::of(entry.kind, entry.value).map_err(damaged)?;
        Ok(reference.filter(|reference| {
            let segment = self.segments.get(reference.segment);
            // Those of transient segments come back by themselves.
            reference.pieces().is_none() && segment.is_some_and(|segment| !segment.is_transient())
        }))
    }

    fn parts_with_values(&self, tree_bytes: u64) -> u64 {
        if !self.settings.brings_back() {
            return 1;
        }
        let totals = self.segments.totals();
        1 + (totals.value_bytes - totals.dead_bytes) / tree_bytes.max(1)
    }

    fn outlying_bytes(&self) -> u64 {
        self.outlying_bytes
    }

    fn staying_bytes(&self) -> u64 {
        self.segments.staying().bytes
    }

    fn returning_bytes(&self) -> u64 {
        let totals = self.segments.totals();
        totals.transient_bytes - totals.dead_transient_bytes
    }

    fn sizes_levels_by_pairs(&self) -> bool {
        self.settings.placement.sizes_of_pairs()
    }

    fn placing(&self, newest_seqno: Seqno, height: Height) -> Box<dyn PlaceValues> {
        let keeps_medium = match height {
            Height::Bottom => true,
            Height::Next => self.settings.placement.in_place_levels() > 1,
            Height::Upper => false,
        };
        Box::new(self.placer(self.settings.placement, newest_seqno, keeps_medium))
    }

    fn placing_in_pages(&self, newest_seqno: Seqno) -> Box<dyn PlaceValues> {
        // What comes to nothing is merged and counted after all.
        let mut placer = self.placer(Placement::inline(), newest_seqno, true);
        placer.settings.watched = None;
        Box::new(placer)
    }
}

/// What a new run of values says of itself. `newest_seqno`: none of its values is newer.
pub(crate) fn segment_origin(work: &Work, newest_seqno: Seqno) -> RunOrigin {
    RunOrigin {
        id: work.run_ids.take(),
        keyspace: work.keyspace,
        keyspace_name: Arc::clone(&work.keyspace_name),
        newest_seqno,
    }
}

/// Which class the pair of an entry is of; `None` if it has no value.
#[inline]
pub(crate) fn class_of(placement: Placement, entry: &Entry<'_>) -> Option<PairClass> {
    (entry.kind == Kind::Value).then(|| placement.class_of(entry.key.len(), entry.value.len()))
}

/// Puts the values of one sequence of runs where they belong.
#[derive(Debug)]
struct Placer {
    segments: Arc<SegmentSet>,
    work: Work,
    settings: Settings,
    /// Bytes of values of large pairs that it has written with their keys, or would have.
    merged_bytes: u64,
    newest_seqno: Seqno,
    /// Values of medium pairs are with their keys.
    keeps_medium: bool,
    made: Arc<Made>,
    /// Where its values of large pairs go, and those of medium ones.
    large: Option<SegmentWriter>,
    medium: Option<SegmentWriter>,
    /// Of sorted transient segments.
    readers: BTreeMap<RunId, SegmentReader>,
    /// The last value of one that is not sorted.
    unsorted_value: Vec<u8>,
    /// Kept for the next entry.
    reference: Vec<u8>,
}

impl Placer {
    /// Writes a value into a segment; the reference to it is in `reference` then.
    fn put_outside(&mut self, entry: &Entry<'_>, is_transient: bool) -> Result<()> {
        let open = if is_transient { &mut self.medium } else { &mut self.large };
        if let Some(full) = open.take_if(|open| open.stored_bytes() >= self.settings.segment_bytes) {
            let full = full.finish()?;
            self.made.full.lock().push(full);
        }
        let writer = match open {
            Some(open) => open,
            closed => {
                let of_other = |open: &SegmentWriter| {
                    open.is_transient() == is_transient
                        && open.newest_seqno() == self.newest_seqno
                        && open.last_key() < entry.key
                };
                let mut all = self.made.open.lock();
                let found = all.iter().position(of_other);
                let found = found.map(|at| all.swap_remove(at));
                drop(all);
                closed.insert(match found {
                    Some(open) => open,
                    None => SegmentWriter::new(
                        Arc::clone(&self.work.data),
                        segment_origin(&self.work, self.newest_seqno),
                        is_transient,
                        self.settings.segment_bytes,
                    )?,
                })
            }
        };
        self.reference.clear();
        writer.push(entry.key, entry.value)?.encode(&mut self.reference);
        Ok(())
    }

    /// Counts an entry for what it costs to have values of large pairs where they are.
    #[inline]
    fn count(&mut self, entry: &Entry<'_>) {
        let Some(watched) = &self.settings.watched else { return };
        let value_bytes = match (entry.kind, watched.large_values) {
            (Kind::Value, LargeValues::WithKeys) => entry.value.len(),
            (Kind::Reference, LargeValues::Outside) => match ValueReference::of(entry.kind, entry.value) {
                Ok(Some(reference)) if reference.pieces().is_none() => usize_of(u64::from(reference.length)),
                _ => return,
            },
            _ => return,
        };
        if watched.placement.class_of(entry.key.len(), value_bytes) == PairClass::Large {
            self.merged_bytes += u64_of(value_bytes);
        }
    }

    /// The value of a reference, if it is one to a transient segment.
    fn read_transient(&mut self, entry: &Entry<'_>) -> Result<Option<&[u8]>> {
        let (reference, _) = ValueReference::split(entry.value).map_err(damaged)?;
        let Some(segment) = self.segments.get(reference.segment).filter(|segment| segment.is_transient())
        else {
            return Ok(None);
        };
        if segment.is_logged() {
            let value = self.segments.read(entry.key, &reference, Access::Blocking)?;
            self.unsorted_value = value.expect("a blocking read waits for its page").0;
            return Ok(Some(&self.unsorted_value));
        }
        let new_reader = || SegmentReader::new(Arc::clone(segment));
        let reader = self.readers.entry(reference.segment).or_insert_with(new_reader);
        reader.read(entry.key, &reference).map(Some)
    }
}

impl PlaceValues for Placer {
    fn place(&mut self, entry: &Entry<'_>) -> Result<Option<(Kind, &[u8])>> {
        self.count(entry);
        if entry.kind == Kind::Reference && self.keeps_medium {
            return Ok(self.read_transient(entry)?.map(|value| (Kind::Value, value)));
        }
        let is_transient = match class_of(self.settings.placement, entry) {
            Some(PairClass::Large) => false,
            Some(PairClass::Medium) if !self.keeps_medium => true,
            _ => return Ok(None),
        };
        self.put_outside(entry, is_transient)?;
        Ok(Some((Kind::Reference, &self.reference)))
    }
}

impl Drop for Placer {
    fn drop(&mut self) {
        if let Some(watched) = &self.settings.watched {
            watched.costs.note_merged(self.merged_bytes);
        }
        self.made.open.lock().extend(self.large.take().into_iter().chain(self.medium.take()));
    }
}
