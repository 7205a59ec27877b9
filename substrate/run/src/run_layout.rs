//! Layout options of a run, chosen by its writer for the intended use.

use testudo_base::num::{u16_of, usize_of};

use crate::{ReplacedPageRecord, format::builder::PAGE_PAYLOAD_BYTES};

/// Approximate bytes of an entry on a page beyond its key and value.
const ENTRY_OVERHEAD_BYTES: u64 = 6;

/// Bytes of a page that its entries never fill, so that it can be replaced with entries of the same sizes: a
/// replaced page describes itself, and an entry's slot and lengths are not in its own bytes.
const UNFILLED_BYTES: usize = ReplacedPageRecord::BYTES + 16;

/// How the pages of a run are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLayout {
    /// Whether the run has a filter, which saves most reads of queries for absent keys.
    pub has_filter: bool,
    /// Maximum bytes of a page that are filled; the rest is left for later updates.
    pub fill_bytes: u16,
    /// Whether a value that does not fit on a page may continue in the next one (decision 0051).
    pub continues_values: bool,
    /// Whether the last two of every 16 pages are left unused, so that replaced pages stay near their
    /// neighbors (TreeLine §4.2): a scan reads them all together. The first block of several pages ends it.
    pub has_spares: bool,
}

impl RunLayout {
    /// Layout of a run whose pages will be replaced: filled to `fill_percent`, the rest is for entries that
    /// are added or grow, and no filter, which would miss keys added later.
    pub fn for_page_updates(fill_percent: u32) -> Self {
        debug_assert!(fill_percent <= 100, "a percentage of a page");
        let fill_bytes = PAGE_PAYLOAD_BYTES * usize_of(u64::from(fill_percent)) / 100;
        let fill_bytes = u16_of(fill_bytes.min(PAGE_PAYLOAD_BYTES - UNFILLED_BYTES));
        Self { has_filter: false, fill_bytes, continues_values: false, has_spares: false }
    }

    /// The same layout with spare pages.
    #[must_use]
    pub fn with_spares(self) -> Self {
        Self { has_spares: true, ..self }
    }

    /// Whether the pages will be replaced one by one.
    pub fn is_for_updates(&self) -> bool {
        !self.has_filter && !self.continues_values
    }

    /// Maximum fraction of a page that is filled.
    pub fn fill(&self) -> f64 {
        f64::from(self.fill_bytes) / PAGE_PAYLOAD_BYTES as f64
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
        Self { has_filter: true, fill_bytes: u16::MAX, continues_values: true, has_spares: false }
    }
}
