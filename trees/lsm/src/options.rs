//! Settings of a leveled tree.

use testudo_run::RunLayout;
use testudo_sequence::{SPARING_RUN_BYTES, TreeShare};

use crate::PairSizes;

/// Default of [`LsmOptions::page_fill_percent`].
pub(crate) const PAGE_FILL_PERCENT: u32 = 94;
/// Minimum fill of a page by whole entries: 1 / 1.35. Otherwise values continue in the next page, and pages
/// are not updated.
const FILLED_PART_MIN: f64 = 0.74;
/// Minimum fill of a page with free space, as a fraction of the intended one. Otherwise large entries would
/// not use the free space, and pages are filled.
const FILLED_WITH_SPACE_MIN: f64 = 0.85;

/// Settings of a leveled tree. The defaults suit memory budgets from 64 MiB up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LsmOptions {
    /// Bytes of a full run; levels consist of runs. Default 2 MiB: large enough for sequential I/O, small
    /// enough that rewriting one takes a few milliseconds.
    pub run_bytes: u64,
    /// Maximum size ratio of adjacent levels. Default 8.
    pub growth_factor: u32,
    /// Number of flushes that fill level 1. Default 4. A query searches as many sorted sequences, twice as
    /// many while the level is emptied, and up to four times as many while flushes arrive faster than levels
    /// are emptied.
    pub level1_flushes: u32,
    /// Limit on merged runs retained in compaction buffers while queries use them (LSbM), as a percentage of
    /// the tree's bytes. Default 0: nothing is retained.
    pub retained_percent: u32,
    /// Whether entries moved into the bottom are written into the pages of its runs if they are few, instead
    /// of rewriting the runs (TreeLine). Default no.
    pub updates_pages: bool,
    /// Whether dense flushes go past the levels into pages of the bottom if that writes fewer bytes.
    /// Default no. Without effect unless pages are updated.
    pub flushes_directly: bool,
    /// Fill of new pages that will be updated, in percent: the rest is free for entries that are added or
    /// grow. Default 94. If free space would keep an entry out that fits, pages are filled completely where
    /// flushes are direct, and are not updated elsewhere.
    pub page_fill_percent: u32,
    /// Whether new pages that will be updated are filled less where inserts are expected. Default
    /// yes. Without effect unless pages are updated.
    pub forecasts_inserts: bool,
    /// Offset that spreads the handing over of levels of different trees over different rounds. Default 0; an
    /// engine gives each of many trees its own.
    pub stagger: u64,
    /// The tree's own share of its pairs' bytes; the tree measures it. Default all.
    pub tree_share: TreeShare,
    /// Size ratio of the pairs of its upper levels to their own bytes (Parallax); the tree measures it, too.
    /// Default 1.
    pub pair_sizes: PairSizes,
}

impl Default for LsmOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl LsmOptions {
    /// Creates the default settings.
    pub const fn new() -> Self {
        Self {
            run_bytes: 2 << 20,
            growth_factor: 8,
            level1_flushes: 4,
            retained_percent: 0,
            updates_pages: false,
            flushes_directly: false,
            page_fill_percent: PAGE_FILL_PERCENT,
            forecasts_inserts: true,
            stagger: 0,
            tree_share: TreeShare::ALL,
            pair_sizes: PairSizes::WHOLE,
        }
    }

    /// Whether every setting is within its bounds.
    ///
    /// Errors: a description of the violated bound.
    pub fn validate(&self) -> Result<(), &'static str> {
        if !(4 << 10..=64 << 20).contains(&self.run_bytes) {
            return Err("run_bytes of a leveled tree must be in 4 KiB..=64 MiB");
        }
        if !(2..=64).contains(&self.growth_factor) {
            return Err("growth_factor of a leveled tree must be in 2..=64");
        }
        if !(1..=16).contains(&self.level1_flushes) {
            return Err("level1_flushes of a leveled tree must be in 1..=16");
        }
        if self.updates_pages && self.retained_percent > 0 {
            return Err("a leveled tree cannot both update pages and retain runs");
        }
        if !(50..=100).contains(&self.page_fill_percent) {
            return Err("page_fill_percent of a leveled tree must be in 50..=100");
        }
        if self.retained_percent > 100 {
            return Err("retained_percent of a leveled tree must be in 0..=100");
        }
        Ok(())
    }

    /// Returns settings for use when space is short: overhead must not dominate a run, and rewrites must
    /// minimize the resulting size.
    pub(crate) fn sparing(&self) -> Self {
        Self { run_bytes: self.run_bytes.max(SPARING_RUN_BYTES), updates_pages: false, ..*self }
    }

    /// Whether pages of the bottom are updated if entries have about `entry_bytes`. Such pages have whole
    /// entries only, so entries of some sizes would leave much of them empty.
    pub(crate) fn updates_pages_of(&self, entry_bytes: u64) -> bool {
        self.page_layout(entry_bytes).is_some()
    }

    /// Whether updated pages have free space for a further entry of about `entry_bytes`.
    pub(crate) fn leaves_space_for(&self, entry_bytes: u64) -> bool {
        self.updates_pages && self.with_space(entry_bytes).is_some()
    }

    /// Page layout of the bottom for entries of about `entry_bytes`. Pages have spare ones near them where
    /// direct flushes replace most of them, unless large entries already take more space.
    pub(crate) fn bottom_layout(&self, entry_bytes: u64) -> RunLayout {
        let spaced = self.with_space(entry_bytes).filter(|_| self.flushes_directly);
        let layout = spaced.map(RunLayout::with_spares).or_else(|| self.page_layout(entry_bytes));
        layout.unwrap_or_default()
    }

    /// Layout of pages that are updated; `None` if such entries would leave much of them empty. Full pages
    /// with large entries take up to a third more space, which pays off where direct flushes replace them.
    fn page_layout(&self, entry_bytes: u64) -> Option<RunLayout> {
        if !self.updates_pages {
            return None;
        }
        let full = RunLayout::for_page_updates(100);
        let is_filled = self.flushes_directly && full.filled_part(entry_bytes) >= FILLED_PART_MIN;
        self.with_space(entry_bytes).or_else(|| is_filled.then_some(full))
    }

    /// Layout of pages with free space; `None` if entries are so large that it would keep one out.
    fn with_space(&self, entry_bytes: u64) -> Option<RunLayout> {
        let layout = RunLayout::for_page_updates(self.page_fill_percent);
        let is_filled = layout.filled_part(entry_bytes) >= layout.fill() * FILLED_WITH_SPACE_MIN;
        is_filled.then_some(layout)
    }
}

#[cfg(test)]
mod tests;
