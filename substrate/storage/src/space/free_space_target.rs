//! How many free pages to keep: as many as a round needs before it frees others, on average.
//!
//! A round extends from the end of a flush to the end of the next one. Jobs free pages all the time, so it
//! needs less than it allocates: the maximum in use, minus the pages in use when it begins.
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

/// Space needs of recent rounds.
#[derive(Debug, Default)]
pub(crate) struct FreeSpaceTarget {
    needs: [u64; ROUNDS],
    rounds: usize,
    /// Pages in use at the end of the last round.
    used: u64,
    /// Maximum of the pages in use since then.
    most_used: u64,
}

impl FreeSpaceTarget {
    /// Begins with `used` pages in use.
    pub(crate) fn new(used: u64) -> Self {
        Self { used, most_used: used, ..Self::default() }
    }

    /// Records the pages in use after an allocation.
    pub(crate) fn note_used(&mut self, used: u64) {
        self.most_used = self.most_used.max(used);
    }

    /// Records the end of a round, with the pages then in use.
    pub(crate) fn end_round(&mut self, used: u64) {
        self.needs[self.rounds % ROUNDS] = self.most_used.max(used).saturating_sub(self.used);
        self.rounds += 1;
        (self.used, self.most_used) = (used, used);
    }

    /// Returns how many of `free` pages to keep, if the surplus is worth releasing. `space_pages` is the
    /// number of the file's pages with device space.
    pub(crate) fn kept_pages(&self, free: u64, space_pages: u64) -> Option<u64> {
        let mean = self.needs.iter().sum::<u64>() / u64_of(ROUNDS);
        let surplus = free.saturating_sub(mean);
        let is_worth_it = surplus >= (space_pages / SURPLUS_PARTS).max(SURPLUS_PAGES_MIN);
        (is_worth_it && self.rounds >= ROUNDS).then_some(mean)
    }
}

#[cfg(test)]
mod tests;
