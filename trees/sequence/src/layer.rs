//! Lazy streams of entries: slices of sources, newest layer first, that together make up the data flowing
//! through a tree.
//!
//! **Invariants**
//! - Slices of one layer are disjoint and in key order; layers are ordered newest first.
//! - Creating, clipping and moving a stream reads no entries. Sizes are estimates from indexes, and those of
//!   entries from the first updates.

use std::sync::Arc;

use testudo_base::{
    Cursor, Kind, Result, Seqno, key,
    num::{low64, u64_of},
};
use testudo_contract::Updates;
use testudo_run::{BoundedCursor, MAX_END_BYTES, MergeCursor, ReadAhead, Run, RunCursor, read_small_runs};

use crate::{
    Bounds, Fence, FencedRun,
    chained_cursor::{ChainCursor, Parts},
};

/// Read size of compactions.
const COMPACTION_READ_BYTES: usize = 256 << 10;

/// Number of sampled updates from which the entry size of a slice is estimated …
const SAMPLED_VALUES: u64 = 64;
/// … and maximum number of entries scanned for them.
const LOOKED_AT: usize = 4096;

/// Where the entries of a slice come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Updates coming into the tree.
    Updates(Arc<dyn Updates>),
    /// A whole run.
    Run(Arc<Run>),
    /// A run of a sequence from its fence on, and the fence of the next run.
    Fenced(FencedRun, Option<Fence>),
}

impl Source {
    /// Upper bound on the seqno of its newest operation.
    pub fn newest_seqno(&self) -> Seqno {
        match self {
            Self::Updates(updates) => updates.sealed_seqno(),
            Self::Run(run) | Self::Fenced(FencedRun { run, .. }, _) => run.reference().newest_seqno,
        }
    }

    /// Whether it certainly has no key before `key`.
    fn begins_at_or_after(&self, key: &Fence) -> bool {
        match self {
            Self::Updates(_) => false,
            Self::Run(run) => run.reference().keys.begin_at_or_after(&key.head()),
            Self::Fenced(FencedRun { low, run }, _) => {
                low >= key || run.reference().keys.begin_at_or_after(&key.head())
            }
        }
    }

    /// Whether it certainly has no key from `key` on.
    fn ends_before(&self, key: &Fence) -> bool {
        match self {
            Self::Updates(_) => false,
            Self::Run(run) => run.reference().keys.end_before(&key.head()),
            Self::Fenced(FencedRun { run, .. }, next) => {
                next.as_ref().is_some_and(|next| next <= key) || run.reference().keys.end_before(&key.head())
            }
        }
    }

    /// Keeps those bounds that do not hold for all its keys anyway; `None` if no key is inside. Long keys
    /// would take much memory in plans with many slices.
    fn restricted_to(&self, bounds: &Bounds) -> Option<Bounds> {
        let (low, high) = (bounds.low.as_ref(), bounds.high.as_ref());
        if low.is_some_and(|low| self.ends_before(low))
            || high.is_some_and(|high| self.begins_at_or_after(high))
        {
            return None;
        }
        Some(Bounds {
            low: low.filter(|low| !self.begins_at_or_after(low)).cloned(),
            high: high.filter(|high| !self.ends_before(high)).cloned(),
        })
    }
}

/// The entries of a source inside bounds.
#[derive(Clone, Debug)]
pub struct RunSlice {
    /// Where the entries come from.
    pub source: Source,
    /// Range of the entries.
    pub bounds: Bounds,
}

/// A sorted sequence of slices.
pub type Layer = Vec<RunSlice>;

impl RunSlice {
    /// Returns a slice of a whole run.
    pub fn whole_run(run: &Arc<Run>) -> Self {
        Self { source: Source::Run(Arc::clone(run)), bounds: Bounds::default() }
    }

    /// Returns the part of the slice inside `bounds`, or `None` if it is known to be empty.
    pub fn clipped(&self, bounds: &Bounds) -> Option<Self> {
        let inside = self.bounds.intersection(bounds);
        if inside.is_empty() {
            return None;
        }
        let bounds = self.source.restricted_to(&inside)?;
        Some(Self { source: self.source.clone(), bounds })
    }

    /// Approximate bytes of entries of the slice inside `bounds`.
    pub fn bytes_within(&self, bounds: &Bounds) -> Result<u64> {
        let inside = self.counted_bounds().intersection(bounds);
        if inside.is_empty() {
            return Ok(0);
        }
        let keys = inside.to_keys();
        let (low, high) = (keys.low.as_deref(), keys.high.as_deref());
        match &self.source {
            Source::Updates(updates) => Ok(updates.bytes_between(low, high)),
            Source::Run(run) | Source::Fenced(FencedRun { run, .. }, _) => run.bytes_between(low, high),
        }
    }

    /// Whether any key of the slice is inside `bounds`. Exact, unlike the estimates: it reads, unless the
    /// first or the last key of the run is inside.
    pub fn holds_any(&self, bounds: &Bounds) -> Result<bool> {
        let Some(inside) = self.clipped(bounds) else { return Ok(false) };
        if let Source::Run(run) | Source::Fenced(FencedRun { run, .. }, _) = &self.source {
            let (counted, (first, last)) = (inside.counted_bounds(), run.exact_ends()?);
            if counted.contains(&first) || counted.contains(&last) {
                return Ok(true);
            }
        }
        let mut cursor = inside.cursor();
        cursor.seek_first()?;
        Ok(cursor.entry().is_some())
    }

    /// Returns inclusive bounds of all keys of the slice, truncated to [`MAX_END_BYTES`]; `None` if there are
    /// no keys.
    fn ends(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let (first, last) = match &self.source {
            Source::Updates(updates) => updates.key_range()?,
            Source::Run(run) | Source::Fenced(FencedRun { run, .. }, _) => {
                let keys = &run.reference().keys;
                (keys.first().to_vec(), keys.last().to_vec())
            }
        };
        let Bounds { low, high } = &self.bounds;
        let mut low = low.as_ref().filter(|low| !low.is_at_most(&first)).map_or(first, Fence::to_vec);
        let mut high = high.as_ref().filter(|high| high.is_less_than(&last)).map_or(last, Fence::to_vec);
        // Ends of long keys are truncated; all must be, to be comparable.
        low.truncate(MAX_END_BYTES);
        high.truncate(MAX_END_BYTES);
        Some((low, high))
    }

    /// Returns the bounds, intersected with the fence of a run that has keys before it.
    fn counted_bounds(&self) -> Bounds {
        match &self.source {
            Source::Fenced(fenced, _) if fenced.is_clipped() => {
                self.bounds.intersection(&Bounds { low: Some(fenced.low.clone()), high: None })
            }
            _ => self.bounds.clone(),
        }
    }

    fn cursor(&self) -> Box<dyn Cursor + Send> {
        match &self.source {
            Source::Updates(updates) => {
                Box::new(BoundedCursor::new(updates.cursor(), self.counted_bounds().to_keys()))
            }
            Source::Run(run) | Source::Fenced(FencedRun { run, .. }, _) => self.bounded(run_cursor(run)),
        }
    }

    /// A cursor over its run, restricted to its bounds.
    fn bounded(&self, cursor: RunCursor) -> Box<dyn Cursor + Send> {
        Box::new(BoundedCursor::new(cursor, self.counted_bounds().to_keys()))
    }
}

/// Returns the part of a layer inside `bounds`.
pub fn clip_layer(layer: &[RunSlice], bounds: &Bounds) -> Layer {
    layer.iter().filter_map(|slice| slice.clipped(bounds)).collect()
}

/// Length of the common prefix of all keys of the layers, up to [`MAX_END_BYTES`]: that of their least and
/// greatest possible keys.
pub fn shared_prefix(layers: &[Layer]) -> usize {
    let ends = layers.iter().flatten().filter_map(RunSlice::ends);
    let widest =
        ends.reduce(|(low, high), (other_low, other_high)| (low.min(other_low), high.max(other_high)));
    widest.map_or(0, |(low, high)| key::common_prefix(&low, &high))
}

/// Returns the runs of a sequence that may hold keys inside `bounds`, each with its index.
pub fn runs_within<'a>(
    runs: &'a [FencedRun],
    bounds: &Bounds,
) -> impl Iterator<Item = (usize, &'a FencedRun)> + use<'a> {
    let has_low = |low: &Fence| {
        let at = runs.partition_point(|fenced| fenced.low <= *low).saturating_sub(1);
        at + usize::from(
            runs.get(at).is_some_and(|fenced| fenced.run.reference().keys.end_before(&low.head())),
        )
    };
    let begins_below = |fenced: &FencedRun, high: &Fence| {
        fenced.low < *high && !fenced.run.reference().keys.begin_at_or_after(&high.head())
    };
    let from = bounds.low.as_ref().map_or(0, has_low);
    let high = bounds.high.as_ref();
    let to = high.map_or(runs.len(), |high| runs.partition_point(|fenced| begins_below(fenced, high)));
    (from..to).filter_map(|at| Some((at, runs.get(at)?)))
}

/// Returns a whole sequence as slices.
pub fn slices_of(runs: &[FencedRun]) -> Layer {
    clip_runs(runs, &Bounds::default())
}

/// Returns the slices of a sequence inside `bounds`.
pub fn clip_runs(runs: &[FencedRun], bounds: &Bounds) -> Layer {
    runs_within(runs, bounds)
        .filter_map(|(at, fenced)| {
            let next = runs.get(at + 1).map(|next| next.low.clone());
            let source = Source::Fenced(fenced.clone(), next);
            let bounds = source.restricted_to(bounds)?;
            Some(RunSlice { source, bounds })
        })
        .collect()
}

/// Upper bound on the newest seqno of the layers.
pub fn newest_of(layers: &[Layer]) -> Seqno {
    layers.iter().flatten().map(|slice| slice.source.newest_seqno()).max().unwrap_or_default()
}

/// Approximate bytes of `runs` inside `bounds`.
pub fn bytes_of_runs(runs: &[FencedRun], bounds: &Bounds) -> Result<u64> {
    clip_runs(runs, bounds).iter().map(|slice| slice.bytes_within(bounds)).sum()
}

/// The slices of a layer, concatenated.
#[derive(Debug)]
struct LayerParts(Layer);

impl Parts for LayerParts {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn find(&self, key: &[u8]) -> usize {
        self.0.partition_point(|slice| slice.bounds.high.as_ref().is_some_and(|high| high.is_at_most(key)))
    }

    fn open(&self, part: usize) -> Result<Option<Box<dyn Cursor + Send>>> {
        debug_assert!(part < self.0.len(), "a part of the layer");
        Ok(Some(self.0[part].cursor()))
    }
}

/// Approximate size of an entry of these layers that is not a tombstone, estimated from the metadata of whole
/// runs and the first updates of each slice; 0 if there is none.
pub fn mean_entry_bytes(layers: &[Layer]) -> Result<u64> {
    let (mut bytes, mut entries) = (0_u128, 0_u128);
    for slice in layers.iter().flatten() {
        let (some_bytes, some_entries, all_bytes) = match &slice.source {
            Source::Updates(updates) => {
                let (bytes, entries) = first_values(slice)?;
                (bytes, entries, updates.bytes())
            }
            Source::Run(run) | Source::Fenced(FencedRun { run, .. }, _) => {
                let reference = run.reference();
                (reference.user_bytes, reference.values(), reference.user_bytes)
            }
        };
        if some_entries > 0 {
            bytes += u128::from(all_bytes);
            entries += u128::from(all_bytes) * u128::from(some_entries) / u128::from(some_bytes.max(1));
        }
    }
    Ok(low64(bytes / entries.max(1)))
}

/// Returns the bytes and number of the first few entries of a slice that are not tombstones.
fn first_values(slice: &RunSlice) -> Result<(u64, u64)> {
    let mut cursor = slice.cursor();
    cursor.seek_first()?;
    let (mut bytes, mut entries) = (0, 0);
    for _ in 0..LOOKED_AT {
        let Some(entry) = cursor.entry().filter(|_| entries < SAMPLED_VALUES) else { break };
        if entry.kind != Kind::Tombstone {
            (bytes, entries) = (bytes + u64_of(entry.user_bytes()), entries + 1);
        }
        cursor.next()?;
    }
    debug_assert!(entries <= SAMPLED_VALUES, "a sample is bounded");
    Ok((bytes, entries))
}

fn run_cursor(run: &Arc<Run>) -> RunCursor {
    RunCursor::new(Arc::clone(run), ReadAhead::bytes(COMPACTION_READ_BYTES))
}

/// Returns cursors over the layers of a compaction that begins with their first entries. Small runs are read
/// here, all at once.
pub fn layer_cursors(layers: Vec<Layer>) -> Vec<Box<dyn Cursor + Send>> {
    let sole_run = |layer: &Layer| match &**layer {
        [RunSlice { source: Source::Run(run) | Source::Fenced(FencedRun { run, .. }, _), .. }] => {
            Some(run_cursor(run))
        }
        _ => None,
    };
    let mut of_runs: Vec<Option<RunCursor>> = layers.iter().map(sole_run).collect();
    read_small_runs(of_runs.iter_mut().flatten());
    let cursor = |(layer, of_run): (Layer, Option<RunCursor>)| match (&*layer, of_run) {
        ([slice], Some(cursor)) => slice.bounded(cursor),
        _ => layer_cursor(layer),
    };
    layers.into_iter().zip(of_runs).map(cursor).collect()
}

/// Returns a cursor over a layer for a compaction.
pub fn layer_cursor(layer: Layer) -> Box<dyn Cursor + Send> {
    debug_assert!(
        layer.is_sorted_by(|a, b| match (&a.bounds.high, &b.bounds.low) {
            (Some(high), Some(low)) => high <= low,
            _ => true,
        }),
        "slices of a layer are disjoint and in key order"
    );
    match <[RunSlice; 1]>::try_from(layer) {
        Ok([slice]) => slice.cursor(),
        Err(layer) => Box::new(ChainCursor::new(LayerParts(layer))),
    }
}

/// Returns the key after about `bytes` of the layers' entries, and after at least one key.
pub fn key_after(layers: Vec<Layer>, bytes: u64) -> Result<Option<Fence>> {
    let mut merge = MergeCursor::new(layers.into_iter().map(layer_cursor).collect());
    merge.seek_first()?;
    while merge.entry().is_some() && (merge.passed_bytes() == 0 || merge.passed_bytes() < bytes) {
        merge.next()?;
    }
    Ok(merge.entry().map(|entry| entry.key.into()))
}
