//! Moving a range of keys to the bottom: in steps, each from all levels above at once.
//!
//! A step begins at the first key of the range above the bottom. Its ends are fences of runs of the bottom,
//! so that these are rewritten whole, unless much data outside the range would come with them. A run of an
//! upper level that begins before the step is cut there (`take_out.rs`); behind the step it is clipped.
//! The next step begins where the last one ended, so only the first one cuts runs.
//!
//! If a run of the bottom does not fit, the step ends before it; if that is the first one, the step ends
//! inside it. A run of the bottom that begins before the range is rewritten from its first key on. If too
//! much is above that part of it, the first steps end before the range.
//!
//! **Invariants**
//! - A step merges and rewrites no more than its bound, or the least unit of work: one run of each sequence.
//! - No entry of a key is moved down before an older one.
//! - The next step begins after the keys that an installed step has completed.

use std::ops::Range;

use testudo_base::{Result, sync::Arc};
use testudo_contract::Work;
use testudo_run::KeyBounds;
use testudo_sequence::{
    Bounds, BufferSection, CompactionBuffer, Fence, Layer, key_after, layer_cursor, stacked,
};

use crate::{
    LsmOptions,
    levels::{
        Levels,
        component::{Component, LevelRun},
        written_counts::WrittenCounts,
    },
    update::{
        destination::{Destination, Place},
        moves::own_layer,
        plan::{Floor, MergeLayer, plan_cells, runs_within},
        take_out::heads_of,
        write::write_all,
    },
};

/// A step merges about this many full runs, or fewer if its bound is less.
const STEP_RUNS: u64 = 8;
/// Maximum full runs of bytes outside the range that each end of it may add to a step. Above one run of the
/// bottom there is rarely as much, except after its last run.
const OUTSIDE_RUNS: u64 = 2;
/// The same as the inverse of a fraction of the bound.
const OUTSIDE_PARTS: u64 = 4;

/// Intended size of a step, in bytes.
#[derive(Clone, Copy)]
struct StepSize {
    /// Merged bytes, those of the bottom included.
    merged: u64,
    /// Merged bytes, and those written before the step.
    all: u64,
    /// Bytes outside the range at each end.
    outside: u64,
}

/// A step that was written.
pub(crate) struct WrittenStep {
    bounds: Bounds,
    /// The rewritten parts of runs above the bottom that begin before the step.
    heads: Vec<Vec<LevelRun>>,
}

/// Picks the first step of `range` that has data above the bottom, and returns its bounds. It reads and
/// writes at most `bytes_max`. REQUIRES: that is no less than the smallest unit of work.
pub(crate) fn pick_step(
    levels: &Levels,
    options: &LsmOptions,
    range: &KeyBounds,
    bytes_max: u64,
) -> Result<Option<Bounds>> {
    let range = Bounds::from(range);
    let Some(start) = first_above(levels, &range)? else { return Ok(None) };
    let merged = (options.run_bytes * STEP_RUNS).min(bytes_max);
    let outside = (options.run_bytes * OUTSIDE_RUNS).min(bytes_max / OUTSIDE_PARTS);
    let mut size = StepSize { merged, all: bytes_max, outside };
    loop {
        let bounds = step_from(levels, options, &range, &start, size)?;
        let all = bytes_of_step(levels, options, &bounds)?;
        if all <= bytes_max || size.merged == 0 {
            return Ok(Some(bounds));
        }
        // Sizes are known by pages. Data outside the range is not worth a larger step.
        size.merged = size.merged.saturating_sub(all - bytes_max) / 8 * 7;
        size.outside = 0;
    }
}

/// Upper bound on the bytes that a step reads.
fn bytes_of_step(levels: &Levels, options: &LsmOptions, bounds: &Bounds) -> Result<u64> {
    let own = levels.bottom.range(rewritten_runs(&levels.bottom, bounds)?);
    let own: u64 = own.map(|level_run| level_run.bytes).sum();
    let mut above = above_bytes(levels, bounds)?;
    if let Some(high) = &bounds.high {
        for component in levels.upper() {
            above += component.cut_block_bytes(high)?;
        }
    }
    Ok(head_bytes(levels, bounds)? + options.pair_sizes.pairs_of(above) + own)
}

/// Bytes of runs above the bottom that a step rewrites because they begin before it.
fn head_bytes(levels: &Levels, bounds: &Bounds) -> Result<u64> {
    Ok(heads_of(levels, bounds)?.iter().map(Destination::merged_bytes).sum())
}

/// Returns the least key of `range` above the bottom. Reads a page of each sequence that overlaps it.
fn first_above(levels: &Levels, range: &Bounds) -> Result<Option<Fence>> {
    let mut least: Option<Fence> = None;
    if range.is_empty() {
        return Ok(least);
    }
    for component in levels.upper() {
        // Keys from the least one so far on do not matter.
        let rest = range.intersection(&Bounds { low: None, high: least.clone() });
        for slice in component.slices(&rest) {
            let mut cursor = layer_cursor(vec![slice]);
            cursor.seek_first()?;
            if let Some(entry) = cursor.entry() {
                least = Some(entry.key.into());
                break;
            }
        }
    }
    Ok(least)
}

/// Approximate bytes above the bottom inside `bounds`.
pub(crate) fn above_bytes(levels: &Levels, bounds: &Bounds) -> Result<u64> {
    levels.upper().map(|component| component.bytes_within(bounds)).sum()
}

/// Returns the bounds of the step for `start`, the first key of `range` above the bottom. It ends before that
/// if too much is above the part of a run of the bottom that is outside the range.
fn step_from(
    levels: &Levels,
    options: &LsmOptions,
    range: &Bounds,
    start: &Fence,
    size: StepSize,
) -> Result<Bounds> {
    let bottom = &levels.bottom;
    let next = bottom.runs_up_to(&start.bytes());
    let first = next.checked_sub(1);
    let low = low_of(levels, first, range, start, size.outside)?;
    let of_step = Bounds { low: low.clone(), high: range.high.clone() };
    let outside = Bounds { low: low.clone(), high: Some(start.clone()) };
    let start = first_above(levels, &outside)?.unwrap_or_else(|| start.clone());
    let step_bytes = size.merged.min(size.all.saturating_sub(head_bytes(levels, &of_step)?));
    let pairs = |bounds: &Bounds| Ok(options.pair_sizes.pairs_of(above_bytes(levels, bounds)?));
    let (mut at, mut bytes) = (first, 0);
    let mut begin = low.clone();
    for next in next..=bottom.len() {
        let own_bytes = at.and_then(|at| bottom.get(at)).map_or(0, |level_run| level_run.bytes);
        let fence = bottom.get(next).map(|level_run| level_run.fenced.low.clone());
        let inside = Bounds { low: begin.clone(), high: fence.clone() }.intersection(&of_step);
        let above: u64 = pairs(&inside)?;
        if bytes + own_bytes + above > step_bytes {
            // Without the run of the bottom that does not fit, unless it is the first.
            if bytes > 0 {
                return Ok(Bounds { low, high: begin });
            }
            let above_max = options.pair_sizes.own_of(step_bytes.saturating_sub(own_bytes));
            if let Some(cut) = cut_of(levels, &inside, &start, above_max)? {
                return Ok(Bounds { low, high: Some(cut) });
            }
        }
        bytes += own_bytes + above;
        if fence.is_none() || range.high.is_some() && fence >= range.high {
            let outside = Bounds { low: range.high.clone(), high: fence.clone() };
            let outside_max = size.outside.min(step_bytes.saturating_sub(bytes));
            let is_little = range.high.is_none() || pairs(&outside)? <= outside_max;
            return Ok(Bounds { low, high: if is_little { fence } else { range.high.clone() } });
        }
        (at, begin) = (Some(next), fence);
    }
    Ok(Bounds { low, high: range.high.clone() })
}

/// Returns a key of `inside` behind `start` before which at most about `bytes_max` are above the bottom; if
/// one key has more, the key after it; `None` if there is none.
fn cut_of(levels: &Levels, inside: &Bounds, start: &Fence, bytes_max: u64) -> Result<Option<Fence>> {
    let least = Bounds { low: Some(start.clone()), high: inside.high.clone() };
    let mut bytes = bytes_max;
    loop {
        let layers: Vec<Layer> = levels.upper().map(|component| component.slices(&least)).collect();
        let Some(cut) = key_after(layers, bytes)?.filter(|cut| start < cut) else { return Ok(None) };
        let before = Bounds { low: inside.low.clone(), high: Some(cut.clone()) };
        // Sizes are known by pages.
        if bytes == 0 || above_bytes(levels, &before)? <= bytes_max {
            return Ok(Some(cut));
        }
        bytes /= 2;
    }
}

/// Returns the low end of a step; `first`: the run of the bottom whose fence is at or before `start`.
fn low_of(
    levels: &Levels,
    first: Option<usize>,
    range: &Bounds,
    start: &Fence,
    outside_max: u64,
) -> Result<Option<Fence>> {
    let Some(level_run) = first.and_then(|first| levels.bottom.get(first)) else {
        return Ok(range.low.clone());
    };
    let extent = level_run.extent()?;
    if extent.high <= *start {
        return Ok(range.low.clone().max(Some(extent.high)));
    }
    let fence = level_run.fenced.low.as_low().filter(|_| first > Some(0));
    // Everything of the run is rewritten, and nothing of the range is left before it.
    let least = extent.low.min(range.low.clone().unwrap_or_default()).as_low();
    let outside = Bounds { low: fence.clone(), high: least.clone() };
    let is_little = least.is_none() || above_bytes(levels, &outside)? <= outside_max;
    Ok(if is_little { fence } else { least })
}

/// The result of a step: its destination in the bottom with the runs for it, unless there is nothing to
/// write.
type WrittenDown = Option<(Destination, Vec<LevelRun>)>;

/// Plans and writes a step.
pub(crate) fn write_range(
    levels: &Levels,
    bounds: &Bounds,
    work: &Work,
    options: &LsmOptions,
) -> Result<(WrittenStep, WrittenDown)> {
    let range = rewritten_runs(&levels.bottom, bounds)?;
    let mut layers: Vec<MergeLayer> =
        levels.upper().map(|component| runs_within(component, bounds)).collect();
    layers.retain(|layer| !matches!(layer, MergeLayer::Runs(runs) if runs.is_empty()));
    layers.push(own_layer(&levels.bottom, range.clone()));
    let cells = plan_cells(&layers, bounds, Floor::Bottom, options)?;
    let (start, border) = (bounds.low.clone(), bounds.high.clone());
    let (place, counts) = (Place::Bottom, WrittenCounts::default());
    let mut down = Destination { place, range, cells, start, border, incoming: 0, emptied: None, counts };
    down.state_covers(levels)?;
    let mut destinations = vec![down];
    destinations.extend(heads_of(levels, bounds)?);
    let mut written = write_all(&mut destinations, work, options, levels.job_forecast(options))?;
    let heads = written.split_off(1);
    let written = destinations.into_iter().next().zip(written.pop());
    Ok((WrittenStep { bounds: bounds.clone(), heads }, written))
}

/// Returns the runs of the bottom that a step replaces. Unlike `within`, compares long keys completely: a
/// run that ends before the step is no source of it.
fn rewritten_runs(bottom: &Component, bounds: &Bounds) -> Result<Range<usize>> {
    let mut range = bottom.within(bounds);
    while let Some(low) = &bounds.low
        && !range.is_empty()
        && let Some(first) = bottom.get(range.start)
        && first.extent()?.high <= *low
    {
        range.start += 1;
    }
    Ok(range)
}

/// Returns the number of sequences that flushes have added to those above the bottom; `None` if anything else
/// has changed.
fn newer_components(planned: &Levels, now: &Levels) -> Option<usize> {
    let (before, all): (Vec<&Component>, Vec<&Component>) =
        (planned.upper().collect(), now.upper().collect());
    let newer = all.len().checked_sub(before.len())?;
    let are_same = before.iter().zip(&all[newer..]).all(|(one, other)| one.is_same(other));
    (are_same && planned.bottom.is_same(&now.bottom)).then_some(newer)
}

impl WrittenStep {
    /// Puts the step into `levels`; `None` if its input has changed.
    pub(crate) fn put_into(
        self,
        planned: &Levels,
        (down, runs): (Destination, Vec<LevelRun>),
        mut levels: Levels,
    ) -> Result<Option<Levels>> {
        let Self { bounds, heads } = self;
        let Some(newer) = newer_components(planned, &levels) else { return Ok(None) };
        let buffers: Vec<Option<Arc<CompactionBuffer>>> =
            levels.components().map(|component| component.buffer().cloned()).collect();
        levels.take_out(&bounds, newer, &mut heads.into_iter())?;
        levels.install(down, runs)?;
        let mut next_object = levels.next_object;
        for (component, before) in levels.components_mut().zip(buffers) {
            if component.buffer().is_none()
                && let Some(before) = before
            {
                component.set_buffer(barred(&before, &bounds, &mut next_object));
            }
        }
        levels.next_object = next_object;
        Ok(Some(levels))
    }
}

/// Returns a buffer without answers inside `bounds`, where its sequence has changed.
fn barred(
    buffer: &CompactionBuffer,
    bounds: &Bounds,
    next_object: &mut u64,
) -> Option<Arc<CompactionBuffer>> {
    let barrier = BufferSection::barrier(bounds.low.clone().unwrap_or_default(), bounds.high.clone());
    CompactionBuffer::of_layers(stacked(&buffer.layers, vec![vec![barrier]], bounds), next_object)
}
