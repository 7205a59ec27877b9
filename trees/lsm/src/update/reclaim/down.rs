//! A reclaim step that moves everything above a few runs of the bottom down to them at once.
//!
//! **Invariants**
//! - The part of an upper run before the keys of the step is rewritten with its old age; the part after them
//!   stays where it is.

use std::ops::Range;

use testudo_base::{Result, RunId};
use testudo_contract::{Height, Work};
use testudo_sequence::key_after;

use crate::{
    LsmOptions,
    levels::{Levels, component::LevelRun, written_counts::WrittenCounts},
    update::{
        destination::{Destination, Place},
        moves::own_layer,
        plan::{Cell, Floor, Merge, MergeLayer, plan_cells, runs_within},
        reclaim::waiting::bounds_of,
        take_out::heads_of,
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
    let (place, counts) = (Place::Bottom, WrittenCounts::default());
    let mut down = Destination { place, range, cells, start, border, incoming: 0, emptied: None, counts };
    down.state_covers(levels)?;
    let mut destinations = vec![down];
    destinations.extend(heads_of(levels, &bounds)?);
    let mut written = write_all(&mut destinations, work, options, None)?;
    let mut heads = written.split_off(1).into_iter();
    levels.take_out(&bounds, 0, &mut heads)?;
    debug_assert_eq!(heads.len(), 0, "each rewritten part has its sequence");
    for (down, runs) in destinations.into_iter().zip(written) {
        levels.install(down, runs)?;
    }
    Ok(())
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
            counts: WrittenCounts::default(),
        }];
        let mut runs: Vec<LevelRun> =
            write_all(&mut anew, work, options, None)?.into_iter().flatten().collect();
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
