//! Settings of a leveled tree.

use testudo_run::RunLayout;
use testudo_sequence::{SPARING_RUN_BYTES, TreeShare};

use crate::PairSizes;

/// Entries that would fill less of a page go on in the next one, and their pages are not updated.
const FILLED_PART_MIN: f64 = 0.8;

/// Which sequences of a tree that retains what merges have replaced are frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freezing {
    /// Those into which mostly keys come that they have, once that is as much as what is in use of them.
    Measured,
    /// None.
    Never,
    /// All: what is retained is given up.
    Always,
}

/// Settings of a leveled tree. The defaults suit memory budgets from 64 MiB up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LsmOptions {
    /// Bytes of a full run, which is what levels are made of. Default 2 MiB: large enough for sequential I/O,
    /// small enough that writing one anew is a few milliseconds.
    pub run_bytes: u64,
    /// How many times larger than the level above a level may be. Default 8.
    pub growth_factor: u32,
    /// Flushes that fill level 1. Default 4: so many sorted sequences a query looks into, twice as many while
    /// the level is emptied, and up to four times that while flushes come faster than levels are emptied.
    pub level1_flushes: u32,
    /// How much of what merges have replaced may stay in compaction buffers while queries use it (LSbM), in
    /// hundredths of the tree's bytes. Default 0: nothing is retained.
    pub retained_percent: u32,
    /// Which sequences retain nothing more (LSbM §4.1). Default: those of which measurements say that most
    /// of what they would retain is obsolete.
    pub freezing: Freezing,
    /// Whether entries that come to the bottom are put into the pages of its runs where these are few,
    /// instead of writing the runs anew (TreeLine). Default no.
    pub updates_pages: bool,
    /// Trees that differ in it hand their levels over in different rounds. Default 0; an engine gives each of
    /// many trees a number of its own.
    pub stagger: u64,
    /// How much of its pairs the tree has itself; it finds that out. Default all.
    pub tree_share: TreeShare,
    /// How much larger the pairs of its upper levels are than these (Parallax); it finds that out, too.
    /// Default no larger.
    pub pair_sizes: PairSizes,
}

impl Default for LsmOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl LsmOptions {
    /// The default settings.
    pub const fn new() -> Self {
        Self {
            run_bytes: 2 << 20,
            growth_factor: 8,
            level1_flushes: 4,
            retained_percent: 0,
            freezing: Freezing::Measured,
            updates_pages: false,
            stagger: 0,
            tree_share: TreeShare::ALL,
            pair_sizes: PairSizes::WHOLE,
        }
    }

    /// Whether every setting is within its bounds.
    ///
    /// Errors: what is out of bounds.
    pub fn validate(&self) -> Result<(), &'static str> {
        if !(4 << 10..=64 << 20).contains(&self.run_bytes) {
            return Err("run_bytes of a leveled tree is out of 4 KiB..=64 MiB");
        }
        if !(2..=64).contains(&self.growth_factor) {
            return Err("growth_factor of a leveled tree is out of 2..=64");
        }
        if !(1..=16).contains(&self.level1_flushes) {
            return Err("level1_flushes of a leveled tree is out of 1..=16");
        }
        if self.updates_pages && self.retained_percent > 0 {
            return Err("a leveled tree that updates pages retains nothing");
        }
        if self.retained_percent > 100 {
            return Err("retained_percent of a leveled tree is out of 0..=100");
        }
        Ok(())
    }

    /// The same for writing where space is short: what a run has beside its data is not to be most of it, and
    /// what is written anew is what takes least in the end.
    pub(crate) fn sparing(&self) -> Self {
        Self { run_bytes: self.run_bytes.max(SPARING_RUN_BYTES), updates_pages: false, ..*self }
    }

    /// Whether pages of the bottom are updated where entries have about so many bytes. Such pages stand
    /// alone, so that entries of which few fit into one would leave much of it empty.
    pub(crate) fn updates_pages_of(&self, entry_bytes: u64) -> bool {
        self.updates_pages && RunLayout::for_page_updates().filled_part(entry_bytes) >= FILLED_PART_MIN
    }

    /// How the pages of the bottom are laid out for entries of about so many bytes.
    pub(crate) fn bottom_layout(&self, entry_bytes: u64) -> RunLayout {
        if self.updates_pages_of(entry_bytes) { RunLayout::for_page_updates() } else { RunLayout::default() }
    }
}

#[cfg(test)]
mod tests;
