//! Checks of the levels and, optionally, of everything they refer to: rules that hold under every setting.

use testudo_base::{Error, ErrorKind, Result};
use testudo_sequence::{Bounds, check_run};

use crate::levels::{
    Levels,
    component::{Component, Extent, LevelRun, SEGMENT_RUNS_MAX},
};

/// Checks the levels. Fails with `Corruption` that names the violated rule and the sequence.
pub(crate) fn check(levels: &Levels, deep: bool) -> Result<()> {
    for (number, level) in levels.levels.iter().enumerate() {
        if number > 0 && level.filling.len() > 1 {
            return broken(number, "a level below the first is filled by more than one sequence");
        }
        if level.filling.iter().chain(&level.emptying).any(Component::is_empty) {
            return broken(number, "a sequence of a level is empty");
        }
    }
    let components: Vec<&Component> = levels.components().collect();
    for (number, component) in components.iter().enumerate() {
        check_component(number, component, deep)?;
    }
    if deep {
        check_ages(&components)?;
        for run in levels.runs() {
            check_run(run)?;
        }
    }
    Ok(())
}

fn broken<T>(sequence: usize, what: &str) -> Result<T> {
    Err(Error::new(ErrorKind::Corruption, format!("sequence {sequence} of the levels: {what}")))
}

/// Checks that fences ascend, and are between the keys of adjacent runs.
fn check_component(number: usize, component: &Component, deep: bool) -> Result<()> {
    if component
        .segments()
        .iter()
        .any(|segment| segment.runs.is_empty() || segment.runs.len() > SEGMENT_RUNS_MAX)
    {
        return broken(number, "a segment is empty or too large");
    }
    let mut before: Option<&LevelRun> = None;
    for level_run in component.iter() {
        let low = &level_run.fenced.low;
        if let Some(before) = before {
            if before.fenced.low >= *low {
                return broken(number, "fences do not ascend");
            }
            let keys = &before.run().reference().keys;
            let overlaps = if deep {
                before.extent()?.high > *low && keys_reach(before, level_run)?
            } else {
                keys.reach(&low.head())
            };
            if overlaps {
                return broken(number, "runs of a level overlap");
            }
        }
        before = Some(level_run);
    }
    Ok(())
}

/// Whether the last key of a run is at or after the fence of the next one.
fn keys_reach(level_run: &LevelRun, next: &LevelRun) -> Result<bool> {
    let (_, last) = level_run.run().exact_ends()?;
    Ok(next.fenced.low.is_at_most(&last))
}

/// Order of runs used by salvage.
fn order(level_run: &LevelRun) -> (testudo_base::Seqno, testudo_base::RunId) {
    let run = level_run.run().reference();
    (run.newest_seqno, run.version())
}

/// Checks that each run is newer than any run below whose keys or covered range contain any of its keys. No
/// older run of the bottom may have keys in the covered range of a run of the bottom.
fn check_ages(components: &[&Component]) -> Result<()> {
    for (number, component) in components.iter().enumerate() {
        for level_run in component.iter() {
            let known = known_keys(level_run)?;
            for (above, other) in components[..=number].iter().enumerate() {
                // A cover may extend beyond the fences next to it.
                for upper in other.range(other.within(&known)) {
                    let is_itself = upper.run().reference().id == level_run.run().reference().id;
                    // A run may span keys that a reclaim step has moved down.
                    if !is_itself && order(upper) < order(level_run) && holds_any(upper, &known)? {
                        return broken(above, "a run is older than one below that has or covers its keys");
                    }
                }
            }
        }
    }
    Ok(())
}

fn holds_any(level_run: &LevelRun, bounds: &Bounds) -> Result<bool> {
    level_run.slice().clipped(bounds).map_or(Ok(false), |slice| slice.holds_any(bounds))
}

/// Returns the range of a run's keys and its covered range, united.
fn known_keys(level_run: &LevelRun) -> Result<Bounds> {
    let Extent { low, high } = level_run.extent()?;
    let Some(cover) = &level_run.cover else { return Ok(Bounds { low: low.as_low(), high: Some(high) }) };
    let low = cover.low.as_ref().map(|cover| cover.min(&low).clone());
    let high = cover.high.as_ref().map(|cover| cover.max(&high).clone());
    Ok(Bounds { low, high })
}
