//! When tombstones above the bottom are worth a move: plain arithmetic over runs.
//!
//! A tombstone is dropped, with the entries it deletes, when it reaches the bottom. For that, everything else
//! above the bottom is moved with it, and the runs of the bottom that overlap its level are rewritten. So a
//! level of tombstones is emptied early only if the savings are a fair fraction of the bytes written.
//! Otherwise the level is emptied when it is full, like any other (decision 0060).
//!
//! **Invariants**
//! - The estimate of bytes written is an upper bound, except for runs moved down as they are.

use std::ops::Range;

use testudo_sequence::{Bounds, TOMBSTONE_BYTES_MIN, has_many_tombstones, written_per_saved};

use crate::levels::{
    Level, Levels,
    component::{Component, LevelRun},
};

/// A level to empty because of its tombstones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorthMoving {
    pub(crate) level: usize,
    /// Approximate bytes dropped by the move.
    pub(crate) saved_bytes: u64,
}

/// Picks the next level whose tombstones justify emptying it, among those that `may_move` accepts.
pub(crate) fn pick_level(
    levels: &Levels,
    is_idle: bool,
    may_move: impl Fn(usize) -> bool,
) -> Option<WorthMoving> {
    let emptying = levels.levels.iter().rposition(Level::is_emptying);
    let worth = written_per_saved(is_idle);
    let of_entry = levels.bottom.mean_entry_bytes() + TOMBSTONE_BYTES_MIN;
    for heaviest in (0..levels.levels.len()).filter(|level| heavy(&levels.levels[*level]).next().is_some()) {
        let level = emptying.unwrap_or(heaviest);
        if !may_move(level) {
            continue;
        }
        let saved_bytes = heavy(&levels.levels[heaviest]).map(tombstones).sum::<u64>() * of_entry;
        let most = saved_bytes.saturating_mul(worth);
        let moved = &levels.levels[level.min(heaviest)..];
        let above = moved.iter().map(|level| level.filling_bytes() + level.emptying_bytes()).sum();
        if rewritten_bytes(levels, &levels.levels[heaviest], above, most) <= most {
            debug_assert!(!levels.levels[level].is_empty(), "a level with something to move");
            return Some(WorthMoving { level, saved_bytes });
        }
    }
    None
}

fn count(component: &Component, of: fn(&LevelRun) -> u64) -> u64 {
    component.iter().map(of).sum()
}

fn tombstones(component: &Component) -> u64 {
    count(component, |level_run| level_run.run().reference().tombstones)
}

/// Returns the sequences of a level in which a quarter or more of the entries are tombstones.
fn heavy(level: &Level) -> impl Iterator<Item = &Component> {
    level.filling.iter().chain(&level.emptying).filter(|component| {
        let entries = || count(component, |level_run| level_run.run().reference().entries);
        has_many_tombstones(tombstones(component), entries)
    })
}

/// Adds to `above` the bytes of the bottom that overlap a level; counting stops soon after `most`.
fn rewritten_bytes(levels: &Levels, level: &Level, above: u64, most: u64) -> u64 {
    let mut written = above;
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for level_run in level.filling.iter().chain(&level.emptying).flat_map(Component::iter) {
        if written > most {
            return written;
        }
        let keys = &level_run.run().reference().keys;
        let bounds =
            Bounds { low: Some(keys.first().to_vec().into()), high: Some(behind(keys.last()).into()) };
        let within = levels.bottom.within(&bounds);
        let mut from = within.start;
        // Runs below several upper runs are written once. Runs of a sequence come in key order.
        for range in &ranges {
            if range.contains(&from) {
                from = range.end;
            }
        }
        let bytes =
            |range: Range<usize>| levels.bottom.range(range).map(|level_run| level_run.bytes).sum::<u64>();
        if from < within.end {
            written += bytes(from..within.end);
            match ranges.last_mut().filter(|last| last.end == from) {
                Some(last) => last.end = within.end,
                None => ranges.push(from..within.end),
            }
        }
    }
    written
}

fn behind(key: &[u8]) -> Vec<u8> {
    let mut behind = key.to_vec();
    behind.push(0);
    behind
}
