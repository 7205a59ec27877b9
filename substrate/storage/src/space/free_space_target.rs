//! How many free pages are worth keeping: about as many as a round of work takes before it frees others.
//!
//! **Invariants**
//! - Pure arithmetic; nothing is given up before enough rounds were seen.

use testudo_base::num::u64_of;

/// Rounds that are remembered.
const ROUNDS: usize = 8;
/// A smaller part of the file's space than this is not worth giving up.
const SURPLUS_PARTS: u64 = 32;
/// Nor is less than this (1 MiB).
const SURPLUS_PAGES_MIN: u64 = 256;

/// What the last rounds have taken.
#[derive(Debug, Default)]
pub(crate) struct FreeSpaceTarget {
    taken: [u64; ROUNDS],
    rounds: usize,
}

impl FreeSpaceTarget {
    /// A round has taken so many pages.
    pub(crate) fn note(&mut self, taken: u64) {
        self.taken[self.rounds % ROUNDS] = taken;
        self.rounds += 1;
    }

    /// How many of `free` pages are worth keeping, if there are so many more that giving them up is worth it.
    /// All pages of the file that have space on the device are `space_pages`.
    pub(crate) fn kept_pages(&self, free: u64, space_pages: u64) -> Option<u64> {
        let mean = self.taken.iter().sum::<u64>() / u64_of(ROUNDS);
        let surplus = free.saturating_sub(mean);
        let is_worth_it = surplus >= (space_pages / SURPLUS_PARTS).max(SURPLUS_PAGES_MIN);
        (is_worth_it && self.rounds >= ROUNDS).then_some(mean)
    }
}

#[cfg(test)]
mod tests;
