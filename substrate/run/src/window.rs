//! Pages of a run that were read before they were needed.
//!
//! **Invariants**
//! - The bytes are as they came from the device: whoever takes a block out of here verifies it.

use testudo_base::{PAGE_SIZE, num::usize_of};
use testudo_env::AlignedBuffer;

use crate::footer::BlockPosition;

/// Consecutive pages of a run.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) first_page: u32,
    pub(crate) pages: u32,
    pub(crate) bytes: AlignedBuffer,
}

/// Bytes of this many pages.
pub(crate) fn page_bytes(pages: u32) -> usize {
    usize_of(u64::from(pages)) * PAGE_SIZE
}

impl Window {
    pub(crate) fn holds(&self, position: BlockPosition) -> bool {
        position.page >= self.first_page && position.page + position.pages <= self.first_page + self.pages
    }

    /// The bytes of a block. REQUIRES: the window holds it.
    pub(crate) fn block(&self, position: BlockPosition) -> &[u8] {
        let start = page_bytes(position.page - self.first_page);
        &self.bytes[start..start + page_bytes(position.pages)]
    }
}
