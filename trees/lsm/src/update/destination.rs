//! Destinations of merges: the ranges that their runs cover, and their installation.
//!
//! **Invariants**
//! - The covered range of a run has no keys in other runs of its sequence.
//! - The covered range of a merged run of the bottom is covered by runs of the bottom that are no older, or
//!   the run is kept as a witness.

use std::ops::Range;

use testudo_base::{Result, Seqno, planted};
use testudo_sequence::{Bounds, Fence};

use crate::{
    levels::{
        Levels,
        component::{Component, Extent, LevelRun},
        written_counts::WrittenCounts,
    },
    update::plan::{Cell, Floor, Merge},
};

/// Place of a merge's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Into level 1, as one of the sequences that fill it, replacing `count` existing ones.
    Parts {
        from: usize,
        count: usize,
    },
    /// Into the sequence that fills this level.
    Level(usize),
    Bottom,
}

/// A part of a sequence to rewrite.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) place: Place,
    /// The runs of the sequence that the cells replace.
    pub(crate) range: Range<usize>,
    pub(crate) cells: Vec<Cell>,
    /// Entries before this are not merged, even if they are buffered above.
    pub(crate) start: Option<Fence>,
    /// Entries from here on are not merged.
    pub(crate) border: Option<Fence>,
    /// Approximate bytes from above.
    pub(crate) incoming: u64,
    /// The level whose emptying part was moved down up to the border.
    pub(crate) emptied: Option<usize>,
    /// Set after writing.
    pub(crate) counts: WrittenCounts,
}

impl Destination {
    /// Approximate bytes merged into it.
    pub(crate) fn merged_bytes(&self) -> u64 {
        let bytes_of = |cell: &Cell| match cell {
            Cell::Merge(merge) | Cell::Pages(_, merge) => merge.bytes,
            Cell::Stays(_) => 0,
        };
        self.cells.iter().map(bytes_of).sum()
    }

    /// Sets the covered ranges of merges into the bottom of `levels`. The first and the last of them extend
    /// to the neighbors of the replaced runs where no level has keys in between: otherwise nothing would
    /// cover such a gap, and a replaced run that did would be kept.
    pub(crate) fn state_covers(&mut self, levels: &Levels) -> Result<()> {
        if self.place != Place::Bottom {
            return Ok(());
        }
        let (before, after) = self.neighbors(&levels.bottom)?;
        let last = match &self.border {
            Some(border) => Some(after.clone().map_or(border.clone(), |after| after.min(border.clone()))),
            None => after.clone(),
        };
        let count = self.cells.len();
        let mut end = before.clone().max(self.start.clone());
        for at in 0..count {
            let next = match self.cells.get(at + 1) {
                Some(Cell::Stays(level_run)) => Some(level_run.extent()?.low),
                Some(Cell::Merge(merge) | Cell::Pages(_, merge)) => merge.bounds.low.clone(),
                None => last.clone(),
            };
            match &mut self.cells[at] {
                Cell::Stays(level_run) => end = Some(end_of(level_run)?),
                Cell::Pages(_, merge) => end.clone_from(&merge.bounds.high),
                Cell::Merge(merge) => {
                    if merge.floor == Floor::Bottom {
                        merge.bounds = cover_of(merge, end.as_ref(), next.as_ref());
                        let Bounds { low, high } = &mut merge.bounds;
                        if at == 0 && levels.has_none_above(before.as_ref(), low.as_ref())? {
                            low.clone_from(&before);
                        }
                        if at + 1 == count
                            && high.is_some()
                            && levels.has_none_above(high.as_ref(), after.as_ref())?
                        {
                            high.clone_from(&after);
                        }
                    }
                    end.clone_from(&merge.bounds.high);
                }
            }
        }
        Ok(())
    }

    /// Returns the exclusive end of the run before the replaced ones, and the first key behind them: that of
    /// the next run, or the border if the last replaced run keeps entries behind it.
    fn neighbors(&self, own: &Component) -> Result<(Option<Fence>, Option<Fence>)> {
        let before = self.range.start.checked_sub(1).and_then(|before| own.get(before));
        let before = before.map(end_of).transpose()?;
        let last = self.range.clone().next_back().and_then(|last| own.get(last));
        if let (Some(border), Some(last)) = (&self.border, last)
            && end_of(last)? > *border
        {
            return Ok((before, Some(border.clone())));
        }
        let after = own.get(self.range.end).map(LevelRun::extent).transpose()?;
        Ok((before, after.map(|extent| extent.low)))
    }

    /// Sets floor and covered range of merges with nothing below them in `below`.
    pub(crate) fn state_floors(&mut self, below: &[&Component]) -> Result<()> {
        for at in 0..self.cells.len() {
            let neighbour = |cell: Option<&Cell>| -> Result<Option<Extent>> {
                let Some(Cell::Stays(level_run)) = cell else { return Ok(None) };
                level_run.extent().map(Some)
            };
            let before = neighbour(at.checked_sub(1).and_then(|before| self.cells.get(before)))?;
            let after = neighbour(self.cells.get(at + 1))?;
            let Cell::Merge(merge) = &mut self.cells[at] else { continue };
            let (mut low, mut high) = (before.map(|extent| extent.high), after.map(|extent| extent.low));
            let mut is_free = true;
            for component in below {
                let range = component.within(&merge.bounds);
                is_free &= range.is_empty();
                if let Some(level_run) = range.start.checked_sub(1).and_then(|before| component.get(before)) {
                    low = low.max(Some(level_run.extent()?.high));
                }
                if let Some(level_run) = component.get(range.end) {
                    let next = level_run.extent()?.low;
                    high = Some(high.map_or(next.clone(), |high| high.min(next)));
                }
            }
            if is_free {
                merge.floor = Floor::Nothing;
                merge.bounds = Bounds { low, high };
            }
        }
        Ok(())
    }
}

/// Returns the exclusive upper bound of a run's keys.
fn end_of(level_run: &LevelRun) -> Result<Fence> {
    level_run.extent().map(|extent| extent.high)
}

/// Returns the keys of a merge and those covered by its runs of the bottom, clipped by its neighbors.
fn cover_of(merge: &Merge, end: Option<&Fence>, next: Option<&Fence>) -> Bounds {
    let covers = || merge.consumed.iter().filter_map(|level_run| level_run.cover.as_ref());
    let mut low = merge.bounds.low.clone();
    let mut high = merge.bounds.high.clone();
    for cover in covers() {
        low = match (&low, &cover.low) {
            (Some(low), Some(other)) => Some(low.min(other).clone()),
            _ => None,
        };
        high = match (&high, &cover.high) {
            (Some(high), Some(other)) => Some(high.max(other).clone()),
            _ => None,
        };
    }
    let low = low.as_ref().max(end).cloned();
    let high = match (high.as_ref(), next) {
        (Some(high), Some(next)) => Some(high.min(next).clone()),
        (high, next) => high.or(next).cloned(),
    };
    Bounds { low, high }
}

/// Replaces the runs of `own` in `range` with `runs`. `border`: entries of the last replaced run from there
/// on stay.
pub(crate) fn put_in_place(
    own: &Component,
    range: Range<usize>,
    mut runs: Vec<LevelRun>,
    border: Option<&Fence>,
    next_object: &mut u64,
) -> Result<Component> {
    debug_assert!(range.end <= own.len(), "runs of the sequence");
    let mut range = range;
    let last = range.end.checked_sub(1).filter(|last| *last >= range.start).and_then(|last| own.get(last));
    if let (Some(border), Some(last)) = (border, last) {
        let is_kept =
            runs.iter().any(|level_run| level_run.run().reference().id == last.run().reference().id);
        if !is_kept && last.extent()?.high > *border && !planted!("output-beyond-border") {
            runs.extend(last.clipped_at(border)?);
        }
    }
    // If the new keys extend beyond the next fence, that moves up to the run's first key.
    if let (Some(new), Some(next)) = (runs.last(), own.get(range.end))
        && next.fenced.low < new.extent()?.high
        && !planted!("level-overlap")
    {
        let mut next = next.clone();
        next.fenced.low = next.extent()?.low;
        runs.push(next);
        range.end += 1;
    }
    own.splice(range, runs, next_object)
}

/// Whether runs of the bottom no older than `age` together cover all keys of `cover`.
pub(crate) fn is_stated(bottom: &Component, cover: &Bounds, age: Seqno) -> bool {
    let within = bottom.within(cover);
    let near = within.start.saturating_sub(1)..(within.end + 1).min(bottom.len());
    let mut covers: Vec<&Bounds> = bottom
        .range(near)
        .filter(|level_run| level_run.newest_seqno() >= age)
        .filter_map(|level_run| level_run.cover.as_ref())
        .collect();
    covers.sort_by(|a, b| a.low.cmp(&b.low));
    let mut stated = cover.low.clone();
    for next in covers {
        if next.low > stated {
            return false;
        }
        match &next.high {
            None => return true,
            high if *high > stated => stated.clone_from(high),
            _ => {}
        }
        if cover.high.is_some() && stated >= cover.high {
            return true;
        }
    }
    false
}

impl Levels {
    /// Whether no sequence above the bottom has a run with keys from `low` up to `high`; no bound is none.
    /// Long keys are compared completely.
    fn has_none_above(&self, low: Option<&Fence>, high: Option<&Fence>) -> Result<bool> {
        let bounds = Bounds { low: low.cloned(), high: high.cloned() };
        if bounds.is_empty() {
            return Ok(true);
        }
        for component in self.upper() {
            for level_run in component.range(component.within(&bounds)) {
                let extent = level_run.extent()?;
                if high.is_none_or(|high| extent.low < *high) && low.is_none_or(|low| *low < extent.high) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Keeps those of `consumed`, former runs of the bottom, whose covered range no run of the bottom covers;
    /// drops witnesses that are no longer needed.
    pub(crate) fn keep_witnesses(&mut self, consumed: Vec<LevelRun>) {
        let bottom = &self.bottom;
        let is_needed = |level_run: &LevelRun| {
            let cover = level_run.cover.as_ref();
            cover.is_some_and(|cover| !is_stated(bottom, cover, level_run.newest_seqno()))
        };
        self.witnesses.extend(consumed);
        self.witnesses.sort_by_key(|level_run| level_run.run().reference().id);
        self.witnesses.dedup_by_key(|level_run| level_run.run().reference().id);
        self.witnesses.retain(is_needed);
        debug_assert!(self.witnesses.iter().all(|run| run.cover.is_some()), "a witness covers keys");
    }
}
