//! Separates values from the runs that a tree writes, and moves them back.
//!
//! Large values are separated wherever they are written. Medium values are separated
//! above the lowest levels of the tree, into transient segments. When a reference to one of these reaches the
//! lowest levels, its value replaces it. Each sequence of runs being written has a [`Placer`]; placers share
//! the open segments.
//!
//! If the thresholds of a keyspace are adaptive, writes are counted for the cost of storing large values
//! in segments, or with their keys (decision 0053).
//!
//! **Invariants**
//! - The keys of a segment ascend: a sequence takes an open segment only if all its keys come before.
//! - A value is written before the reference to it is visible to anyone.

use std::collections::BTreeMap;

use testudo_base::{
    Entry, Kind, Result, RunId, Seqno, ValueReference,
    num::{u64_of, usize_of},
    sync::{Arc, Mutex},
};
use testudo_contract::{Height, PlaceValues, SeparatedValues, Work};
use testudo_run::{Access, RunOrigin};
use testudo_values::{
    LargeValues, Placement, Segment, SegmentReader, SegmentSet, SegmentWriter, ValueClass, ValueCosts,
};

use crate::resolve::damaged;

/// Settings of value separation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Classes of values, by the current thresholds.
    pub placement: Placement,
    /// Bytes of values in a full segment.
    pub segment_bytes: u64,
    /// Present if the thresholds are adaptive.
    pub watched: Option<Watched>,
}

/// Measurements of a keyspace with adaptive thresholds.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Placement whose large class is measured.
    pub placement: Placement,
    /// Current location of their values.
    pub large_values: LargeValues,
    /// Cost of that location, and of the alternative.
    pub costs: Arc<ValueCosts>,
}

/// With adaptive thresholds, minimum size in segments of a keyspace with separated values …
const SEGMENTS_MIN: u64 = 2;
/// … and inverse of the minimum fraction of a segment that an update must separate.
const SEGMENT_PARTS: u64 = 16;

/// Whether the values of a keyspace with `keyspace_bytes` are too few for segments. With adaptive thresholds,
/// its tree then has no [`SeparatedTree`](crate::SeparatedTree).
pub fn is_too_small_for_segments(segment_bytes: u64, keyspace_bytes: u64) -> bool {
    debug_assert!(segment_bytes > 0, "a segment holds something");
    keyspace_bytes < SEGMENTS_MIN * segment_bytes
}

impl Settings {
    /// Whether an update has enough values to separate them.
    pub(crate) fn are_many(&self, separated_bytes: u64) -> bool {
        self.watched.is_none() || separated_bytes >= self.segment_bytes / SEGMENT_PARTS
    }

    /// Whether separated values move back to their keys when a whole range is rewritten.
    pub(crate) fn brings_back(&self) -> bool {
        self.watched.as_ref().is_some_and(|watched| {
            watched.large_values == LargeValues::WithKeys && !watched.costs.is_paused()
        })
    }
}

/// The values of a state, and the output of a unit of work.
#[derive(Debug)]
pub(crate) struct Values {
    segments: Arc<SegmentSet>,
    work: Work,
    settings: Settings,
    separated_bytes: u64,
    made: Arc<Made>,
}

/// The segments written by a unit of work.
#[derive(Debug, Default)]
struct Made {
    full: Mutex<Vec<Segment>>,
    /// Those that other sequences of runs may continue.
    open: Mutex<Vec<SegmentWriter>>,
}

impl Values {
    /// Values of a state with these segments, for `work`, which separates about `separated_bytes`.
    pub(crate) fn new(
        segments: SegmentSet,
        work: &Work,
        settings: Settings,
        separated_bytes: u64,
    ) -> Arc<Self> {
        let (segments, work) = (Arc::new(segments), work.clone());
        Arc::new(Self { segments, work, settings, separated_bytes, made: Arc::default() })
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

    /// Returns the segments written by the work. REQUIRES: it has succeeded.
    pub(crate) fn take_made(&self) -> Result<Vec<Segment>> {
        let mut made = std::mem::take(&mut *self.made.full.lock());
        for open in std::mem::take(&mut *self.made.open.lock()) {
            made.push(open.finish()?);
        }
        Ok(made)
    }
}

impl SeparatedValues for Values {
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
            // Values of transient segments move back by themselves.
            reference.is_in_segment() && segment.is_some_and(|segment| !segment.is_transient())
        }))
    }

    fn parts_with_values(&self, tree_bytes: u64) -> u64 {
        if !self.settings.brings_back() {
            return 1;
        }
        let totals = self.segments.totals();
        debug_assert!(totals.dead_bytes <= totals.value_bytes, "garbage is a part of the segments");
        1 + (totals.value_bytes - totals.dead_bytes) / tree_bytes.max(1)
    }

    fn separated_bytes(&self) -> u64 {
        self.separated_bytes
    }

    fn permanent_bytes(&self) -> u64 {
        self.segments.permanent().bytes
    }

    fn returning_bytes(&self) -> u64 {
        let totals = self.segments.totals();
        debug_assert!(
            totals.dead_transient_bytes <= totals.transient_bytes,
            "garbage is a part of the segments"
        );
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
        // An abandoned page update is followed by a merge, which is counted.
        let mut placer = self.placer(Placement::inline(), newest_seqno, true);
        placer.settings.watched = None;
        Box::new(placer)
    }
}

/// Metadata of a new run of values. `newest_seqno`: upper bound of their seqnos.
pub(crate) fn segment_origin(work: &Work, newest_seqno: Seqno) -> RunOrigin {
    RunOrigin {
        id: work.run_ids.take(),
        keyspace: work.keyspace,
        keyspace_name: Arc::clone(&work.keyspace_name),
        newest_seqno,
    }
}

/// Returns the class of an entry's value; `None` if it has none.
#[inline]
pub(crate) fn class_of(placement: Placement, entry: &Entry<'_>) -> Option<ValueClass> {
    (entry.kind == Kind::Value).then(|| placement.class_of(entry.value.len()))
}

/// Places the values of one sequence of runs.
#[derive(Debug)]
struct Placer {
    segments: Arc<SegmentSet>,
    work: Work,
    settings: Settings,
    /// Bytes of large values that were written with their keys, or would have been.
    merged_bytes: u64,
    newest_seqno: Seqno,
    /// Medium values stay with their keys.
    keeps_medium: bool,
    made: Arc<Made>,
    /// Open segments for large and for medium values.
    large: Option<SegmentWriter>,
    medium: Option<SegmentWriter>,
    /// Readers of sorted transient segments.
    readers: BTreeMap<RunId, SegmentReader>,
    /// The last value read from an unsorted one.
    unsorted_value: Vec<u8>,
    /// Buffer reused for each entry.
    reference: Vec<u8>,
}

impl Placer {
    /// Writes a value into a segment, and sets `reference` to it.
    fn separate(&mut self, entry: &Entry<'_>, is_transient: bool) -> Result<()> {
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
        debug_assert!(
            writer.stored_bytes() == 0 || writer.last_key() < entry.key,
            "the keys of a segment ascend"
        );
        debug_assert_eq!(writer.is_transient(), is_transient, "each class has segments of its own");
        self.reference.clear();
        writer.push(entry.key, entry.value)?.encode(&mut self.reference);
        Ok(())
    }

    /// Counts an entry for the cost of the current location of large values.
    #[inline]
    fn count(&mut self, entry: &Entry<'_>) {
        let Some(watched) = &self.settings.watched else { return };
        let value_bytes = match (entry.kind, watched.large_values) {
            (Kind::Value, LargeValues::WithKeys) => entry.value.len(),
            (Kind::Reference, LargeValues::Separated) => match ValueReference::of(entry.kind, entry.value) {
                Ok(Some(reference)) if reference.is_in_segment() => usize_of(u64::from(reference.length)),
                _ => return,
            },
            _ => return,
        };
        if watched.placement.class_of(value_bytes) == ValueClass::Large {
            self.merged_bytes += u64_of(value_bytes);
        }
    }

    /// Returns the value of a reference to a transient segment; `None` for other references.
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
            Some(ValueClass::Large) => false,
            Some(ValueClass::Medium) if !self.keeps_medium => true,
            _ => return Ok(None),
        };
        debug_assert_eq!(entry.kind, Kind::Value, "only values are separated");
        self.separate(entry, is_transient)?;
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
