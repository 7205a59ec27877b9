//! Lazy flows of entries: which pieces of which sources, newest layer first, make up what moves through the trunk.
//!
//! **Invariants**
//! - Slices of one layer are disjoint and in key order; layers are ordered newest first.
//! - Making, clipping and moving a flow reads no entries; sizes are estimates from indexes.

use std::sync::Arc;

use testudo_base::{Cursor, Result, Seqno, key};
use testudo_contract::Updates;
use testudo_run::{BoundedCursor, KeyBounds, ReadAhead, Run, RunCursor};

use crate::chain::{ChainCursor, Parts};

/// Pieces in which compactions read.
const COMPACTION_READ_BYTES: usize = 256 << 10;

/// Where the entries of a slice come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Updates(Arc<dyn Updates>),
    Run(Arc<Run>),
}

impl Source {
    /// How new its newest operation may be.
    pub(crate) fn newest_seqno(&self) -> Seqno {
        match self {
            Self::Updates(updates) => updates.sealed_seqno(),
            Self::Run(run) => run.reference().newest_seqno,
        }
    }
}

/// The entries of a source inside bounds.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) source: Source,
    pub(crate) bounds: KeyBounds,
}

/// A sorted sequence of slices.
pub(crate) type Layer = Vec<Slice>;

impl Slice {
    pub(crate) fn whole_run(run: &Arc<Run>) -> Self {
        Self { source: Source::Run(Arc::clone(run)), bounds: KeyBounds::default() }
    }

    /// The part of the slice inside `bounds`, or `None` if surely nothing is there.
    pub(crate) fn clipped(&self, bounds: &KeyBounds) -> Option<Self> {
        let inside = self.bounds.intersection(bounds);
        if inside.is_empty() {
            return None;
        }
        if let Source::Run(run) = &self.source {
            let reference = run.reference();
            let before = inside.high.as_deref().is_some_and(|high| reference.first_key.as_slice() >= high);
            let after = inside.low.as_deref().is_some_and(|low| reference.last_key.as_slice() < low);
            if before || after {
                return None;
            }
        }
        Some(Self { source: self.source.clone(), bounds: inside })
    }

    /// About how many bytes of entries the slice holds inside `bounds`.
    pub(crate) fn bytes_within(&self, bounds: &KeyBounds) -> Result<u64> {
        let inside = self.bounds.intersection(bounds);
        if inside.is_empty() {
            return Ok(0);
        }
        let (low, high) = (inside.low.as_deref(), inside.high.as_deref());
        match &self.source {
            Source::Updates(updates) => Ok(updates.bytes_between(low, high)),
            Source::Run(run) => run.bytes_between(low, high),
        }
    }

    /// Whether any key of the slice is inside `bounds`. Looks for it, other than estimates do.
    pub(crate) fn holds_any(&self, bounds: &KeyBounds) -> Result<bool> {
        let Some(inside) = self.clipped(bounds) else { return Ok(false) };
        let mut cursor = inside.cursor();
        cursor.seek_first()?;
        Ok(cursor.entry().is_some())
    }

    /// Every key of the slice lies between these, both included; `None` if there are no keys.
    fn ends(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let (first, last) = match &self.source {
            Source::Updates(updates) => updates.key_range()?,
            Source::Run(run) => (run.reference().first_key.clone(), run.reference().last_key.clone()),
        };
        let KeyBounds { low, high } = &self.bounds;
        let low = low.as_ref().filter(|low| **low > first).cloned().unwrap_or(first);
        let high = high.as_ref().filter(|high| **high < last).cloned().unwrap_or(last);
        Some((low, high))
    }

    fn cursor(&self) -> Box<dyn Cursor + Send> {
        let bounds = self.bounds.clone();
        match &self.source {
            Source::Updates(updates) => Box::new(BoundedCursor::new(updates.cursor(), bounds)),
            Source::Run(run) => {
                let read_ahead = ReadAhead::bytes(COMPACTION_READ_BYTES);
                Box::new(BoundedCursor::new(RunCursor::new(Arc::clone(run), read_ahead), bounds))
            }
        }
    }
}

/// The part of a layer inside `bounds`.
pub(crate) fn clip_layer(layer: &[Slice], bounds: &KeyBounds) -> Layer {
    layer.iter().filter_map(|slice| slice.clipped(bounds)).collect()
}

/// How many bytes all keys of the layers share: those that the least and the greatest key share that there can be.
pub(crate) fn shared_prefix(layers: &[Layer]) -> usize {
    let ends = layers.iter().flatten().filter_map(Slice::ends);
    let widest =
        ends.reduce(|(low, high), (other_low, other_high)| (low.min(other_low), high.max(other_high)));
    widest.map_or(0, |(low, high)| key::common_prefix(&low, &high))
}

/// Runs of `runs` (sorted, disjoint) that may hold keys in `[low, high)`.
pub(crate) fn runs_within<'a>(
    runs: &'a [Arc<Run>],
    low: Option<&[u8]>,
    high: Option<&'a [u8]>,
) -> impl Iterator<Item = &'a Arc<Run>> {
    let from = low.map_or(0, |low| runs.partition_point(|run| run.reference().last_key.as_slice() < low));
    runs[from..]
        .iter()
        .take_while(move |run| high.is_none_or(|high| run.reference().first_key.as_slice() < high))
}

/// Runs of `runs` (sorted, disjoint) inside `bounds`, as slices.
pub(crate) fn clip_runs(runs: &[Arc<Run>], bounds: &KeyBounds) -> Layer {
    runs_within(runs, bounds.low.as_deref(), bounds.high.as_deref())
        .map(|run| Slice { source: Source::Run(Arc::clone(run)), bounds: bounds.clone() })
        .collect()
}

/// About how many bytes `runs` hold inside `bounds`.
pub(crate) fn bytes_of_runs(runs: &[Arc<Run>], bounds: &KeyBounds) -> Result<u64> {
    clip_runs(runs, bounds).iter().map(|slice| slice.bytes_within(bounds)).sum()
}

/// The slices of a layer, one after the other.
#[derive(Debug)]
struct LayerParts(Layer);

impl Parts for LayerParts {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn find(&self, key: &[u8]) -> usize {
        self.0.partition_point(|slice| slice.bounds.high.as_deref().is_some_and(|high| high <= key))
    }

    fn open(&self, part: usize) -> Result<Option<Box<dyn Cursor + Send>>> {
        Ok(Some(self.0[part].cursor()))
    }
}

/// A cursor over a layer, for a compaction.
pub(crate) fn layer_cursor(layer: Layer) -> Box<dyn Cursor + Send> {
    match <[Slice; 1]>::try_from(layer) {
        Ok([slice]) => slice.cursor(),
        Err(layer) => Box::new(ChainCursor::new(LayerParts(layer))),
    }
}
