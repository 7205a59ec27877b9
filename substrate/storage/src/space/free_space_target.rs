//! How many free pages to keep: about as many as a round of work allocates before it frees others.
//!
//! **Invariants**
//! - Pure arithmetic; nothing is released before enough rounds are recorded.

use testudo_base::num::u64_of;

/// Number of recent rounds that are averaged.
const ROUNDS: usize = 8;
/// Minimum surplus worth releasing, as a fraction of the file's space (1/n).
const SURPLUS_PARTS: u64 = 32;
/// Minimum surplus in pages (1 MiB).
const SURPLUS_PAGES_MIN: u64 = 256;

/// Allocations of recent rounds.
#[derive(Debug, Default)]
pub(crate) struct FreeSpaceTarget {
    taken: [u64; ROUNDS],
    rounds: usize,
}

impl FreeSpaceTarget {
    /// Records the pages allocated in a round.
    pub(crate) fn note(&mut self, taken: u64) {
        self.taken[self.rounds % ROUNDS] = taken;
        self.rounds += 1;
    }

    /// Returns how many of `free` pages to keep, if the surplus is worth releasing. `space_pages` is the
    /// number of the file's pages with device space.
    pub(crate) fn kept_pages(&self, free: u64, space_pages: u64) -> Option<u64> {
        let mean = self.taken.iter().sum::<u64>() / u64_of(ROUNDS);
        let surplus = free.saturating_sub(mean);
        let is_worth_it = surplus >= (space_pages / SURPLUS_PARTS).max(SURPLUS_PAGES_MIN);
        (is_worth_it && self.rounds >= ROUNDS).then_some(mean)
    }
}

#[cfg(test)]
mod tests;
