//! Installing the output of a job in the current levels.
//!
//! Flushes in the meantime may have added sequences before those that fill level 1, or handed that level
//! over. Jobs on other layers may have been installed. A job is overtaken if any of its inputs or replaced
//! runs has changed. Covered ranges stay true: other jobs move keys that were above the bottom when this one
//! was planned, and what flushes add is newer than its output.
//!
//! **Invariants**
//! - The result is the same as if the job had been planned on the current levels.
//! - Jobs whose scopes do not overlap are installed in any order, with the same result.

use testudo_base::{Result, planted};

use crate::{
    LsmOptions,
    levels::{
        Level, Levels,
        component::{Component, LevelRun},
        repeats::Repeats,
    },
    read_charges::ReadPayment,
    update::{
        compact_range::WrittenStep,
        destination::{Destination, Place},
    },
};

/// Output of a job.
pub(crate) struct Done {
    /// The levels that it was planned on.
    pub(crate) planned: Levels,
    /// The level that it has handed over.
    pub(crate) handed_over: Option<usize>,
    /// Its destination, with the runs written.
    pub(crate) written: Option<(Destination, Vec<LevelRun>)>,
    /// The piece of a range whose destination it is.
    pub(crate) piece: Option<WrittenStep>,
    /// Read charges that it has deducted.
    pub(crate) payment: Option<ReadPayment>,
}

impl Done {
    /// Returns `now` with the job installed; `None` if it was overtaken. Merged runs stay in compaction
    /// buffers, as `options` permit.
    pub(crate) fn put_into(mut self, now: &Levels, options: &LsmOptions) -> Result<Option<Levels>> {
        let payment = self.payment.take();
        let levels = self.rebased(now, options)?;
        if levels.is_some() {
            payment.into_iter().for_each(ReadPayment::spend);
        }
        Ok(levels)
    }

    fn rebased(self, now: &Levels, options: &LsmOptions) -> Result<Option<Levels>> {
        let Self { planned, handed_over, written, piece, .. } = self;
        let mut levels = if planted!("job-on-changed-levels") { planned.clone() } else { now.clone() };
        if let Some(level) = handed_over
            && !hand_over_as_in(&planned, level, &mut levels)
        {
            return Ok(None);
        }
        let Some((mut destination, runs)) = written else { return Ok(Some(levels)) };
        if let Some(piece) = piece {
            return piece.put_into(&planned, (destination, runs), levels);
        }
        let Some(place) = place_in(&planned, &destination, &levels) else { return Ok(None) };
        debug_assert!(
            levels.component_at(place).is_same(&planned.component_at(destination.place))
                || planted!("job-on-changed-levels"),
            "the sequence that changes is the planned one"
        );
        destination.place = place;
        if options.retained_percent > 0 {
            levels.install_retaining(destination, runs, options)?;
        } else {
            levels.install(destination, runs)?;
        }
        Ok(Some(levels))
    }
}

fn are_same(some: &[Component], others: &[Component]) -> bool {
    some.len() == others.len() && some.iter().zip(others).all(|(one, other)| one.is_same(other))
}

/// Hands over the level of the job, unless that was done already; returns `false` if it no longer exists.
fn hand_over_as_in(planned: &Levels, level: usize, levels: &mut Levels) -> bool {
    let (Some(planned), Some(level)) = (planned.levels.get(level), levels.levels.get_mut(level)) else {
        return false;
    };
    let behind = level.filling.len().checked_sub(planned.emptying.len());
    match behind {
        _ if level.is_emptying() => {}
        Some(newer) if are_same(&level.filling[newer..], &planned.emptying) => {
            level.emptying = level.filling.split_off(newer);
            level.began_bytes = planned.began_bytes;
            level.repeats = Repeats::default();
        }
        _ => return false,
    }
    are_same(&level.emptying, &planned.emptying)
}

/// Returns the current place of the destination, if it and its inputs are unchanged.
fn place_in(planned: &Levels, destination: &Destination, levels: &Levels) -> Option<Place> {
    if let Some(emptied) = destination.emptied {
        let of = |levels: &Levels| levels.levels.get(emptied).map(|level| level.emptying.clone());
        if !are_same(&of(planned)?, &of(levels)?) {
            return None;
        }
    }
    match destination.place {
        Place::Parts { from, count } => {
            let parts = &planned.levels.first()?.filling[from..from + count];
            let mut windows = levels.levels.first()?.filling.windows(count);
            let from = windows.position(|window| are_same(window, parts))?;
            Some(Place::Parts { from, count })
        }
        Place::Level(level) => {
            let is_there = level < levels.levels.len();
            let place = destination.place;
            (is_there && planned.component_at(place).is_same(&levels.component_at(place))).then_some(place)
        }
        Place::Bottom => {
            // A level created since then is empty.
            let from = destination.emptied.map_or(levels.levels.len(), |emptied| emptied + 1);
            let is_next = levels.levels[from..].iter().all(Level::is_empty);
            (is_next && planned.bottom.is_same(&levels.bottom)).then_some(Place::Bottom)
        }
    }
}
