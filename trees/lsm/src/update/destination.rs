//! Where merged runs go, what they state of the keys there, and how they take their place.
//!
//! **Invariants**
//! - What a run states it covers is free of keys that other runs of its sequence hold.
//! - What a run of the bottom said of keys that are gone is said by a run of the bottom that is no older, or
//!   the run is kept for that.

use std::ops::Range;

use testudo_base::{Result, Seqno, planted};
use testudo_sequence::{Bounds, Fence};

use crate::{
    levels::{
        Levels,
        component::{Component, Extent, Held},
        repeats::Inflow,
    },
    update::plan::{Cell, Floor, Merge},
};

/// Where a merge goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Into level 1, as one of the sequences that fill it, in the place of so many that are there.
    Parts {
        from: usize,
        count: usize,
    },
    /// Into the sequence that fills this level.
    Level(usize),
    Bottom,
}

/// A part of a sequence that is written anew.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) place: Place,
    /// The runs of the sequence in whose place the cells stand.
    pub(crate) range: Range<usize>,
    pub(crate) cells: Vec<Cell>,
    /// Nothing before this is merged, although it may wait above.
    pub(crate) start: Option<Fence>,
    /// Nothing from here on is merged.
    pub(crate) border: Option<Fence>,
    /// About how many bytes come from above.
    pub(crate) incoming: u64,
    /// The level whose emptying part has gone down up to the border.
    pub(crate) emptied: Option<usize>,
    /// What comes from above into what is written, and how much of it repeats keys: once it is written, and
    /// where compaction buffers are kept.
    pub(crate) inflow: Inflow,
}

impl Destination {
    /// Lets merges that nothing lies below state what they cover. `own`: the sequence that is changed.
    pub(crate) fn state_covers(&mut self, own: &Component) -> Result<()> {
        let end_of = |held: &Held| held.extent().map(|extent| extent.high);
        let before = self.range.start.checked_sub(1).and_then(|before| own.get(before));
        let mut end = before.map(end_of).transpose()?.max(self.start.clone());
        for at in 0..self.cells.len() {
            let mut next = match self.cells.get(at + 1) {
                Some(Cell::Stays(held)) => Some(held.extent()?.low),
                Some(Cell::Merge(merge) | Cell::Pages(_, merge)) => merge.bounds.low.clone(),
                None => own.get(self.range.end).map(Held::extent).transpose()?.map(|extent| extent.low),
            };
            if let Some(border) = self.border.clone() {
                next = Some(next.map_or(border.clone(), |next| next.min(border)));
            }
            match &mut self.cells[at] {
                Cell::Stays(held) => end = Some(end_of(held)?),
                Cell::Pages(_, merge) => end.clone_from(&merge.bounds.high),
                Cell::Merge(merge) => {
                    if merge.floor == Floor::Bottom {
                        merge.bounds = cover_of(merge, end.as_ref(), next.as_ref());
                    }
                    end.clone_from(&merge.bounds.high);
                }
            }
        }
        Ok(())
    }

    /// For merges below which nothing lies in `below`: they state that.
    pub(crate) fn state_floors(&mut self, below: &[&Component]) -> Result<()> {
        for at in 0..self.cells.len() {
            let neighbour = |cell: Option<&Cell>| -> Result<Option<Extent>> {
                let Some(Cell::Stays(held)) = cell else { return Ok(None) };
                held.extent().map(Some)
            };
            let before = neighbour(at.checked_sub(1).and_then(|before| self.cells.get(before)))?;
            let after = neighbour(self.cells.get(at + 1))?;
            let Cell::Merge(merge) = &mut self.cells[at] else { continue };
            let (mut low, mut high) = (before.map(|extent| extent.high), after.map(|extent| extent.low));
            let mut is_free = true;
            for component in below {
                let range = component.within(&merge.bounds);
                is_free &= range.is_empty();
                if let Some(held) = range.start.checked_sub(1).and_then(|before| component.get(before)) {
                    low = low.max(Some(held.extent()?.high));
                }
                if let Some(held) = component.get(range.end) {
                    let next = held.extent()?.low;
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

/// The keys of a merge, and those that its runs of the bottom cover, as far as its neighbours leave them.
fn cover_of(merge: &Merge, end: Option<&Fence>, next: Option<&Fence>) -> Bounds {
    let covers = || merge.consumed.iter().filter_map(|held| held.cover.as_ref());
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

/// `own` with `runs` in the place of those in `range`. `border`: what the last of those holds from there on
/// stays.
pub(crate) fn put_in_place(
    own: &Component,
    range: Range<usize>,
    mut runs: Vec<Held>,
    border: Option<&Fence>,
    next_object: &mut u64,
) -> Result<Component> {
    let mut range = range;
    let last = range.end.checked_sub(1).filter(|last| *last >= range.start).and_then(|last| own.get(last));
    if let (Some(border), Some(last)) = (border, last) {
        let is_kept = runs.iter().any(|held| held.run().reference().id == last.run().reference().id);
        if !is_kept && last.extent()?.high > *border && !planted!("output-beyond-border") {
            runs.extend(last.clipped_at(border)?);
        }
    }
    // A fence that what has come in reaches beyond moves up to the first key behind it.
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

/// Whether runs of the bottom say of all keys of `cover` what a run as old as `age` said.
pub(crate) fn is_stated(bottom: &Component, cover: &Bounds, age: Seqno) -> bool {
    let within = bottom.within(cover);
    let near = within.start.saturating_sub(1)..(within.end + 1).min(bottom.len());
    let mut covers: Vec<&Bounds> = bottom
        .range(near)
        .filter(|held| held.newest_seqno() >= age)
        .filter_map(|held| held.cover.as_ref())
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
    /// Keeps those of `consumed`, runs that the bottom had, that say something which no run of the bottom
    /// says; and gives up those that were kept and are not needed any more.
    pub(crate) fn keep_witnesses(&mut self, consumed: Vec<Held>) {
        let bottom = &self.bottom;
        let is_needed = |held: &Held| {
            let cover = held.cover.as_ref();
            cover.is_some_and(|cover| !is_stated(bottom, cover, held.newest_seqno()))
        };
        self.witnesses.extend(consumed);
        self.witnesses.sort_by_key(|held| held.run().reference().id);
        self.witnesses.dedup_by_key(|held| held.run().reference().id);
        self.witnesses.retain(is_needed);
    }
}
