//! The policy: how large levels are, when a level is handed over, how much of it is emptied at a time.
//!
//! All of it is pure arithmetic over byte counts.
//!
//! Level 1 has a few flushes; the bottom has nearly everything; the levels between grow by one factor, as few
//! of them as keep that within [`LsmOptions::growth_factor`]. The gear rule (bLSM, LSbM §2.2) couples what a
//! level lets out with what it takes in: as much of what is emptied should have gone as of the level has been
//! filled. What should have gone and has not is moved by jobs, out of the lowest level first.
//!
//! Flushes that come faster than jobs move fill level 1 beyond that, up to a bound that rises as moves go on:
//! the gear rule once more, with room. More is handed over at once then, so that each byte of it makes
//! fewer bytes of the levels below be written anew.
//!
//! What replaces something is dead weight, or the old is, until they meet at the bottom. So the levels above
//! it are smaller where much is replaced, a part of the bottom that [`LsmOptions::growth_factor`] says, and
//! have less room beyond that.
//!
//! Where values of levels above the bottom lie outside for a while, a placement says whether all of this is
//! reckoned for the bytes that are moved, or for the pairs ([`pair_sizes`]).
//!
//! **Invariants**
//! - A level is handed over only when the one above it is not being emptied: everything in a level is newer
//!   than everything that its emptying part, and what lies below that, has.
//! - Nor is it while the next one is full and waits to be handed over itself: its turn would never come.

pub(crate) mod pair_sizes;
pub(crate) mod simulation;

use std::ops::Range;

use testudo_base::num::usize_of;
use testudo_sequence::Overwrites;

use crate::LsmOptions;

/// One move takes no more than a flush out of a level, nor than about so many bytes …
const MOVE_BYTES: u64 = 16 << 20;
/// … but as much as so many runs have.
const MOVE_RUNS: u64 = 4;
/// What was handed over when it was more than so many halves of what a level should have goes without delay.
const LATE_HALVES: u64 = 3;
/// Flushes that come faster than moves may fill level 1 so many times more than it should be.
const PRESSED: u64 = 3;
/// The same where everything replaces something.
const PRESSED_IF_OVERWRITING: u64 = 1;
/// Flushes of less than this part of a run are merged with each other, up to [`JOINED_RUNS`] runs.
const JOINED_RUNS: u64 = 4;
/// No fewer sequences than these are merged because there are too many of them.
const MANY_PARTS: usize = 8;
/// The last level above the bottom has this part of it at least, however little of its pairs the tree has.
const WAITING_PARTS_MAX: u64 = 32;
/// An idle tree leaves no more than this part of the bottom above it, where everything replaces something.
const IDLE_PARTS_IF_OVERWRITING: u64 = 20;
/// The same where everything is new: it is not dead weight.
const IDLE_PARTS_IF_NEW: u64 = 1;
/// The same where pages are updated: a key is to lie on one page, and scans on those beside it (TreeLine).
const IDLE_PARTS_OF_PAGES: u64 = 128;
/// About the most bytes that one piece of idle work lets out of a level.
pub(crate) const IDLE_BYTES: u64 = 8 << 20;

/// A record is rewritten about five times for each tenfold growth, so about this often for each doubling.
pub(crate) const REWRITES_PER_DOUBLING: f64 = 1.5;

/// Bytes of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LevelBytes {
    pub(crate) filling: u64,
    pub(crate) emptying: u64,
    /// What was there to empty at first.
    pub(crate) began: u64,
}

/// Bytes of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeBytes {
    /// From level 1 on.
    pub(crate) levels: Vec<LevelBytes>,
    pub(crate) bottom: u64,
    /// Of an entry of the bottom, on average.
    pub(crate) bottom_entry: u64,
    /// Of a flush, usually.
    pub(crate) flush: u64,
    pub(crate) overwrites: Overwrites,
}

impl TreeBytes {
    /// About how many bytes are written where `bytes` are moved out of a level, if keys are spread evenly.
    pub(crate) fn move_bytes(&self, level: usize, bytes: u64) -> u64 {
        let LevelBytes { filling, emptying, .. } = self.levels[level];
        let all = if emptying > 0 { emptying } else { filling }.max(1);
        let below = self.levels.get(level + 1).map_or(self.bottom, |next| next.filling);
        let bytes = bytes.min(all);
        bytes + part_of(below, bytes as f64 / all as f64)
    }

    /// Bytes of all of it.
    pub(crate) fn total(&self) -> u64 {
        self.upper() + self.bottom
    }

    /// Bytes above the bottom.
    pub(crate) fn upper(&self) -> u64 {
        self.levels.iter().map(|level| level.filling + level.emptying).sum()
    }
}

/// The usual bytes of a flush, after one of `bytes`.
pub(crate) fn usual_flush(before: u64, bytes: u64) -> u64 {
    if bytes >= before { bytes } else { before - (before - bytes) / 4 }
}

impl LsmOptions {
    /// Bytes that fill the levels from level 1 to the last one above the bottom.
    pub(crate) fn capacities(&self, tree: &TreeBytes) -> Vec<u64> {
        let sizes = self.pair_sizes.of_levels();
        let flush = sizes.pairs_of(tree.flush).max(1);
        let if_new = flush * u64::from(self.level1_flushes);
        let waiting = self.waiting_if_overwriting(tree.bottom);
        let if_overwriting = waiting.clamp(flush, if_new);
        let first = tree.overwrites.surely().between(if_new, if_overwriting);
        let times = tree.bottom as f64 / first as f64;
        let deeper = self.deeper_levels(times, tree.levels.len().saturating_sub(1));
        let growth = times.max(1.0).powf(1.0 / (deeper as f64 + 1.0));
        let last_if_new = part_of(tree.bottom, 1.0 / growth).min(self.tree_share.waiting_if_new(tree.bottom));
        let last = tree.overwrites.surely().between(last_if_new, last_if_new.min(waiting));
        let growth =
            if deeper == 0 { 1.0 } else { (last as f64 / first as f64).max(1.0).powf(1.0 / deeper as f64) };
        let capacity = |level: i32| sizes.own_of(part_of(first, growth.powi(level)));
        (0..=deeper).map(capacity).collect()
    }

    /// How much the last level above a bottom of so many bytes has, if everything replaces something.
    fn waiting_if_overwriting(&self, bottom: u64) -> u64 {
        let most = bottom / u64::from(self.growth_factor);
        self.tree_share.waiting(most).max(bottom / WAITING_PARTS_MAX).min(most)
    }

    /// How many levels there are between level 1 and the bottom, which is so many times as large. A level
    /// that there is stays a little longer than it would be made.
    fn deeper_levels(&self, times: f64, present: usize) -> i32 {
        let growth = f64::from(self.growth_factor);
        let (mut count, mut reach) = (0, growth);
        while reach < times {
            (count, reach) = (count + 1, reach * growth);
        }
        let present = i32::try_from(present).unwrap_or(i32::MAX);
        if present == count + 1 && times * 2.0 > reach { present } else { count }
    }

    /// How many of the sequences that fill level 1 (their bytes, newest first) a flush is merged with: small
    /// ones are merged as in a binary counter.
    pub(crate) fn parts_to_join(&self, incoming: u64, parts: &[u64]) -> usize {
        let (mut total, mut count) = (incoming, 0);
        for &part in parts {
            if part > total || total + part > self.run_bytes * JOINED_RUNS {
                break;
            }
            (total, count) = (total + part, count + 1);
        }
        count
    }

    /// Which of the sequences that fill level 1 (their bytes, newest first) are worth being one, because
    /// there are far more of them than a query should look into: the neighbours that are smallest.
    pub(crate) fn parts_to_merge(&self, parts: &[u64]) -> Option<Range<usize>> {
        let count = usize_of(u64::from(self.level1_flushes)) * 2;
        let windows = (parts.len() > count.max(MANY_PARTS)).then(|| parts.windows(count.max(MANY_PARTS)))?;
        let (from, window) = windows.enumerate().min_by_key(|(_, window)| window.iter().sum::<u64>())?;
        Some(from..from + window.len())
    }

    /// Whether a flush is merged into the bottom at once: there is hardly more there than comes.
    pub(crate) fn goes_to_bottom(&self, incoming: u64, tree: &TreeBytes) -> bool {
        tree.upper() == 0 && tree.bottom <= incoming
    }

    /// From how many bytes on a level is handed over; `capacities` are those of all levels.
    fn due_bytes(&self, level: usize, tree: &TreeBytes, capacities: &[u64]) -> u64 {
        let Some(capacity) = capacities.get(level) else { return 1 };
        let step = match level.checked_sub(1) {
            Some(above) => capacities[above],
            None => tree.flush.max(1),
        };
        let early = step / 2 + step / 16 * (self.stagger % 8);
        capacity.saturating_sub(early).max(1)
    }

    /// Whether what fills a level is emptied from now on.
    pub(crate) fn hands_over(&self, level: usize, tree: &TreeBytes, capacities: &[u64]) -> bool {
        let due = self.due_bytes(level, tree, capacities);
        let is_emptying = |level: usize| tree.levels[level].emptying > 0;
        let is_above_emptying = level.checked_sub(1).is_some_and(is_emptying);
        let next = Some(level + 1).filter(|next| *next < tree.levels.len());
        let is_next_waiting = next.is_some_and(|next| {
            is_emptying(next) && tree.levels[next].filling >= self.expected_bytes(next, tree, capacities)
        });
        tree.levels[level].filling >= due && !is_emptying(level) && !is_above_emptying && !is_next_waiting
    }

    /// How many bytes are about to fill a level: as many as last time, if that was more than it should have.
    fn expected_bytes(&self, level: usize, tree: &TreeBytes, capacities: &[u64]) -> u64 {
        self.due_bytes(level, tree, capacities).max(tree.levels[level].began)
    }

    /// How many bytes of what a level empties should have gone and have not.
    fn due_to_go(&self, number: usize, tree: &TreeBytes, capacities: &[u64]) -> u64 {
        let LevelBytes { filling, emptying, began } = tree.levels[number];
        let filled = filling as f64 / self.expected_bytes(number, tree, capacities) as f64;
        emptying.saturating_sub(part_of(began.max(emptying), 1.0 - filled))
    }

    /// The move that is due, if one is: out of which level, and about how many bytes. Lower levels come
    /// first, so that each keeps pace with what comes into it. When all do, what was handed over late goes
    /// on.
    pub(crate) fn next_move(&self, tree: &TreeBytes, capacities: &[u64]) -> Option<(usize, u64)> {
        let at_once = tree.flush.clamp(1, MOVE_BYTES).max(self.run_bytes * MOVE_RUNS);
        // Values come back to their keys there.
        let into_bottom = self.pair_sizes.own_of(at_once).max(self.run_bytes / 4);
        let last = tree.levels.len().saturating_sub(1);
        let at_once = |number: usize| if number == last { into_bottom } else { at_once };
        let due_of = |number: usize| {
            let emptying = tree.levels[number].emptying;
            let due = self.due_to_go(number, tree, capacities);
            (due > 0 && due >= emptying.min(at_once(number) / 2))
                .then_some((number, due.min(at_once(number))))
        };
        let late_of = |number: usize| {
            let LevelBytes { emptying, began, .. } = tree.levels[number];
            let is_late = capacities.get(number).is_none_or(|capacity| began * 2 > capacity * LATE_HALVES);
            (emptying > 0 && (is_late || self.tree_share.is_minor()))
                .then_some((number, emptying.min(at_once(number))))
        };
        let all = 0..tree.levels.len();
        all.clone().rev().find_map(due_of).or_else(|| all.clone().find_map(late_of))
    }

    /// About how many bytes moves should write before the next flush, because they are behind what comes in:
    /// level 1 may have more than it should, the more, the more of what it empties has gone. So flushes wait
    /// for equal parts of the moves, and while they come as fast as they can, more is handed over at once.
    pub(crate) fn behind_bytes(&self, tree: &TreeBytes, capacities: &[u64]) -> u64 {
        let (Some(level), Some(capacity)) = (tree.levels.first(), capacities.first()) else { return 0 };
        let capacity = (*capacity).max(tree.flush);
        let began = level.began.max(level.emptying);
        let overwrites = tree.overwrites.surely();
        let room = overwrites.between(capacity * PRESSED, capacity * PRESSED_IF_OVERWRITING);
        let part_gone = 1.0 - level.emptying as f64 / began.max(1) as f64;
        let most = capacity + part_of(room, part_gone);
        let Some(beyond) = (level.filling + tree.flush).checked_sub(most + 1) else { return 0 };
        let mut moved = part_of(began, (beyond + 1) as f64 / room as f64).min(level.emptying);
        let mut written = 1;
        for number in 0..tree.levels.len() {
            written += tree.move_bytes(number, moved);
            let Some(below) = tree.levels.get(number + 1) else { break };
            let into_below = moved as f64 / self.expected_bytes(number + 1, tree, capacities) as f64;
            let due = self.due_to_go(number + 1, tree, capacities);
            moved = (due + part_of(below.began, into_below)).min(below.emptying);
        }
        written
    }

    /// Whether an idle tree has too much above its bottom.
    pub(crate) fn has_idle_work(&self, tree: &TreeBytes) -> bool {
        let overwrites = tree.overwrites.surely();
        let parts = match self.updates_pages_of(tree.bottom_entry) {
            true => IDLE_PARTS_OF_PAGES,
            false => overwrites.between(IDLE_PARTS_IF_NEW, IDLE_PARTS_IF_OVERWRITING).max(1),
        };
        tree.upper() > 0
            && self.pair_sizes.of_levels().pairs_of(tree.upper())
                > (tree.bottom / parts).max(self.run_bytes / 4)
    }
}

/// A share of some bytes.
#[expect(clippy::cast_possible_truncation, reason = "a share of a count fits where the count does")]
#[expect(clippy::cast_sign_loss, reason = "neither is negative")]
pub(crate) fn part_of(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share.max(0.0)) as u64
}

#[cfg(test)]
mod tests;
