//! Additions to the compaction buffer of the leaves when a leaf is rewritten (decision 0046).
//!
//! LSbM (§4.1) does this for levels. All leaves of a Bε-tree are one sequence in key order, so one buffer
//! serves them all. If most pages of a leaf are in memory, it stays readable alongside its replacement: it is
//! the base, and the runs of node buffers that were merged into it are above. Updates straight from a write
//! buffer are in no run; the hashes of their keys take their place, so that other keys can still be read from
//! memory. A leaf with fewer cached pages leaves a barrier.
//!
//! Only point reads use the buffer. Scans read the leaves.
//!
//! **Invariants**
//! - Any change of a leaf's contents goes through [`Came::of`], or drops the buffer.

use std::{collections::BTreeMap, sync::Arc};

use testudo_base::{Result, RunId, checksum::hash_key};
use testudo_run::Run;
use testudo_sequence::{
    Bounds, BufferLayer, BufferSection, CompactionBuffer, FencedRun, Layer, RunSlice, Source, layer_cursor,
    short_hash, stacked,
};

use crate::trunk::node::{Child, Node};

/// Entries merged into a leaf, with its old contents.
#[derive(Debug)]
pub(crate) struct Came {
    /// Range of the leaf.
    range: Bounds,
    /// Newest first.
    layers: Vec<BufferLayer>,
}

impl Came {
    /// Returns the sections left by `layers`, merged into the leaf at `pivot` of `base`, whose keys are
    /// `bounds`.
    pub(crate) fn of(base: &Node, pivot: usize, bounds: &Bounds, layers: &[Layer]) -> Result<Self> {
        let held = match &base.pivots[pivot].child {
            Child::Leaf(held) => held.as_ref(),
            Child::Node(_) => None,
        };
        // Joined leaves are cold, and rare.
        let is_alone = base.bounds_of(pivot) == *bounds;
        if let (Some(held), true) = (held, is_alone)
            && let Some((oldest, newer)) = layers.split_last()
            && is_whole(oldest, held)
        {
            let mut base = section_of(bounds, &RunSlice::whole_run(held), held);
            base.is_base = true;
            if base.is_resident()
                && let Some(mut came) = buffer_layers(bounds, newer)?
            {
                came.push(vec![base]);
                return Ok(Self { range: bounds.clone(), layers: came });
            }
        }
        Ok(Self { range: bounds.clone(), layers: vec![vec![barrier(bounds)]] })
    }

    fn is_bare(&self) -> bool {
        self.layers.iter().flatten().all(|section| section.run.is_none())
    }
}

/// Whether a layer is a whole run.
fn is_whole(layer: &Layer, run: &Arc<Run>) -> bool {
    matches!(&layer[..], [RunSlice { source: Source::Run(whole), .. }] if Arc::ptr_eq(whole, run))
}

fn barrier(bounds: &Bounds) -> BufferSection {
    BufferSection::barrier(bounds.low.clone().unwrap_or_default(), bounds.high.clone())
}

/// Returns the section of `run` in a slice, within `bounds`.
fn section_of(bounds: &Bounds, slice: &RunSlice, run: &Arc<Run>) -> BufferSection {
    let mut inside = bounds.intersection(&slice.bounds);
    if let Source::Fenced(FencedRun { low, .. }, next) = &slice.source {
        inside = inside.intersection(&Bounds { low: low.as_low(), high: next.clone() });
    }
    let (low, high) = (inside.low.unwrap_or_default(), inside.high);
    BufferSection { run: Some(Arc::clone(run)), ..BufferSection::barrier(low, high) }
}

/// Converts the layers to those of a buffer; `None` if their sections overlap.
fn buffer_layers(bounds: &Bounds, layers: &[Layer]) -> Result<Option<Vec<BufferLayer>>> {
    let mut buffered = Vec::with_capacity(layers.len() + 1);
    for layer in layers {
        let mut sections = BufferLayer::with_capacity(layer.len());
        for slice in layer {
            match &slice.source {
                Source::Run(run) | Source::Fenced(FencedRun { run, .. }, _) => {
                    sections.push(section_of(bounds, slice, run));
                }
                Source::Updates(_) => sections.push(from_memory(bounds, slice)?),
            }
        }
        let ends_before = |one: &BufferSection, next: &BufferSection| {
            one.high.as_ref().is_some_and(|high| *high <= next.low)
        };
        let is_any = |section: &BufferSection| section.high.as_ref().is_none_or(|high| section.low < *high);
        if !sections.is_sorted_by(ends_before) || !sections.iter().all(is_any) {
            return Ok(None);
        }
        debug_assert!(sections.iter().all(|section| !section.is_base), "only the old leaf is a base");
        buffered.push(sections);
    }
    buffered.retain(|layer| !layer.is_empty());
    Ok(Some(buffered))
}

/// Returns the placeholder for updates from memory within `bounds`.
fn from_memory(bounds: &Bounds, slice: &RunSlice) -> Result<BufferSection> {
    let inside = bounds.intersection(&slice.bounds);
    let mut hashes = Vec::new();
    if let Some(slice) = slice.clipped(&inside) {
        let mut cursor = layer_cursor(vec![slice]);
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            hashes.push(short_hash(hash_key(entry.key)));
            cursor.next()?;
        }
    }
    hashes.sort_unstable();
    hashes.dedup();
    debug_assert!(hashes.is_sorted_by(|a, b| a < b), "a look-up searches the hashes by halves");
    Ok(BufferSection::from_memory(inside.low.unwrap_or_default(), inside.high, hashes.into()))
}

/// Bytes on the device of each run of the nodes.
pub(crate) type LiveRuns = BTreeMap<RunId, u64>;

/// Returns the buffer of the leaves after `came`, in a tree with these runs. Retained bytes are limited to
/// `retained_percent` of theirs.
pub(crate) fn buffer_after(
    before: Option<&Arc<CompactionBuffer>>,
    came: Vec<Came>,
    live: &LiveRuns,
    retained_percent: u32,
    next_object: &mut u64,
) -> Option<Arc<CompactionBuffer>> {
    let mut buffer = before.cloned();
    let mut layers = before.map(|buffer| buffer.layers.clone()).unwrap_or_default();
    let mut is_same = true;
    for Came { range, layers: above } in came.into_iter().filter(|came| before.is_some() || !came.is_bare()) {
        layers = stacked(&layers, above, &range);
        is_same = false;
    }
    if !is_same {
        buffer = CompactionBuffer::of_layers(layers, next_object);
    }
    buffer = buffer?.trimmed(next_object);
    let bytes_max = live.values().sum::<u64>() / 100 * u64::from(retained_percent);
    while retained_only_bytes(buffer.as_deref(), live) > bytes_max {
        buffer = buffer?.without_oldest(next_object);
    }
    buffer
}

/// Bytes on the device of runs that are only in the buffer.
pub(crate) fn retained_only_bytes(buffer: Option<&CompactionBuffer>, live: &LiveRuns) -> u64 {
    let runs = buffer.map(CompactionBuffer::runs).unwrap_or_default();
    let only = runs.iter().filter(|(id, _)| !live.contains_key(id));
    only.map(|(_, run)| run.reference().stored_bytes()).sum()
}
