//! Moving a range of keys to the bottom: in steps, each from all levels above at once.
//!
//! A step begins at the first key of the range above the bottom. Its ends are fences of runs of the bottom,
//! so that these are rewritten whole, unless much data outside the range would come with them. A run of an
//! upper level that begins before the step is cut there (`take_out.rs`); behind the step it is clipped.
//! The next step begins where the last one ended, so only the first one cuts runs.
//!
//! **Invariants**
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
        repeats::Inflow,
    },
    update::{
        destination::{Destination, Place},
        moves::own_layer,
        plan::{Floor, MergeLayer, plan_cells, runs_within},
        take_out::heads_of,
        write::write_all,
    },
};

/// A step ends when about this many full runs are to be written.
const STEP_RUNS: u64 = 4;
/// Maximum full runs of bytes outside the range that each end of it may add to a step. Above one run of the
/// bottom there is rarely as much, except after its last run.
const OUTSIDE_RUNS: u64 = 4;

/// A step that was written.
pub(crate) struct WrittenStep {
    bounds: Bounds,
    /// The rewritten parts of runs above the bottom that begin before the step.
    heads: Vec<Vec<LevelRun>>,
}

/// Picks the first step of `range` that has data above the bottom, and returns its bounds.
pub(crate) fn pick_step(levels: &Levels, options: &LsmOptions, range: &KeyBounds) -> Result<Option<Bounds>> {
    let range = Bounds::from(range);
    let start = first_above(levels, &range)?;
    start.map(|start| step_from(levels, options, &range, &start)).transpose()
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

/// Returns the bounds of the step that begins at `start`, the first key of `range` above the bottom.
fn step_from(levels: &Levels, options: &LsmOptions, range: &Bounds, start: &Fence) -> Result<Bounds> {
    let outside_max = options.run_bytes * OUTSIDE_RUNS;
    let step_bytes = options.run_bytes * STEP_RUNS;
    let bottom = &levels.bottom;
    let next = bottom.runs_up_to(&start.bytes());
    let first = next.checked_sub(1);
    let low = low_of(levels, first, range, start, outside_max)?;
    let (mut at, mut bytes) = (first, 0);
    let mut begin = low.clone();
    for next in next..=bottom.len() {
        let own_bytes = at.and_then(|at| bottom.get(at)).map_or(0, |level_run| level_run.bytes);
        let fence = bottom.get(next).map(|level_run| level_run.fenced.low.clone());
        let between = Bounds { low: begin, high: fence.clone() };
        let inside = between.intersection(range);
        let above = above_bytes(levels, &inside)?;
        if above > step_bytes {
            let layers: Vec<Layer> = levels.upper().map(|component| component.slices(&inside)).collect();
            let cut = key_after(layers, step_bytes.saturating_sub(bytes))?;
            let cut = cut.filter(|cut| start < cut);
            if cut.is_some() {
                return Ok(Bounds { low, high: cut });
            }
        }
        bytes += own_bytes + above;
        if fence.is_none() || range.high.is_some() && fence >= range.high {
            let outside = Bounds { low: range.high.clone(), high: fence.clone() };
            let is_little = range.high.is_none() || above_bytes(levels, &outside)? <= outside_max;
            return Ok(Bounds { low, high: if is_little { fence } else { range.high.clone() } });
        }
        if bytes >= step_bytes {
            return Ok(Bounds { low, high: fence });
        }
        (at, begin) = (Some(next), fence);
    }
    Ok(Bounds { low, high: range.high.clone() })
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
    let (place, inflow) = (Place::Bottom, Inflow::default());
    let mut down = Destination { place, range, cells, start, border, incoming: 0, emptied: None, inflow };
    down.state_covers(levels)?;
    let mut destinations = vec![down];
    destinations.extend(heads_of(levels, bounds)?);
    let mut written = write_all(&mut destinations, work, options)?;
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
