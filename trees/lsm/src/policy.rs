//! The policy: how large levels are, when a level is handed over, and how much of it is emptied at a time.
//!
//! All of it is pure arithmetic over byte counts.
//!
//! Level 1 has a few flushes; the bottom has nearly everything. The levels between grow by one factor, as few
//! of them as keep that within [`LsmOptions::growth_factor`]. The gear rule (bLSM, LSbM §2.2) couples the
//! output of a level with its input: the same fraction must have been emptied as has been filled. Jobs move
//! the data that is overdue, out of the lowest level first. Moves out of different levels run side by side.
//!
//! Flushes that arrive faster than jobs move fill level 1 beyond its capacity, up to a bound that rises as
//! moves progress: again the gear rule, with slack. More is handed over at once then, so that each byte
//! causes fewer rewrites in the levels below.
//!
//! Of an overwrite, one of the two entries is garbage until they meet at the bottom. So under overwrites the
//! levels above the bottom are smaller, a fraction of the bottom given by [`LsmOptions::growth_factor`], and
//! have less slack beyond that.
//!
//! If values of levels above the bottom are temporarily separated, a placement decides whether sizes are
//! computed from the bytes moved, or from the pairs ([`pair_sizes`]).
//!
//! **Invariants**
//! - A level is handed over only when the one above it is not being emptied: everything in a level is newer
//!   than everything in its emptying part and below.
//! - Nor is it handed over while the next one is full and waits for that itself: it would starve.

pub(crate) mod pair_sizes;
pub(crate) mod simulation;

use std::ops::Range;

use testudo_base::num::usize_of;
use testudo_sequence::Overwrites;

use crate::LsmOptions;

/// Maximum bytes of a move, if a flush is not smaller …
const MOVE_BYTES: u64 = 16 << 20;
/// … but at least this many runs.
const MOVE_RUNS: u64 = 4;
/// Ratio to its capacity, in halves, from which a handed-over level is emptied without delay.
const LATE_HALVES: u64 = 3;
/// Factor by which fast flushes may fill level 1 beyond its capacity.
const PRESSED: u64 = 3;
/// The same if all entries are overwrites.
const PRESSED_IF_OVERWRITING: u64 = 1;
/// Flushes are merged with each other up to this many runs of bytes.
const JOINED_RUNS: u64 = 4;
/// Minimum number of sequences merged because there are too many of them.
const MANY_PARTS: usize = 8;
/// Inverse of the minimum fraction of the bottom in the last level above it, however small the tree's own
/// share is.
const WAITING_PARTS_MAX: u64 = 32;
/// Inverse of the maximum fraction of the bottom that an idle tree leaves above it, if all entries are
/// overwrites.
const IDLE_PARTS_IF_OVERWRITING: u64 = 20;
/// The same if all are new: they are not garbage.
const IDLE_PARTS_IF_NEW: u64 = 1;
/// The same if pages are updated: a key should be on one page, and scans on adjacent ones (TreeLine).
const IDLE_PARTS_OF_PAGES: u64 = 128;
/// Approximate maximum bytes that one idle job moves out of a level.
pub(crate) const IDLE_BYTES: u64 = 8 << 20;

/// A record is rewritten about five times for each tenfold growth, so about this often for each doubling.
pub(crate) const REWRITES_PER_DOUBLING: f64 = 1.5;

/// Inverse of the fraction by which the usual size of a flush approaches a smaller one.
const USUAL_FLUSH_PARTS: u64 = 4;
/// Inverse of the fraction of a run of bytes for which neither a move nor idle work is worth while.
const LITTLE_PARTS: u64 = 4;
/// An existing level is kept until the bottom is less than one in this many parts of what requires it.
const KEPT_LEVEL_PARTS: f64 = 2.0;
/// Level 1 has too many sequences at this many times the number that fills it.
const MANY_TIMES: usize = 2;
/// Approximate bytes written to move a byte into the bottom, if flushes are so dense that they are direct.
const WRITTEN_TIMES_IF_DENSE: u64 = 3;
/// Inverse of the part of a full move that is worth moving.
const LEAST_MOVE_PARTS: u64 = 2;
/// Levels are handed over early: by half of what fills them at once, and offsets in these parts of it …
const STAGGER_PARTS: u64 = 16;
/// … up to nearly the other half.
const STAGGERS: u64 = STAGGER_PARTS / 2;

/// Byte counts of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LevelBytes {
    pub(crate) filling: u64,
    pub(crate) emptying: u64,
    /// Bytes at the start of emptying.
    pub(crate) began: u64,
}

/// Byte counts of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeBytes {
    /// From level 1 on.
    pub(crate) levels: Vec<LevelBytes>,
    pub(crate) bottom: u64,
    /// Mean size of an entry of the bottom.
    pub(crate) bottom_entry: u64,
    /// Usual size of a flush.
    pub(crate) flush: u64,
    pub(crate) overwrites: Overwrites,
    /// Bytes that the levels may hold when the next flush comes, if flushes go straight into the bottom once
    /// the levels are empty.
    pub(crate) direct_upper_max: Option<u64>,
}

impl TreeBytes {
    /// Approximate bytes written to move `bytes` out of a level, with uniformly distributed keys.
    pub(crate) fn move_bytes(&self, level: usize, bytes: u64) -> u64 {
        debug_assert!(level < self.levels.len(), "a level of the tree");
        let LevelBytes { filling, emptying, .. } = self.levels[level];
        let all = if emptying > 0 { emptying } else { filling }.max(1);
        let below = self.levels.get(level + 1).map_or(self.bottom, |next| next.filling);
        let bytes = bytes.min(all);
        bytes + part_of(below, bytes as f64 / all as f64)
    }

    /// Approximate bytes written to empty all levels now, with uniformly distributed keys.
    pub(crate) fn emptying_cost(&self) -> u64 {
        let is_used = |level: &usize| self.levels[*level].filling + self.levels[*level].emptying > 0;
        (0..self.levels.len()).filter(is_used).map(|level| self.move_bytes(level, u64::MAX)).sum()
    }

    /// Total bytes.
    pub(crate) fn total(&self) -> u64 {
        self.upper() + self.bottom
    }

    /// Bytes above the bottom.
    pub(crate) fn upper(&self) -> u64 {
        self.levels.iter().map(|level| level.filling + level.emptying).sum()
    }
}

/// Returns the usual size of a flush, after one of `bytes`.
pub(crate) fn usual_flush(before: u64, bytes: u64) -> u64 {
    if bytes >= before { bytes } else { before - (before - bytes) / USUAL_FLUSH_PARTS }
}

impl LsmOptions {
    /// Capacities of the levels from level 1 to the last one above the bottom.
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
        let capacities: Vec<u64> = (0..=deeper).map(capacity).collect();
        debug_assert!(!capacities.is_empty(), "a tree has a level above its bottom");
        debug_assert!(capacities.is_sorted(), "a level is no smaller than the one above it");
        capacities
    }

    /// Capacity of the last level above a bottom of `bottom` bytes, if all entries are overwrites.
    fn waiting_if_overwriting(&self, bottom: u64) -> u64 {
        let most = bottom / u64::from(self.growth_factor);
        self.tree_share.waiting(most).max(bottom / WAITING_PARTS_MAX).min(most)
    }

    /// Number of levels between level 1 and the bottom, which is `times` as large. An existing level is kept
    /// a little longer than it would be created.
    fn deeper_levels(&self, times: f64, present: usize) -> i32 {
        let growth = f64::from(self.growth_factor);
        let (mut count, mut reach) = (0, growth);
        while reach < times {
            (count, reach) = (count + 1, reach * growth);
        }
        let present = i32::try_from(present).unwrap_or(i32::MAX);
        if present == count + 1 && times * KEPT_LEVEL_PARTS > reach { present } else { count }
    }

    /// Number of sequences that fill level 1 (their bytes, newest first) with which a flush is merged: small
    /// ones are merged as in a binary counter.
    pub(crate) fn parts_to_join(&self, incoming: u64, parts: &[u64]) -> usize {
        let (mut total, mut count) = (incoming, 0);
        for &part in parts {
            if part > total || total + part > self.run_bytes * JOINED_RUNS {
                break;
            }
            (total, count) = (total + part, count + 1);
        }
        debug_assert!(count == 0 || total <= self.run_bytes * JOINED_RUNS, "flushes join up to a limit");
        count
    }

    /// Returns the adjacent sequences that fill level 1 (their bytes, newest first) to merge: as many as
    /// `bytes_max` permits, and the smallest of those. While idle it is always worth while, otherwise only if
    /// there are far too many sequences for a query.
    pub(crate) fn parts_to_merge(
        &self,
        parts: &[u64],
        is_idle: bool,
        bytes_max: u64,
    ) -> Option<Range<usize>> {
        let many = (usize_of(u64::from(self.level1_flushes)) * MANY_TIMES).max(MANY_PARTS);
        let count_max = match is_idle {
            true => parts.len(),
            false => (parts.len() > many).then_some(many)?,
        };
        let bytes_of = |range: Range<usize>| parts[range].iter().sum::<u64>();
        let smallest_of = |count: usize| {
            let windows = (0..=parts.len() - count).map(|from| from..from + count);
            windows.filter(|window| bytes_of(window.clone()) <= bytes_max).min_by_key(|w| bytes_of(w.clone()))
        };
        let found = (2..=count_max).rev().find_map(smallest_of);
        debug_assert!(found.as_ref().is_none_or(|found| found.len() > 1), "two or more of the sequences");
        found
    }

    /// Whether a flush is merged straight into the bottom: the tree is no larger than the flush.
    pub(crate) fn goes_to_bottom(&self, incoming: u64, tree: &TreeBytes) -> bool {
        tree.upper() == 0 && tree.bottom <= incoming
    }

    /// Bytes from which a level is handed over; `capacities` are those of all levels.
    fn due_bytes(&self, level: usize, tree: &TreeBytes, capacities: &[u64]) -> u64 {
        let Some(capacity) = capacities.get(level).filter(|_| tree.direct_upper_max.is_none()) else {
            return 1;
        };
        let step = match level.checked_sub(1) {
            Some(above) => capacities[above],
            None => tree.flush.max(1),
        };
        let early = step / 2 + step / STAGGER_PARTS * (self.stagger % STAGGERS);
        debug_assert!(early <= step, "a level is handed over at most one step early");
        capacity.saturating_sub(early).max(1)
    }

    /// Whether a level is handed over now.
    pub(crate) fn hands_over(&self, level: usize, tree: &TreeBytes, capacities: &[u64]) -> bool {
        debug_assert!(level < tree.levels.len(), "a level of the tree");
        let due = self.due_bytes(level, tree, capacities);
        let is_emptying = |level: usize| tree.levels[level].emptying > 0;
        let is_above_emptying = level.checked_sub(1).is_some_and(is_emptying);
        let next = Some(level + 1).filter(|next| *next < tree.levels.len());
        let is_next_waiting = next.is_some_and(|next| {
            is_emptying(next) && tree.levels[next].filling >= self.expected_bytes(next, tree, capacities)
        });
        tree.levels[level].filling >= due && !is_emptying(level) && !is_above_emptying && !is_next_waiting
    }

    /// Expected bytes of a filling level: as many as last time, if that exceeded its capacity.
    fn expected_bytes(&self, level: usize, tree: &TreeBytes, capacities: &[u64]) -> u64 {
        self.due_bytes(level, tree, capacities).max(tree.levels[level].began)
    }

    /// Bytes of a level's emptying part that are overdue.
    fn due_to_go(&self, number: usize, tree: &TreeBytes, capacities: &[u64]) -> u64 {
        let LevelBytes { filling, emptying, began } = tree.levels[number];
        let filled = filling as f64 / self.expected_bytes(number, tree, capacities) as f64;
        emptying.saturating_sub(part_of(began.max(emptying), 1.0 - filled))
    }

    /// Returns the most urgent of [`LsmOptions::moves`].
    pub(crate) fn next_move(&self, tree: &TreeBytes, capacities: &[u64]) -> Option<(usize, u64)> {
        self.moves(tree, capacities).next()
    }

    /// Returns the moves that are due, by urgency: their levels and approximate bytes. Lower levels come
    /// first, so that each keeps pace with its input. Then, levels that were handed over late continue.
    pub(crate) fn moves(&self, tree: &TreeBytes, capacities: &[u64]) -> impl Iterator<Item = (usize, u64)> {
        let at_once = tree.flush.clamp(1, MOVE_BYTES).max(self.run_bytes * MOVE_RUNS);
        // Values move back to their keys there.
        let into_bottom = self.pair_sizes.own_of(at_once).max(self.run_bytes / LITTLE_PARTS);
        let last = tree.levels.len().saturating_sub(1);
        let at_once = move |number: usize| if number == last { into_bottom } else { at_once };
        let due_of = move |number: usize| {
            let emptying = tree.levels[number].emptying;
            let due = self.due_to_go(number, tree, capacities);
            (due > 0 && due >= emptying.min(at_once(number) / LEAST_MOVE_PARTS))
                .then_some((number, due.min(at_once(number))))
        };
        let late_of = move |number: usize| {
            let LevelBytes { emptying, began, .. } = tree.levels[number];
            let is_late = capacities.get(number).is_none_or(|capacity| began * 2 > capacity * LATE_HALVES);
            (emptying > 0 && (is_late || self.tree_share.is_minor() || tree.direct_upper_max.is_some()))
                .then_some((number, emptying.min(at_once(number))))
        };
        let all = 0..tree.levels.len();
        all.clone().rev().filter_map(due_of).chain(all.filter_map(late_of)).inspect(|(level, bytes)| {
            debug_assert!(
                *bytes > 0 && *bytes <= tree.levels[*level].emptying,
                "a move takes some of what is emptied"
            );
        })
    }

    /// Approximate bytes that moves should write before the next flush, because they are behind the writes.
    /// Level 1 may exceed its capacity in proportion to the emptied fraction. So flushes wait for equal parts
    /// of the moves, and at full write speed more is handed over at once.
    pub(crate) fn behind_bytes(&self, tree: &TreeBytes, capacities: &[u64]) -> u64 {
        let (Some(level), Some(capacity)) = (tree.levels.first(), capacities.first()) else { return 0 };
        if let Some(upper_max) = tree.direct_upper_max {
            return tree.upper().saturating_sub(upper_max) * WRITTEN_TIMES_IF_DENSE;
        }
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
                > (tree.bottom / parts).max(self.run_bytes / LITTLE_PARTS)
    }
}

/// Returns a fraction of `bytes`.
#[expect(clippy::cast_possible_truncation, reason = "a share of a count fits where the count does")]
#[expect(clippy::cast_sign_loss, reason = "neither is negative")]
pub(crate) fn part_of(bytes: u64, share: f64) -> u64 {
    debug_assert!(!share.is_nan(), "a share is a number");
    (bytes as f64 * share.max(0.0)) as u64
}

#[cfg(test)]
mod tests;
