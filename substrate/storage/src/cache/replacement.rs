//! The replacement policy: which page is evicted for another one.
//!
//! New data pages are on *probation*, in about a tenth of the frames, and are evicted in FIFO order unless
//! they are used again. The others are the *main* set, from which a clock evicts the coldest page. This is
//! S3-FIFO (Yang and others, SOSP 2023) with two hands over one array instead of two queues. A new page takes
//! the frame that the probation hand has just passed. The hand reaches it again after a full lap, which is
//! first in, first out. Recently evicted pages and all index and filter pages are admitted to the main set.
//!
//! Each thread takes batches of adjacent frames from the two hands, which advance by whole batches, so that
//! threads scan different frames (SplinterDB, section 4). Pages are never dirty, so no cleaning ahead of a
//! hand is needed.
//!
//! **Invariants**
//! - Single bits of a frame's heat change by compare-and-swap; the whole heat is set only under a claim.
//! - `probation` is the number of frames whose heat has the `PROBATION` flag.
//! - A search ends after a few laps over the frames: it finds a victim, or every page is pinned.

use testudo_base::{
    num::{u32_of, u64_of},
    sync::{
        atomic::{
            AtomicU8, AtomicU32, AtomicUsize,
            Ordering::{AcqRel, Relaxed},
        },
        scaled,
    },
};

use super::{
    counters::Padded,
    frames::FrameTable,
    pins::{Claim, FrameRef, STRIPES, state},
};

/// Initial priority of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Entries: needed by one query, perhaps by others.
    Data,
    /// Index, filter, footer: needed by all queries; kept long after the last use.
    Structure,
}

/// Mask of the use count of a page in the main set.
const COUNT: u8 = 0x0f;
const PROBATION: u8 = 0x10;
/// On probation, but so close ahead of the hand that it is skipped once.
const YOUNG: u8 = 0x20;
const STRUCTURE: u8 = 0x40;
/// Restored from an earlier cache, and not used since.
const RESTORED: u8 = 0x80;
const DATA_COUNT_MAX: u8 = 3;
const STRUCTURE_COUNT_MAX: u8 = 15;
const STRUCTURE_COUNT_FIRST: u8 = 8;

/// Adjacent frames that a thread takes at once.
const BATCH: usize = scaled(16, 4);
/// Pages of the main set that a thread cools before it evicts the coldest of them.
const COOLED_MAX: usize = 256;
/// One in this many frames is for pages on probation.
const PROBATION_SHARE: usize = 10;
/// Number of search positions. Threads search separately; under the scheduler they share one, so that a
/// schedule is deterministic.
const CURSORS: usize = scaled(STRIPES, 1);

/// Set in which a frame was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    Probation,
    Main,
}

#[derive(Debug)]
pub(crate) struct Replacement {
    hands: [Padded<AtomicUsize>; 2],
    cursors: [Padded<[AtomicUsize; 2]>; CURSORS],
    probation: Padded<AtomicUsize>,
    /// Data pages evicted so far: the clock by which the page map measures how long ago a page was evicted.
    eviction_clock: Padded<AtomicU32>,
}

/// Records a use of a page; returns whether it is the first use of a restored page.
#[inline]
pub(crate) fn touch(heat: &AtomicU8) -> bool {
    let before = heat.load(Relaxed);
    let warmer = if before & STRUCTURE != 0 {
        before | STRUCTURE_COUNT_MAX
    } else if before & COUNT < DATA_COUNT_MAX {
        before + 1
    } else {
        before
    };
    let after = warmer & !RESTORED;
    if after == before {
        return false;
    }
    // A concurrent change is equally good: it is a hint.
    heat.compare_exchange(before, after, Relaxed, Relaxed).is_ok() && before & RESTORED != 0
}

/// Whether a data page was used more than once, by its heat.
pub(crate) fn is_used_again(heat: u8) -> bool {
    heat & PROBATION == 0 || heat & COUNT > 0
}

/// How a page is kept, by its heat.
pub(crate) fn keeping_of(heat: u8) -> Keeping {
    if heat & STRUCTURE != 0 {
        Keeping::Structure
    } else if heat & PROBATION != 0 {
        Keeping::Probation
    } else {
        Keeping::Main
    }
}

impl Replacement {
    pub(crate) fn new() -> Self {
        Self {
            hands: Default::default(),
            cursors: std::array::from_fn(|_| Padded::default()),
            probation: Padded::default(),
            eviction_clock: Padded::default(),
        }
    }

    /// Number of data pages evicted so far.
    pub(crate) fn eviction_clock(&self) -> u32 {
        self.eviction_clock.0.load(Relaxed)
    }

    /// Claims a frame with an evictable page; `None` if every page is pinned. The claim still holds the page.
    pub(crate) fn claim_victim<'a>(&self, frames: &'a FrameTable, stripe: usize) -> Option<(Claim<'a>, Set)> {
        let least = frames.used() / PROBATION_SHARE;
        for _ in 0..3 {
            let has_probation = self.probation.0.load(Relaxed) > least;
            let order = if has_probation { [Set::Probation, Set::Main] } else { [Set::Main, Set::Probation] };
            for set in order {
                if let Some(claim) = self.sweep(frames, set, stripe) {
                    return Some((claim, set));
                }
            }
        }
        let any = |number: usize| frames.frame(u32_of(number))?.claim_page();
        (0..frames.positions()).find_map(any).map(|claim| (claim, Set::Main))
    }

    /// Makes at most one lap in search of an evictable page of `set`.
    fn sweep<'a>(&self, frames: &'a FrameTable, set: Set, stripe: usize) -> Option<Claim<'a>> {
        let positions = frames.positions();
        let mut coldest: Option<(u8, FrameRef<'a>)> = None;
        let mut cooled = 0;
        for _ in 0..positions {
            let number = self.next(set, stripe, positions);
            let Some(frame) = frames.frame(number).filter(|frame| frame.state() == state::READABLE) else {
                continue;
            };
            let heat = frame.heat().load(Relaxed);
            if (heat & PROBATION != 0) != (set == Set::Probation) {
                continue;
            }
            if heat & (COUNT | YOUNG) == 0 {
                if let Some(claim) = frame.claim_page() {
                    return Some(claim);
                }
                continue;
            }
            if set == Set::Probation {
                self.pass(frame, heat);
                continue;
            }
            let _ = frame.heat().compare_exchange(heat, heat - 1, Relaxed, Relaxed);
            if coldest.is_none_or(|(least, _)| heat & COUNT < least) && !frame.is_pinned() {
                coldest = Some((heat & COUNT, frame));
            }
            cooled += 1;
            if cooled >= COOLED_MAX
                && let Some(claim) = coldest.take().and_then(|(_, frame)| frame.claim_page())
            {
                return Some(claim);
            }
        }
        None
    }

    /// Passes a page on probation that stays: a used one moves to the main set.
    fn pass(&self, frame: FrameRef<'_>, heat: u8) {
        let is_used = heat & COUNT > 0;
        let after = if is_used { heat & !(PROBATION | YOUNG | COUNT) } else { heat & !YOUNG };
        if frame.heat().compare_exchange(heat, after, AcqRel, Relaxed).is_ok() && is_used {
            self.probation.0.fetch_sub(1, Relaxed);
        }
    }

    /// Returns the next frame of the thread's batch, or of a new one.
    fn next(&self, set: Set, stripe: usize, positions: usize) -> u32 {
        let cursor = &self.cursors[stripe % CURSORS].0[set as usize];
        let mut at = cursor.load(Relaxed);
        if at.is_multiple_of(BATCH) {
            at = self.hands[set as usize].0.fetch_add(BATCH, Relaxed) % positions.max(1);
        }
        cursor.store(at + 1, Relaxed);
        u32_of(at)
    }

    /// Clears the heat of a claimed page before its eviction. Returns whether the page map should remember
    /// it.
    pub(crate) fn untrack(&self, claim: &Claim<'_>) -> bool {
        let heat = claim.frame().heat().swap(0, AcqRel);
        if heat & PROBATION != 0 {
            self.probation.0.fetch_sub(1, Relaxed);
        }
        heat & STRUCTURE == 0
    }

    /// Counts an eviction of a data page; returns the clock's previous value.
    pub(crate) fn tick_eviction_clock(&self) -> u32 {
        self.eviction_clock.0.fetch_add(1, Relaxed)
    }

    /// Sets the heat of a page that is about to be published.
    pub(crate) fn track(&self, claim: &Claim<'_>, class: Class) {
        let heat = match class {
            Class::Structure => STRUCTURE | STRUCTURE_COUNT_FIRST,
            Class::Returned => 0,
            Class::Kept(heat) => heat,
            Class::Restored(Keeping::Structure) => RESTORED | STRUCTURE | STRUCTURE_COUNT_FIRST,
            Class::Restored(Keeping::Main) => RESTORED | 1,
            Class::Restored(Keeping::Probation) => {
                self.probation.0.fetch_add(1, Relaxed);
                RESTORED | PROBATION
            }
            Class::New { is_young } => {
                self.probation.0.fetch_add(1, Relaxed);
                if is_young { PROBATION | YOUNG } else { PROBATION }
            }
        };
        claim.frame().heat().store(heat, Relaxed);
    }

    /// Whether the probation hand would reach a page loaded into frame `number`, a victim from `found`, too
    /// soon.
    pub(crate) fn is_young(&self, frames: &FrameTable, number: u32, found: Option<Set>) -> bool {
        let positions = u64_of(frames.positions()).max(1);
        let hand = u64_of(self.hands[Set::Probation as usize].0.load(Relaxed)) % positions;
        let ahead = (u64::from(number) + positions - hand) % positions;
        found == Some(Set::Main) && ahead < positions / 2
    }
}

/// How a page was kept by an earlier cache, and how to keep it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// In the main set, with the priority of structure pages.
    Structure,
    /// In the main set.
    Main,
    /// On probation.
    Probation,
}

/// How a page is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// On probation.
    New { is_young: bool },
    /// To the main set, because it was recently evicted.
    Returned,
    /// To the main set, with the priority of structure pages.
    Structure,
    /// From another frame, with this heat.
    Kept(u8),
    /// From an earlier cache.
    Restored(Keeping),
}

/// Heat of a page of the main set; `None` for a page on probation.
pub(crate) fn main_heat(claim: &Claim<'_>) -> Option<u8> {
    let heat = claim.frame().heat().load(Relaxed) & !RESTORED;
    (heat & PROBATION == 0).then_some(heat)
}

#[cfg(test)]
mod tests;
