//! Layout options of a run, chosen by its writer for the intended use.

use testudo_base::num::u16_of;

use crate::format::builder::PAGE_PAYLOAD_BYTES;

/// Approximate bytes of an entry on a page beyond its key and value.
const ENTRY_OVERHEAD_BYTES: u64 = 6;

/// Part of a page that is left free for later updates: some entries may grow before the page overflows.
const SPARE_PARTS: usize = 16;

/// How the pages of a run are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLayout {
    /// Whether the run has a filter, which saves most reads of queries for absent keys.
    pub has_filter: bool,
    /// Maximum bytes of a page that are filled; the rest is left for later updates.
    pub fill_bytes: u16,
    /// Whether a value that does not fit on a page may continue in the next one (decision 0051).
    pub continues_values: bool,
}

impl RunLayout {
    /// Layout of a run whose pages will be replaced: some free space on each page, and no filter, which would
    /// miss keys added later.
    pub fn for_page_updates() -> Self {
        let fill_bytes = PAGE_PAYLOAD_BYTES / SPARE_PARTS * (SPARE_PARTS - 1);
        Self { has_filter: false, fill_bytes: u16_of(fill_bytes), continues_values: false }
    }

    /// Fraction of a page filled by entries of this size in keys and values, if none continues in the next
    /// page.
    pub fn filled_part(&self, entry_bytes: u64) -> f64 {
        let (fill, entry) = (u64::from(self.fill_bytes), entry_bytes + ENTRY_OVERHEAD_BYTES);
        (fill / entry * entry) as f64 / PAGE_PAYLOAD_BYTES as f64
    }
}

impl Default for RunLayout {
    fn default() -> Self {
        Self { has_filter: true, fill_bytes: u16::MAX, continues_values: true }
    }
}
