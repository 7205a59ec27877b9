//! Queries of merges and compaction buffers to the page cache: which pages are cached, and which are warm.
//!
//! **Invariants**
//! - All answers are hints: pages are loaded and evicted meanwhile.

use testudo_base::sync::atomic::Ordering::Relaxed;

use crate::{DataFile, PageAddress};

impl DataFile {
    /// Whether a page is cached or being loaded.
    pub fn has_page(&self, page: u64) -> bool {
        self.cache.has(page)
    }

    /// Whether queries use a page repeatedly, so that its replacement should be cached
    /// ([`DataFile::admit_warm`]).
    pub fn is_warm(&self, address: &PageAddress) -> bool {
        self.warms_merges.load(Relaxed) && self.cache.is_warm(address.page, address.generation)
    }

    /// Caches a newly written page that replaces warm ones.
    pub fn admit_warm(&self, address: &PageAddress, bytes: &[u8]) {
        self.cache.insert_warm(address.page, address.generation, bytes);
    }

    /// Sets whether merges treat pages as warm. Default: `false`.
    pub fn set_warms_merges(&self, warms_merges: bool) {
        self.warms_merges.store(warms_merges, Relaxed);
    }

    /// Sets the maximum size of retained runs, in percent of the tree's nodes, while queries find them in
    /// memory. Default: 0.
    pub fn set_retained_percent(&self, percent: u32) {
        self.retained_percent.store(percent, Relaxed);
    }

    /// The value set by [`DataFile::set_retained_percent`].
    pub fn retained_percent(&self) -> u32 {
        self.retained_percent.load(Relaxed)
    }
}
