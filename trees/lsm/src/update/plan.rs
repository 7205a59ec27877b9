//! Planning a merge: which runs stay as they are, and which are rewritten together, without reading an entry
//! if sizes suffice.
//!
//! A run that overlaps no entry of another layer stays as it is, or is moved down as it is (a trivial move).
//! Everything between such runs is merged.
//!
//! **Invariants**
//! - Cells are disjoint and in key order.
//! - The output is as new as the newest of its sources, which is a source from above: everything above the
//!   destination is newer still.

use std::sync::Arc;

use testudo_base::{Result, Seqno, planted};
use testudo_contract::{Height, Updates};
use testudo_sequence::{Bounds, Fence, Layer, RunSlice, Source};

use crate::{
    LsmOptions,
    levels::component::{Component, Extent, LevelRun},
};

/// Estimated bytes inside a run above which it certainly has some: estimates are accurate to a few pages.
const SURELY_INSIDE_BYTES: u64 = 64 << 10;
/// The same as the inverse of a fraction of a run.
const SURELY_INSIDE_PARTS: u64 = 32;
/// Incoming entries may go into a run's pages if they are at most one in this many of its bytes.
const FEW_PARTS: u64 = 2;

/// Inverse of the fraction of a full run from which one may stay: smaller ones would be many.
const LARGE_PARTS: u64 = 2;

/// Contents below a destination, in the range written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    /// Possibly older entries, at this height.
    Entries(Height),
    /// Nothing, but other runs may be added there: the output records its covered range, and keeps its
    /// tombstones.
    Nothing,
    /// Nothing, ever: it is the bottom.
    Bottom,
}

/// A layer to merge, newest first; the last one is the destination's own.
#[derive(Clone, Debug)]
pub(crate) enum MergeLayer {
    Updates(Arc<dyn Updates>),
    Runs(Vec<LevelRun>),
    /// Runs of the sequence to change, and the fence of the run after them.
    Own(Vec<LevelRun>, Option<Fence>),
}

/// Planned result for a part of the destination.
#[derive(Debug)]
pub(crate) enum Cell {
    /// The run becomes part of the destination as it is.
    Stays(LevelRun),
    Merge(Merge),
    /// Incoming entries go into pages of the run, or are merged with all of it if that costs less.
    Pages(LevelRun, Merge),
}

/// A merge to be written.
#[derive(Clone, Debug)]
pub(crate) struct Merge {
    /// Newest first.
    pub(crate) layers: Vec<Layer>,
    /// The last layer is the destination's own.
    pub(crate) has_own: bool,
    /// Approximate bytes of entries flowing into it.
    pub(crate) bytes: u64,
    /// The keys that may be in it; its covered range if nothing is below.
    pub(crate) bounds: Bounds,
    pub(crate) newest_seqno: Seqno,
    pub(crate) floor: Floor,
    /// First keys of its sources, each with the bytes that begin there: possible cuts.
    pub(crate) cuts: Vec<(Fence, u64)>,
    /// Runs of the destination that are merged completely.
    pub(crate) consumed: Vec<LevelRun>,
}

impl Merge {
    /// Whether entries from above come into it. Joined and gathered runs are written with nothing new.
    pub(crate) fn has_incoming(&self) -> bool {
        self.layers.iter().flatten().count() > self.consumed.len()
    }
}

/// A run or updates to be merged, clipped to the bounds of the merge.
#[derive(Debug)]
struct MergeSource {
    /// Number of its layer; lower numbers are newer.
    layer: usize,
    /// Range of its keys inside the bounds.
    extent: Extent,
    /// All of its entries, those outside the bounds too.
    entries: RunSlice,
    /// The run, if it is one.
    level_run: Option<LevelRun>,
    /// All of it is within the bounds of the merge.
    is_whole: bool,
}

impl MergeSource {
    /// Upper bound on the seqno of its newest operation.
    fn newest_seqno(&self) -> Seqno {
        self.entries.source.newest_seqno()
    }

    fn slice(&self, bounds: &Bounds) -> Option<RunSlice> {
        self.entries.clipped(bounds)
    }

    fn holds_any(&self, bounds: &Bounds) -> Result<bool> {
        self.slice(bounds).map_or(Ok(false), |slice| slice.holds_any(bounds))
    }

    /// Whether it is a run that may move to the destination as it is: all of it counts, and it has no
    /// tombstones that would be dropped there.
    fn can_come_down(&self, floor: Floor) -> bool {
        self.level_run.as_ref().is_some_and(|level_run| {
            let ends = floor == Floor::Bottom && level_run.run().reference().tombstones > 0;
            !level_run.fenced.is_clipped() && !ends
        })
    }

    /// Returns the run as a part of the destination. After a move it follows other runs than before.
    fn staying(&self, own: usize) -> Option<Cell> {
        let mut level_run = self.level_run.clone()?;
        if self.layer != own {
            level_run.fenced.low = self.extent.low.clone();
        }
        Some(Cell::Stays(level_run))
    }
}

/// The sources of a merge.
struct MergeSources {
    /// By layer, each in key order.
    layers: Vec<Vec<MergeSource>>,
}

impl MergeSources {
    fn of(layers: &[MergeLayer], bounds: &Bounds) -> Result<Self> {
        let (mut all, all_keys) = (Vec::with_capacity(layers.len()), Bounds::default());
        for (number, layer) in layers.iter().enumerate() {
            let mut sources = Vec::new();
            match layer {
                MergeLayer::Updates(updates) => sources.extend(source_of_updates(number, updates, bounds)),
                MergeLayer::Runs(runs) | MergeLayer::Own(runs, _) => {
                    let is_own = number + 1 == layers.len();
                    let bounds = if is_own && planted!("output-beyond-border") { &all_keys } else { bounds };
                    let behind = if let MergeLayer::Own(_, next) = layer { next.as_ref() } else { None };
                    for (at, level_run) in runs.iter().enumerate() {
                        let next = runs.get(at + 1).map(|next| &next.fenced.low).or(behind);
                        sources.extend(source_of_run(number, level_run, next, bounds)?);
                    }
                }
            }
            all.push(sources);
        }
        Ok(Self { layers: all })
    }

    fn all(&self) -> impl Iterator<Item = &MergeSource> {
        self.layers.iter().flatten()
    }

    /// Returns the sources of a layer that overlap an extent.
    fn overlapping<'a>(&'a self, layer: usize, extent: &'a Extent) -> impl Iterator<Item = &'a MergeSource> {
        let sources = &self.layers[layer];
        let from = sources.partition_point(|source| source.extent.high <= extent.low);
        sources[from..].iter().take_while(|source| source.extent.low < extent.high)
    }

    /// Newest seqno of the sources from above.
    fn newest_from_above(&self) -> Seqno {
        let above = self.layers.len().saturating_sub(1);
        self.layers[..above].iter().flatten().map(|source| source.newest_seqno()).max().unwrap_or_default()
    }

    /// Whether no other layer has an entry in the source's range of keys.
    fn is_untouched(&self, source: &MergeSource, options: &LsmOptions) -> Result<bool> {
        let bounds = source.extent.to_bounds();
        let others = || (0..self.layers.len()).filter(|layer| *layer != source.layer);
        let enough = SURELY_INSIDE_BYTES.min(options.run_bytes / SURELY_INSIDE_PARTS);
        let mut bytes = 0;
        for other in others().flat_map(|layer| self.overlapping(layer, &source.extent)) {
            if other.extent.low >= source.extent.low && other.extent.high <= source.extent.high {
                return Ok(false);
            }
            if let Some(slice) = other.slice(&bounds) {
                bytes += slice.bytes_within(&bounds)?;
            }
            if bytes > enough {
                return Ok(false);
            }
        }
        for other in others().flat_map(|layer| self.overlapping(layer, &source.extent)) {
            if other.holds_any(&bounds)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn source_of_updates(layer: usize, updates: &Arc<dyn Updates>, bounds: &Bounds) -> Option<MergeSource> {
    let (first, mut last) = updates.key_range()?;
    last.push(0);
    let extent = Extent { low: first.into(), high: last.into() };
    let source = Source::Updates(Arc::clone(updates));
    extent.meets(bounds).then(|| MergeSource {
        layer,
        extent: clipped(extent, bounds),
        entries: RunSlice { source, bounds: Bounds::default() },
        level_run: None,
        is_whole: false,
    })
}

/// `next`: the fence of the following run.
fn source_of_run(
    layer: usize,
    level_run: &LevelRun,
    next: Option<&Fence>,
    bounds: &Bounds,
) -> Result<Option<MergeSource>> {
    let extent = level_run.extent()?;
    if !extent.meets(bounds) {
        return Ok(None);
    }
    let inside = clipped(extent.clone(), bounds);
    let is_whole = inside == extent;
    let source = Source::Fenced(level_run.fenced.clone(), next.cloned());
    let entries = RunSlice { source, bounds: Bounds::default() };
    Ok(Some(MergeSource { layer, extent: inside, entries, level_run: Some(level_run.clone()), is_whole }))
}

fn clipped(extent: Extent, bounds: &Bounds) -> Extent {
    let Extent { low, high } = extent;
    let low = match &bounds.low {
        Some(least) if low < *least => least.clone(),
        _ => low,
    };
    let high = match &bounds.high {
        Some(most) if high > *most => most.clone(),
        _ => high,
    };
    Extent { low, high }
}

/// Plans the cells of a destination, whose own runs are the last of the layers, for a merge within `bounds`.
/// Reads index pages, and data pages if sizes do not decide whether a run can stay.
pub(crate) fn plan_cells(
    layers: &[MergeLayer],
    bounds: &Bounds,
    floor: Floor,
    options: &LsmOptions,
) -> Result<Vec<Cell>> {
    debug_assert!(!layers.is_empty(), "the last layer is the destination's own");
    debug_assert!(
        layers.iter().rev().skip(1).all(|layer| !matches!(layer, MergeLayer::Own(..))),
        "only the last layer is the destination's own"
    );
    let sources = MergeSources::of(layers, bounds)?;
    let staying = runs_that_stay(&sources, floor, options)?;
    let updated = runs_with_few(&sources, &staying, bounds, floor, options)?;
    let kept = staying
        .into_iter()
        .map(|source| (source, None))
        .chain(updated.into_iter().map(|(i, r)| (i, Some(r))));
    let mut kept: Vec<(&MergeSource, Option<Bounds>)> = kept.collect();
    kept.sort_by(|(a, _), (b, _)| a.extent.low.cmp(&b.extent.low));
    let mut cells = Vec::new();
    let mut low = bounds.low.clone();
    for (source, range) in kept {
        let begin = match &range {
            None => Some(source.extent.low.clone()),
            Some(range) => range.low.clone(),
        };
        if let Some(begin) = begin {
            let gap = Bounds { low: low.take(), high: Some(begin) };
            cells.extend(cells_between(&sources, &gap, floor)?);
        }
        match range {
            None => {
                low = Some(source.extent.high.clone());
                cells.extend(source.staying(layers.len() - 1));
            }
            Some(range) => {
                low.clone_from(&range.high);
                cells.extend(pages_cell(&sources, source, range, floor)?);
                if low.is_none() {
                    set_fences(&mut cells)?;
                    return Ok(cells);
                }
            }
        }
    }
    cells.extend(cells_between(&sources, &Bounds { low, high: bounds.high.clone() }, floor)?);
    set_fences(&mut cells)?;
    debug_assert!(are_in_order(&cells), "cells are disjoint and in key order");
    Ok(cells)
}

/// Whether merges end before the next cell begins.
fn are_in_order(cells: &[Cell]) -> bool {
    let low_of = |cell: &Cell| match cell {
        Cell::Stays(level_run) => level_run.fenced.low.as_low(),
        Cell::Merge(merge) | Cell::Pages(_, merge) => merge.bounds.low.clone(),
    };
    cells.windows(2).all(|pair| match &pair[0] {
        Cell::Stays(_) => true,
        Cell::Merge(merge) | Cell::Pages(_, merge) => merge.bounds.high <= low_of(&pair[1]),
    })
}

/// Returns runs of the bottom with so few incoming entries that writing pages costs less than rewriting the
/// runs, each with its own range of keys: from its fence to the next one. `staying`: runs that stay.
fn runs_with_few<'a>(
    sources: &'a MergeSources,
    staying: &[&MergeSource],
    bounds: &Bounds,
    floor: Floor,
    options: &LsmOptions,
) -> Result<Vec<(&'a MergeSource, Bounds)>> {
    if !options.updates_pages || floor != Floor::Bottom {
        return Ok(Vec::new());
    }
    let own = sources.layers.len() - 1;
    let mut found = Vec::new();
    for source in &sources.layers[own] {
        let (Some(level_run), Source::Fenced(fenced, next)) = (&source.level_run, &source.entries.source)
        else {
            continue;
        };
        let range = Bounds { low: fenced.low.as_low(), high: next.clone() };
        // A part of the run's own range would stay above, and be older than the run's seqno.
        let reaches_beyond = bounds.high.is_some() && (next.is_none() || next > &bounds.high);
        let begins_before = bounds.low > range.low;
        if reaches_beyond
            || begins_before
            || !source.is_whole
            || staying.iter().any(|other| other.extent.meets(&range))
        {
            continue;
        }
        if has_few(&sources.layers[..own], &range, level_run.bytes / FEW_PARTS)? {
            found.push((source, range));
        }
    }
    Ok(found)
}

/// Whether these layers have entries in a range, but not more than about `bytes_max`.
fn has_few(layers: &[Vec<MergeSource>], range: &Bounds, bytes_max: u64) -> Result<bool> {
    let sources = || layers.iter().flatten().filter(|source| source.extent.meets(range));
    let mut bytes = 0;
    for source in sources() {
        if let Some(slice) = source.slice(range) {
            bytes += slice.bytes_within(&Bounds::default())?;
        }
    }
    if bytes > 0 {
        return Ok(bytes <= bytes_max);
    }
    // Less than a page, which the estimate misses.
    for source in sources() {
        if source.holds_any(range)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the cell for entries incoming to a run, with the alternative of merging them with all of it.
fn pages_cell(
    sources: &MergeSources,
    source: &MergeSource,
    range: Bounds,
    floor: Floor,
) -> Result<Option<Cell>> {
    let Some(level_run) = source.level_run.clone() else { return Ok(None) };
    let inside: Vec<&MergeSource> = sources.all().filter(|other| other.extent.meets(&range)).collect();
    let merge = merge_of(sources, &inside, &range, floor)?;
    Ok(merge.map(|merge| Cell::Pages(level_run, Merge { bounds: range, ..merge })))
}

/// Whether a run stays as it is if no other layer has entries in its range.
pub(crate) fn is_large(level_run: &LevelRun, options: &LsmOptions) -> bool {
    level_run.bytes >= options.run_bytes / LARGE_PARTS
}

/// Returns the runs that are worth keeping as they are, in key order.
fn runs_that_stay<'a>(
    sources: &'a MergeSources,
    floor: Floor,
    options: &LsmOptions,
) -> Result<Vec<&'a MergeSource>> {
    let newest = sources.newest_from_above();
    let own = sources.layers.len() - 1;
    let mut staying = Vec::new();
    for source in sources.all() {
        let Some(level_run) = source.level_run.as_ref().filter(|_| source.is_whole) else { continue };
        let is_own = source.layer == own;
        let is_large = is_large(level_run, options);
        // Merged with older entries, it would make those look newer than entries still above.
        let is_newer = is_own && source.newest_seqno() > newest;
        let can_stay = is_own || source.can_come_down(floor);
        if (is_large || is_newer) && can_stay && sources.is_untouched(source, options)? {
            staying.push(source);
        }
    }
    staying.sort_by(|a, b| a.extent.low.cmp(&b.extent.low));
    debug_assert!(
        staying.is_sorted_by(|a, b| a.extent.high <= b.extent.low),
        "runs without foreign entries in their range are disjoint"
    );
    Ok(staying)
}

/// Plans the cells of the keys between two runs that stay.
fn cells_between(sources: &MergeSources, gap: &Bounds, floor: Floor) -> Result<Vec<Cell>> {
    let own = sources.layers.len() - 1;
    // A run that extends beyond one that stays is cut there.
    let is_inside = |source: &MergeSource| clipped(source.extent.clone(), gap) == source.extent;
    let mut inside = Vec::new();
    for source in sources.all().filter(|source| source.extent.meets(gap)) {
        // Such a run may have no entry here.
        if is_inside(source) || source.holds_any(gap)? {
            inside.push(source);
        }
    }
    if inside.iter().all(|source| source.layer == own && is_inside(source)) {
        return Ok(inside.iter().filter_map(|source| source.staying(own)).collect());
    }
    if let [source] = inside[..]
        && source.is_whole
        && is_inside(source)
        && source.can_come_down(floor)
    {
        return Ok(source.staying(own).into_iter().collect());
    }
    Ok(merge_of(sources, &inside, gap, floor)?.map(Cell::Merge).into_iter().collect())
}

/// Returns the merge of a run of the bottom with nothing else.
pub(crate) fn merge_of_run(run: Vec<LevelRun>) -> Result<Option<Merge>> {
    debug_assert_eq!(run.len(), 1, "a single run");
    let (layers, all) = ([MergeLayer::Runs(run), MergeLayer::Runs(Vec::new())], Bounds::default());
    let sources = MergeSources::of(&layers, &all)?;
    let inside: Vec<&MergeSource> = sources.all().collect();
    let merge = merge_of(&sources, &inside, &all, Floor::Bottom)?;
    let consumed = inside.iter().filter_map(|source| source.level_run.clone()).collect();
    Ok(merge.map(|merge| Merge { consumed, has_own: true, ..merge }))
}

/// Returns the merge of the sources inside `gap`; `None` if there are none.
fn merge_of(
    sources: &MergeSources,
    inside: &[&MergeSource],
    gap: &Bounds,
    floor: Floor,
) -> Result<Option<Merge>> {
    let own = sources.layers.len() - 1;
    let (mut layers, mut has_own) = (Vec::new(), false);
    let (mut bytes, mut newest_seqno, mut cuts) = (0, Seqno::default(), Vec::new());
    let mut consumed = Vec::new();
    let mut hull: Option<Extent> = None;
    for layer in 0..sources.layers.len() {
        let mut slices = Layer::new();
        for source in inside.iter().filter(|source| source.layer == layer) {
            let Some(slice) = source.slice(gap) else { continue };
            let slice_bytes = slice.bytes_within(&Bounds::default())?;
            let extent = clipped(source.extent.clone(), gap);
            cuts.push((extent.low.clone(), slice_bytes));
            hull = Some(match hull {
                None => extent,
                Some(hull) => Extent { low: hull.low.min(extent.low), high: hull.high.max(extent.high) },
            });
            bytes += slice_bytes;
            if source.layer == own && source.is_whole {
                consumed.extend(source.level_run.clone());
            }
            newest_seqno = newest_seqno.max(source.newest_seqno());
            slices.push(slice);
        }
        if !slices.is_empty() {
            has_own |= layer == own;
            layers.push(slices);
        }
    }
    let Some(hull) = hull else { return Ok(None) };
    cuts.sort_by(|a, b| a.0.cmp(&b.0));
    debug_assert!(!layers.is_empty() && layers.len() <= sources.layers.len(), "each layer has its sources");
    debug_assert_eq!(clipped(hull.clone(), gap), hull, "a merge stays in its gap");
    let bounds = hull.to_bounds();
    Ok(Some(Merge { layers, has_own, bytes, bounds, newest_seqno, floor, cuts, consumed }))
}

/// Sets fences of staying runs greater than all preceding keys.
fn set_fences(cells: &mut [Cell]) -> Result<()> {
    let mut before: Option<Fence> = None;
    for cell in cells {
        match cell {
            Cell::Stays(level_run) => {
                let extent = level_run.extent()?;
                if before.as_ref().is_some_and(|before| level_run.fenced.low < *before) {
                    level_run.fenced.low = extent.low;
                }
                before = Some(extent.high);
            }
            Cell::Merge(merge) | Cell::Pages(_, merge) => before.clone_from(&merge.bounds.high),
        }
    }
    Ok(())
}

/// Returns runs of a component that may hold keys inside bounds.
pub(crate) fn runs_within(component: &Component, bounds: &Bounds) -> MergeLayer {
    MergeLayer::Runs(component.range(component.within(bounds)).cloned().collect())
}
