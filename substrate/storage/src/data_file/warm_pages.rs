//! What merges and compaction buffers ask of the page cache: what is in memory, and what is in use.
//!
//! **Invariants**
//! - All of it is a hint: pages come and go meanwhile.

use testudo_base::sync::atomic::Ordering::Relaxed;

use crate::{DataFile, PageAddress};

impl DataFile {
    /// Whether a page is in the cache, or on its way there.
    pub fn has_page(&self, page: u64) -> bool {
        self.cache.has(page)
    }

    /// Whether queries use a page again and again, so that what is written in its place is worth to be in the
    /// cache ([`DataFile::admit_warm`]).
    pub fn is_warm(&self, address: &PageAddress) -> bool {
        self.warms_merges.load(Relaxed) && self.cache.is_warm(address.page, address.generation)
    }

    /// Puts a page into the cache that is being written in the place of warm ones.
    pub fn admit_warm(&self, address: &PageAddress, bytes: &[u8]) {
        self.cache.insert_warm(address.page, address.generation, bytes);
    }

    /// Whether merges find any page warm. They do unless this says otherwise.
    pub fn set_warms_merges(&self, warms_merges: bool) {
        self.warms_merges.store(warms_merges, Relaxed);
    }

    /// Most of what a tree of nodes takes that merged runs may take beside it, in hundredths, as long as
    /// queries find them in memory. 0 unless this says otherwise.
    pub fn set_retained_percent(&self, percent: u32) {
        self.retained_percent.store(percent, Relaxed);
    }

    /// What was set for that.
    pub fn retained_percent(&self) -> u32 {
        self.retained_percent.load(Relaxed)
    }
}
