//! How a run is laid out: what those who write one choose, by what is to become of it.

use testudo_base::num::u16_of;

use crate::format::builder::PAGE_PAYLOAD_BYTES;

/// About what an entry takes on a page beside its key and value.
const ENTRY_OVERHEAD_BYTES: u64 = 6;

/// How the pages of a run are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLayout {
    /// It has a filter: queries for keys that it does not have are mostly spared a read.
    pub has_filter: bool,
    /// Bytes of a page that are filled, at most; what is left is for what comes later.
    pub fill_bytes: u16,
    /// A value for which there is no room on a page may go on in the next one (decision 0051).
    pub continues_values: bool,
}

impl RunLayout {
    /// For a run of which pages are to be replaced: there is some room on each, and no filter, which would
    /// not know what they get.
    pub fn for_page_updates() -> Self {
        let fill_bytes = PAGE_PAYLOAD_BYTES / 16 * 15;
        Self { has_filter: false, fill_bytes: u16_of(fill_bytes), continues_values: false }
    }

    /// Which part of a page is filled by entries of so many bytes of keys and values, if none goes on in the
    /// next page.
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
