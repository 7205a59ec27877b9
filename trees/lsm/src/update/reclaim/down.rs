//! A reclaim step that moves everything above a few runs of the bottom down to them at once.
//!
//! **Invariants**
//! - The part of an upper run before the keys of the step is rewritten with its old age; the part after them
//!   stays where it is.

use std::ops::Range;

use testudo_base::{Result, RunId};
use testudo_contract::{Height, Work};
use testudo_sequence::{Bounds, Layer, key_after};

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
        plan::{Cell, Floor, Merge, MergeLayer, plan_cells, runs_within},
        reclaim::waiting::bounds_of,
        write::write_all,
    },
};

/// Size of a run that stays in a join, in full runs: more than any has.
const JOINED_RUNS: u64 = 4;

/// Merges adjacent runs of the bottom with the entries above them: all of them, or the first ones, up to
/// about `waiting_max` bytes.
pub(crate) fn go_down(
    levels: &mut Levels,
    runs: Range<usize>,
    waiting_max: u64,
    work: &Work,
    options: &LsmOptions,
) -> Result<()> {
    let mut bounds = bounds_of(levels, runs.start, runs.len());
    if waiting_max < u64::MAX {
        let waiting = levels.upper().map(|component| component.slices(&bounds)).collect();
        if let Some(cut) = key_after(waiting, waiting_max)? {
            bounds.high = Some(cut);
        }
    }
    let range = levels.bottom.within(&bounds);
    let mut layers: Vec<MergeLayer> =
        levels.upper().map(|component| runs_within(component, &bounds)).collect();
    layers.retain(|layer| !matches!(layer, MergeLayer::Runs(runs) if runs.is_empty()));
    if runs.len() > 1 {
        // Each is a layer of its own: a single layer would stay as it is.
        layers.extend(
            levels.bottom.range(range.clone()).map(|level_run| MergeLayer::Runs(vec![level_run.clone()])),
        );
        layers.push(MergeLayer::Runs(Vec::new()));
    } else {
        layers.push(own_layer(&levels.bottom, range.clone()));
    }
    // When joining, no run must be considered large enough to stay.
    let run_bytes = if runs.len() > 1 { options.run_bytes * JOINED_RUNS } else { options.run_bytes };
    let mut cells = plan_cells(&layers, &bounds, Floor::Bottom, &LsmOptions { run_bytes, ..*options })?;
    for cell in &mut cells {
        let Cell::Merge(merge) = cell else { continue };
        if runs.len() > 1 {
            merge.consumed = levels.bottom.range(range.clone()).cloned().collect();
        }
    }
    let border = bounds.high.clone();
    let start = bounds.low.clone();
    let (place, inflow) = (Place::Bottom, Inflow::default());
    let mut down = Destination { place, range, cells, start, border, incoming: 0, emptied: None, inflow };
    down.state_covers(&levels.bottom)?;
    let mut destinations = vec![down];
    destinations.extend(heads_of(levels, &bounds)?);
    let mut written = write_all(&mut destinations, work, options)?;
    let mut heads = written.split_off(1).into_iter();
    levels.take_out(&bounds, &mut heads)?;
    debug_assert_eq!(heads.len(), 0, "each rewritten part has its sequence");
    for (down, runs) in destinations.into_iter().zip(written) {
        levels.install(down, runs)?;
    }
    Ok(())
}

/// Returns merges of the parts before `bounds` of upper runs that extend into `bounds`, one for each sequence
/// with such a run, to be written.
pub(crate) fn heads_of(levels: &Levels, bounds: &Bounds) -> Result<Vec<Destination>> {
    let mut heads = Vec::new();
    for component in levels.upper() {
        heads.extend(head_of(component, bounds)?.map(Destination::of_head));
    }
    Ok(heads)
}

impl Destination {
    /// Creates a destination for a merge that is only written: the caller installs its runs.
    pub(crate) fn of_head(head: Merge) -> Self {
        let (place, cells, inflow) = (Place::Bottom, vec![Cell::Merge(head)], Inflow::default());
        Self { place, range: 0..0, cells, start: None, border: None, incoming: 0, emptied: None, inflow }
    }
}

pub(crate) fn head_of(component: &Component, bounds: &Bounds) -> Result<Option<Merge>> {
    let Some(low) = &bounds.low else { return Ok(None) };
    let first = inside(component, bounds)?.next().and_then(|first| component.get(first));
    let Some(level_run) = first else { return Ok(None) };
    let extent = level_run.extent()?;
    if extent.low >= *low {
        return Ok(None);
    }
    let before = Bounds { low: extent.low.as_low(), high: Some(low.clone()) };
    let slices: Layer = level_run.slice().clipped(&before).into_iter().collect();
    let mut bytes = 0;
    for slice in &slices {
        bytes += slice.bytes_within(&before)?;
    }
    let (newest_seqno, floor) = (level_run.newest_seqno(), Floor::Entries(Height::Upper));
    let (layers, has_own, cuts, consumed) = (vec![slices], true, Vec::new(), Vec::new());
    Ok(Some(Merge { layers, has_own, bytes, bounds: before, newest_seqno, floor, cuts, consumed }))
}

/// Returns the runs of a sequence that overlap `bounds`, by their exact keys.
pub(crate) fn inside(component: &Component, bounds: &Bounds) -> Result<Range<usize>> {
    let mut within = component.within(bounds);
    let misses = |at: usize| -> Result<bool> {
        let extent = component.get(at).map(LevelRun::extent).transpose()?;
        Ok(extent.is_none_or(|extent| !extent.meets(bounds)))
    };
    while !within.is_empty() && misses(within.start)? {
        within.start += 1;
    }
    while !within.is_empty() && misses(within.end - 1)? {
        within.end -= 1;
    }
    debug_assert!(within.end <= component.len(), "runs of the sequence");
    Ok(within)
}

impl Levels {
    /// Removes everything inside `bounds` from all levels above the bottom. `heads`: the written results of
    /// [`heads_of`].
    pub(crate) fn take_out(
        &mut self,
        bounds: &Bounds,
        heads: &mut impl Iterator<Item = Vec<LevelRun>>,
    ) -> Result<()> {
        let Self { levels, next_object, .. } = self;
        let all = levels.iter_mut().flat_map(|level| level.filling.iter_mut().chain(&mut level.emptying));
        for component in all {
            let within = inside(component, bounds)?;
            if within.is_empty() {
                continue;
            }
            let has_head = head_of(component, bounds)?.is_some();
            let mut rest = if has_head { heads.next().unwrap_or_default() } else { Vec::new() };
            if let Some(first) = rest.first_mut()
                && let Some(replaced) = component.get(within.start)
            {
                first.fenced.low = replaced.fenced.low.clone();
            }
            let last = within.end.checked_sub(1).filter(|last| *last >= within.start);
            if let (Some(last), Some(high)) = (last.and_then(|last| component.get(last)), &bounds.high)
                && last.extent()?.high > *high
            {
                rest.extend(last.clipped_at(high)?);
            }
            *component = component.splice(within, rest, next_object)?;
        }
        Ok(())
    }
}

/// Rewrites a run without its part before its fence.
pub(crate) fn write_anew(levels: &mut Levels, run: RunId, work: &Work, options: &LsmOptions) -> Result<()> {
    let mut replaced = None;
    let Levels { levels: upper, bottom, next_object, .. } = levels;
    let all = upper.iter_mut().flat_map(|level| level.filling.iter_mut().chain(&mut level.emptying));
    for (component, is_bottom) in all.map(|upper| (upper, false)).chain([(bottom, true)]) {
        let Some(at) = component.iter().position(|level_run| level_run.run().reference().id == run) else {
            continue;
        };
        let Some(level_run) = component.get(at).cloned() else { continue };
        let extent = level_run.extent()?;
        let mut bounds = extent.to_bounds();
        if let Some(cover) = level_run.cover.as_ref().filter(|_| is_bottom) {
            let next = component.get(at + 1).map(LevelRun::extent).transpose()?.map(|next| next.low);
            let high = cover.high.as_ref().map(|high| high.max(&extent.high).clone());
            bounds.high = match (high, next) {
                (Some(high), Some(next)) => Some(high.min(next)),
                (high, next) => high.or(next),
            };
        }
        let merge = Merge {
            layers: vec![vec![level_run.slice()]],
            has_own: true,
            bytes: level_run.bytes,
            bounds,
            newest_seqno: level_run.newest_seqno(),
            floor: if is_bottom { Floor::Bottom } else { Floor::Entries(Height::Upper) },
            cuts: Vec::new(),
            consumed: vec![level_run.clone()],
        };
        let (place, cells) = (Place::Bottom, vec![Cell::Merge(merge)]);
        let mut anew = vec![Destination {
            place,
            range: at..at + 1,
            cells,
            start: None,
            border: None,
            incoming: 0,
            emptied: None,
            inflow: Inflow::default(),
        }];
        let mut runs: Vec<LevelRun> = write_all(&mut anew, work, options)?.into_iter().flatten().collect();
        if let Some(first) = runs.first_mut() {
            first.fenced.low = level_run.fenced.low.clone();
        }
        *component = component.splice(at..at + 1, runs, next_object)?;
        replaced = Some((level_run, is_bottom));
        break;
    }
    debug_assert!(replaced.is_some(), "the run was picked from this state");
    if let Some((level_run, true)) = replaced {
        levels.keep_witnesses(vec![level_run]);
    }
    Ok(())
}
