//! A sorted sequence of runs of any length, kept in segments, so that a change of a few runs writes a few
//! kilobytes to the manifest. A run whose pages were replaced has an object of its own there: its next
//! version is written to that object, and to no other.
//!
//! **Invariants**
//! - Runs are disjoint and in key order: the fence of each is greater than all keys of the run before it.
//! - Segments are immutable; a changed one has a new object id, unless only versions of runs with objects of
//!   their own are new in it.
//! - A run keeps the id of its object in its sequence. In another sequence it gets another one.
//! - No segment is empty, and none has more than [`SEGMENT_RUNS_MAX`] runs.
//! - A sequence derived from another one has no compaction buffer, unless only its beginning was removed.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use testudo_base::{Error, ErrorKind, ObjectId, Result, Seqno, num::u64_of};
use testudo_run::Run;
use testudo_sequence::{Bounds, CompactionBuffer, Fence, FencedRun, RunSlice, Source};

/// Maximum number of runs in a segment.
pub(crate) const SEGMENT_RUNS_MAX: usize = 64;
/// A changed segment with fewer runs is joined with a neighbor.
const SEGMENT_RUNS_MIN: usize = 16;

/// A run of a component.
#[derive(Clone, Debug)]
pub(crate) struct LevelRun {
    pub(crate) fenced: FencedRun,
    /// Approximate bytes of its entries that count.
    pub(crate) bytes: u64,
    /// Keys for which it has all entries of its age or older: older runs do not count for them.
    pub(crate) cover: Option<Bounds>,
    /// Object of its reference, if that is not in the object of its segment. Assigned by [`Component`].
    pub(crate) object: Option<ObjectId>,
}

/// A range of keys with both bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) low: Fence,
    /// Exclusive upper bound.
    pub(crate) high: Fence,
}

impl Extent {
    pub(crate) fn to_bounds(&self) -> Bounds {
        Bounds { low: self.low.as_low(), high: Some(self.high.clone()) }
    }

    /// Whether it overlaps the bounds.
    pub(crate) fn meets(&self, bounds: &Bounds) -> bool {
        bounds.low.as_ref().is_none_or(|low| *low < self.high)
            && bounds.high.as_ref().is_none_or(|high| self.low < *high)
    }
}

impl LevelRun {
    pub(crate) fn newest_seqno(&self) -> Seqno {
        self.fenced.run.reference().newest_seqno
    }

    pub(crate) fn run(&self) -> &Arc<Run> {
        &self.fenced.run
    }

    /// Returns the range of its keys that count. Reads only if those are too long to be in its reference.
    pub(crate) fn extent(&self) -> Result<Extent> {
        let (first, mut last) = self.fenced.run.exact_ends()?;
        last.push(0);
        let low = if self.fenced.is_clipped() { self.fenced.low.clone() } else { first.into() };
        Ok(Extent { low, high: last.into() })
    }

    /// Returns a slice of everything in it that counts.
    pub(crate) fn slice(&self) -> RunSlice {
        RunSlice { source: Source::Fenced(self.fenced.clone(), None), bounds: Bounds::default() }
    }

    /// Returns its part from `low` on; `None` if that is certainly empty. Reads an index page.
    pub(crate) fn clipped_at(&self, low: &Fence) -> Result<Option<Self>> {
        if self.fenced.run.reference().keys.end_before(&low.head()) {
            return Ok(None);
        }
        let fenced = FencedRun { low: low.clone(), run: Arc::clone(&self.fenced.run) };
        let rest = Self { fenced, bytes: 0, cover: None, object: None };
        let bytes = rest.slice().bytes_within(&Bounds::default())?;
        Ok(Some(Self { bytes, cover: self.cover.clone(), ..rest }))
    }

    /// Whether its stored reference is that of `other`.
    pub(crate) fn is_stored_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.run(), other.run()) && self.bytes == other.bytes
    }

    /// Whether `new` can take its place without a change of their segment's object.
    fn can_become(&self, new: &Self) -> bool {
        let is_apart = self.object.is_some() || self.is_stored_as(new);
        is_apart && self.object == new.object && self.fenced.low == new.fenced.low && self.cover == new.cover
    }
}

/// Some of the runs of a component, stored as one object of the manifest.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: ObjectId,
    pub(crate) runs: Vec<LevelRun>,
}

/// A sorted sequence of runs, with its compaction buffer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Component {
    segments: Vec<Arc<Segment>>,
    /// Index of the first run of each segment.
    firsts: Vec<usize>,
    count: usize,
    bytes: u64,
    largest_bytes: u64,
    /// Value entries of its runs, and bytes of keys and values, whether they count or not.
    entries: u64,
    user_bytes: u64,
    buffer: Option<Arc<CompactionBuffer>>,
}

impl Component {
    /// Creates a component without a compaction buffer.
    pub(crate) fn of_segments(segments: Vec<Arc<Segment>>) -> Self {
        debug_assert!(
            segments.iter().all(|segment| (1..=SEGMENT_RUNS_MAX).contains(&segment.runs.len())),
            "no segment is empty or too large"
        );
        debug_assert!(
            segments.is_sorted_by(|a, b| {
                a.runs.last().map(|run| &run.fenced.low) < b.runs.first().map(|run| &run.fenced.low)
            }),
            "segments are in key order"
        );
        let mut firsts = Vec::with_capacity(segments.len());
        let (mut count, mut bytes, mut largest_bytes) = (0, 0, 0);
        let (mut entries, mut user_bytes) = (0, 0);
        for segment in &segments {
            firsts.push(count);
            count += segment.runs.len();
            // A tombstone of the empty key has zero bytes, and the bytes of a part of a run are an estimate.
            // Whether the component is empty must not depend on either.
            for run_bytes in segment.runs.iter().map(|level_run| level_run.bytes.max(1)) {
                bytes += run_bytes;
                largest_bytes = largest_bytes.max(run_bytes);
            }
            for reference in segment.runs.iter().map(|level_run| level_run.run().reference()) {
                entries += reference.values();
                user_bytes += reference.user_bytes;
            }
        }
        debug_assert_eq!(firsts.len(), segments.len(), "each segment has its first run");
        debug_assert!(bytes > 0 || count == 0, "only an empty component has no bytes");
        Self { segments, firsts, count, bytes, largest_bytes, entries, user_bytes, buffer: None }
    }

    /// Returns its compaction buffer.
    #[inline]
    pub(crate) fn buffer(&self) -> Option<&Arc<CompactionBuffer>> {
        self.buffer.as_ref()
    }

    /// Replaces its compaction buffer. REQUIRES: the law of the buffer holds for exactly this sequence.
    pub(crate) fn set_buffer(&mut self, buffer: Option<Arc<CompactionBuffer>>) {
        self.buffer = buffer;
    }

    pub(crate) fn segments(&self) -> &[Arc<Segment>] {
        &self.segments
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether it is identical, not just one with equal runs.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let pairs = || self.segments.iter().zip(&other.segments);
        self.segments.len() == other.segments.len() && pairs().all(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// Number of runs.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Approximate bytes of entries that count; 0 only if it is empty.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Approximate bytes of entries that count in its largest run.
    pub(crate) fn largest_bytes(&self) -> u64 {
        self.largest_bytes
    }

    /// Mean bytes of an entry's key and value; 0 if it has none.
    pub(crate) fn mean_entry_bytes(&self) -> u64 {
        self.user_bytes.checked_div(self.entries).unwrap_or(0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &LevelRun> {
        self.segments.iter().flat_map(|segment| &segment.runs)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&LevelRun> {
        let segment = self.firsts.partition_point(|first| *first <= index).checked_sub(1)?;
        self.segments[segment].runs.get(index - self.firsts[segment])
    }

    pub(crate) fn range(&self, range: Range<usize>) -> impl Iterator<Item = &LevelRun> {
        debug_assert!(range.end <= self.count, "runs of the component");
        range.filter_map(|index| self.get(index))
    }

    /// Number of leading runs for which `is_before` holds.
    fn partition_point(&self, is_before: impl Fn(&LevelRun) -> bool) -> usize {
        let segment = self.segments.partition_point(|segment| is_before(&segment.runs[0]));
        let Some(segment) = segment.checked_sub(1) else { return 0 };
        self.firsts[segment] + self.segments[segment].runs.partition_point(&is_before)
    }

    /// Returns the run whose range contains `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<&FencedRun> {
        let is_before = |level_run: &LevelRun| level_run.fenced.low.is_at_most(key);
        let segment = self.segments.partition_point(|segment| is_before(&segment.runs[0])).checked_sub(1)?;
        let runs = &self.segments[segment].runs;
        let run = runs.partition_point(is_before).checked_sub(1)?;
        Some(&runs[run].fenced)
    }

    /// Number of runs whose fence is not greater than `key`.
    pub(crate) fn runs_up_to(&self, key: &[u8]) -> usize {
        self.partition_point(|level_run| level_run.fenced.low.is_at_most(key))
    }

    /// Number of runs whose fence is less than `key`.
    pub(crate) fn runs_below(&self, key: &[u8]) -> usize {
        self.partition_point(|level_run| level_run.fenced.low.is_less_than(key))
    }

    /// Returns the runs that may hold keys inside `bounds`.
    pub(crate) fn within(&self, bounds: &Bounds) -> Range<usize> {
        let from = bounds.low.as_ref().map_or(0, |low| {
            let at = self.partition_point(|level_run| level_run.fenced.low <= *low).saturating_sub(1);
            let is_behind = |level_run: &LevelRun| level_run.run().reference().keys.end_before(&low.head());
            at + usize::from(self.get(at).is_some_and(is_behind))
        });
        let to = bounds.high.as_ref().map_or(self.count, |high| {
            let begins_below = |level_run: &LevelRun| {
                level_run.fenced.low < *high
                    && !level_run.run().reference().keys.begin_at_or_after(&high.head())
            };
            self.partition_point(begins_below)
        });
        debug_assert!(to <= self.count, "runs of the component");
        from.min(to)..to
    }

    /// Returns its slices inside `bounds`.
    pub(crate) fn slices(&self, bounds: &Bounds) -> Vec<RunSlice> {
        self.within(bounds).filter_map(|at| self.slice_at(at)?.clipped(bounds)).collect()
    }

    /// Returns a slice of everything that counts in a run.
    fn slice_at(&self, at: usize) -> Option<RunSlice> {
        let next = self.get(at + 1).map(|next| next.fenced.low.clone());
        let source = Source::Fenced(self.get(at)?.fenced.clone(), next);
        Some(RunSlice { source, bounds: Bounds::default() })
    }

    /// Approximate bytes inside `bounds`. Reads index pages.
    pub(crate) fn bytes_within(&self, bounds: &Bounds) -> Result<u64> {
        let mut bytes = 0;
        for at in self.within(bounds) {
            let Some(level_run) = self.get(at) else { continue };
            bytes += match self.slice_at(at).and_then(|slice| slice.clipped(bounds)) {
                Some(slice) if slice.bounds == Bounds::default() => level_run.bytes,
                Some(slice) => slice.bytes_within(bounds)?,
                None => 0,
            };
        }
        Ok(bytes)
    }

    /// Upper bound on the bytes before `border` in the block that it cuts. [`Self::bytes_within`] ignores
    /// these.
    pub(crate) fn cut_block_bytes(&self, border: &Fence) -> Result<u64> {
        let last = self.runs_below(&border.bytes()).checked_sub(1).and_then(|at| self.get(at));
        let cut = last.filter(|last| !last.run().reference().keys.end_before(&border.head()));
        let Some(cut) = cut else { return Ok(0) };
        let before = Bounds { low: None, high: Some(border.clone()) };
        let left = cut.bytes.saturating_sub(cut.slice().bytes_within(&before)?);
        Ok(left.min(u64_of(cut.run().block_bytes_for(&border.bytes())?)))
    }

    /// Returns the component with the runs in `range` replaced by `runs`. Changed segments get ids from
    /// `next_object` on. Returns `Corruption` if its fences do not ascend, which is possible with damaged
    /// objects, even if each object is valid by itself.
    pub(crate) fn splice(
        &self,
        range: Range<usize>,
        mut runs: Vec<LevelRun>,
        next_object: &mut u64,
    ) -> Result<Self> {
        debug_assert!(range.start <= range.end && range.end <= self.count, "runs of the component");
        if range.is_empty() && runs.is_empty() {
            return Ok(self.clone());
        }
        let are_versions = || self.range(range.clone()).zip(&runs).all(|(old, new)| old.can_become(new));
        if range.len() == runs.len() && are_versions() {
            return Ok(self.with_versions(range, runs));
        }
        let mut objects: BTreeSet<ObjectId> =
            self.range(range.clone()).filter_map(|level_run| level_run.object).collect();
        for level_run in &mut runs {
            level_run.object = level_run.object.filter(|object| objects.remove(object));
        }
        let count = self.count - range.len() + runs.len();
        let segment_of = |run: usize| self.firsts.partition_point(|first| *first <= run).saturating_sub(1);
        let mut from = segment_of(range.start);
        let mut to = if range.is_empty() { from } else { segment_of(range.end - 1) };
        to = (to + 1).min(self.segments.len());
        let runs_in = |from: usize, to: usize| -> usize {
            self.segments[from..to].iter().map(|segment| segment.runs.len()).sum()
        };
        let left = |from: usize, to: usize| runs_in(from, to) - range.len() + runs.len();
        while left(from, to) < SEGMENT_RUNS_MIN && to - from < self.segments.len() {
            if to < self.segments.len() {
                to += 1;
            } else {
                from -= 1;
            }
        }
        let first = self.firsts.get(from).copied().unwrap_or_default();
        let old = || self.segments[from..to].iter().flat_map(|segment| &segment.runs);
        let mut changed: Vec<LevelRun> = old().take(range.start - first).cloned().collect();
        changed.extend(runs);
        changed.extend(old().skip(range.end - first).cloned());
        let mut segments = self.segments[..from].to_vec();
        let before = segments.last().and_then(|segment| segment.runs.last());
        let behind = self.segments.get(to).and_then(|segment| segment.runs.first());
        if !before.into_iter().chain(&changed).chain(behind).is_sorted_by(|a, b| a.fenced.low < b.fenced.low)
        {
            let message = "the fences of a level do not ascend around rewritten runs";
            return Err(Error::new(ErrorKind::Corruption, message));
        }
        segments.extend(cut_into_segments(changed, next_object));
        segments.extend_from_slice(&self.segments[to..]);
        let spliced = Self::of_segments(segments);
        debug_assert_eq!(spliced.count, count, "no other run is lost");
        Ok(spliced)
    }

    /// Returns the component with other versions of the runs in `range`. Its segments keep their ids.
    fn with_versions(&self, range: Range<usize>, runs: Vec<LevelRun>) -> Self {
        let mut segments = self.segments.clone();
        let mut runs = runs.into_iter();
        for (segment, first) in segments.iter_mut().zip(&self.firsts) {
            let at = |run: usize| run.clamp(*first, first + segment.runs.len()) - first;
            let places = at(range.start)..at(range.end);
            let new: Vec<LevelRun> = runs.by_ref().take(places.len()).collect();
            if !segment.runs[places.clone()].iter().zip(&new).all(|(old, new)| old.is_stored_as(new)) {
                let mut runs = segment.runs.clone();
                runs.splice(places, new);
                *segment = Arc::new(Segment { id: segment.id, runs });
            }
        }
        debug_assert!(runs.next().is_none(), "each run has its place");
        Self::of_segments(segments)
    }

    /// Creates a component of these runs.
    pub(crate) fn of_runs(runs: Vec<LevelRun>, next_object: &mut u64) -> Result<Self> {
        Self::default().splice(0..0, runs, next_object)
    }

    /// Returns its part from `low` on; nothing if `low` is `None`. Reads index pages.
    pub(crate) fn from(&self, low: Option<&Fence>, next_object: &mut u64) -> Result<Self> {
        let Some(low) = low else { return Ok(Self::default()) };
        let behind = self.partition_point(|level_run| level_run.fenced.low <= *low);
        let Some(last) = behind.checked_sub(1).and_then(|last| self.get(last)) else {
            return Ok(self.clone());
        };
        if behind == 1 && last.fenced.low == *low {
            return Ok(self.clone());
        }
        let rest: Vec<LevelRun> = last.clipped_at(low)?.into_iter().collect();
        let buffer = self.buffer.as_ref().and_then(|buffer| buffer.from(low, next_object));
        Ok(Self { buffer, ..self.splice(0..behind, rest, next_object)? })
    }
}

/// Divides runs into segments of about equal size. A run with a map gets an object, if it has none.
fn cut_into_segments(mut runs: Vec<LevelRun>, next_object: &mut u64) -> Vec<Arc<Segment>> {
    let has_map = |level_run: &LevelRun| level_run.run().reference().map().is_some();
    for level_run in runs.iter_mut().filter(|level_run| level_run.object.is_none() && has_map(level_run)) {
        level_run.object = Some(ObjectId(*next_object));
        *next_object += 1;
    }
    let fragments = runs.len().div_ceil(SEGMENT_RUNS_MAX);
    let count = runs.len();
    let mut runs = runs.into_iter();
    let segment = |fragment: usize| {
        let length = count * (fragment + 1) / fragments - count * fragment / fragments;
        let id = ObjectId(*next_object);
        *next_object += 1;
        Arc::new(Segment { id, runs: runs.by_ref().take(length).collect() })
    };
    (0..fragments).map(segment).collect()
}
