//! When tombstones above the bottom are worth a move: as plain arithmetic over runs.
//!
//! A tombstone ends, with what it deletes, where it meets the bottom. To get there, all that lies above the
//! bottom with it is moved, and the runs of the bottom among which its level has keys are written anew. So a
//! level of tombstones is emptied ahead of time only if what is saved is a fair part of what is written. If
//! it is not, the level is emptied when it is full, as any other (decision 0060).
//!
//! **Invariants**
//! - What is taken for written is no less than what is, but for runs that come down as they are.

use std::ops::Range;

use testudo_sequence::Bounds;

use crate::{
    LsmOptions,
    levels::{
        Level, Levels,
        component::{Component, Held},
    },
};

/// What is written may be so many times what it saves …
const WORTH: u64 = 4;
/// … or this, while nothing else is to be done.
const WORTH_IF_IDLE: u64 = 16;
/// A tombstone has a quarter of the entries of a sequence that is worth a look.
const HEAVY_PART: u64 = 4;
/// Bytes of a tombstone itself, at least.
const TOMBSTONE_BYTES: u64 = 8;
/// A move for the sake of tombstones ends where it has written so much, the runs of its destination included;
/// where runs are small, so many of them.
const WRITTEN_MAX: u64 = 32 << 20;
const WRITTEN_RUNS: u64 = 16;

/// A level to be emptied for the sake of tombstones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorthMoving {
    pub(crate) level: usize,
    /// About how many bytes end with them.
    pub(crate) saved_bytes: u64,
}

/// How much a move for the sake of tombstones writes at most, but for a run.
pub(crate) fn written_max(options: &LsmOptions) -> u64 {
    WRITTEN_MAX.min(options.run_bytes * WRITTEN_RUNS)
}

/// The level to be emptied next because of tombstones that are worth it.
pub(crate) fn pick_level(levels: &Levels, is_idle: bool) -> Option<WorthMoving> {
    let emptying = levels.levels.iter().rposition(Level::is_emptying);
    let worth = if is_idle { WORTH_IF_IDLE } else { WORTH };
    let of_entry = levels.bottom.mean_entry_bytes() + TOMBSTONE_BYTES;
    for heaviest in (0..levels.levels.len()).filter(|level| heavy(&levels.levels[*level]).next().is_some()) {
        let level = emptying.unwrap_or(heaviest);
        let saved_bytes = heavy(&levels.levels[heaviest]).map(tombstones).sum::<u64>() * of_entry;
        let most = saved_bytes.saturating_mul(worth);
        let moved = &levels.levels[level.min(heaviest)..];
        let above = moved.iter().map(|level| level.filling_bytes() + level.emptying_bytes()).sum();
        if rewritten_bytes(levels, &levels.levels[heaviest], above, most) <= most {
            return Some(WorthMoving { level, saved_bytes });
        }
    }
    None
}

fn count(component: &Component, of: fn(&Held) -> u64) -> u64 {
    component.iter().map(of).sum()
}

fn tombstones(component: &Component) -> u64 {
    count(component, |held| held.run().reference().tombstones)
}

/// The sequences of a level of which a quarter or more are tombstones.
fn heavy(level: &Level) -> impl Iterator<Item = &Component> {
    level.filling.iter().chain(&level.emptying).filter(|component| {
        let tombstones = tombstones(component);
        let entries = count(component, |held| held.run().reference().entries);
        tombstones > 0 && tombstones * HEAVY_PART >= entries
    })
}

/// `above`, and the bytes of the bottom among which a level has keys; not much more than `most` are counted.
fn rewritten_bytes(levels: &Levels, level: &Level, above: u64, most: u64) -> u64 {
    let mut written = above;
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for held in level.filling.iter().chain(&level.emptying).flat_map(Component::iter) {
        if written > most {
            return written;
        }
        let keys = &held.run().reference().keys;
        let bounds =
            Bounds { low: Some(keys.first().to_vec().into()), high: Some(behind(keys.last()).into()) };
        let within = levels.bottom.within(&bounds);
        let mut from = within.start;
        // What several runs lie among is written once. Runs of a sequence come in the order of keys.
        for range in &ranges {
            if range.contains(&from) {
                from = range.end;
            }
        }
        let bytes = |range: Range<usize>| levels.bottom.range(range).map(|held| held.bytes).sum::<u64>();
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
