//! Taking a range of keys out of all levels above the bottom, for a merge with the bottom.
//!
//! **Invariants**
//! - The part of a run before the range is rewritten with its old age; the part after it is clipped, and
//!   stays where it is.

use std::ops::Range;

use testudo_base::Result;
use testudo_contract::Height;
use testudo_sequence::{Bounds, Layer};

use crate::{
    levels::{
        Levels,
        component::{Component, LevelRun},
        written_counts::WrittenCounts,
    },
    update::{
        destination::{Destination, Place},
        plan::{Cell, Floor, Merge},
    },
};

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
        let (place, cells, counts) = (Place::Bottom, vec![Cell::Merge(head)], WrittenCounts::default());
        Self { place, range: 0..0, cells, start: None, border: None, incoming: 0, emptied: None, counts }
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
    /// Removes everything inside `bounds` from all levels above the bottom, except the `newer` newest
    /// sequences. `heads`: the written results of [`heads_of`].
    pub(crate) fn take_out(
        &mut self,
        bounds: &Bounds,
        newer: usize,
        heads: &mut impl Iterator<Item = Vec<LevelRun>>,
    ) -> Result<()> {
        let Self { levels, next_object, .. } = self;
        let all = levels.iter_mut().flat_map(|level| level.filling.iter_mut().chain(&mut level.emptying));
        for component in all.skip(newer) {
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
