//! Pages of a run that were read before they were needed.
//!
//! **Invariants**
//! - The bytes are as they came from the device: whoever takes a block out of here verifies it.

use testudo_base::{PAGE_SIZE, Result, num::usize_of};
use testudo_env::AlignedBuffer;
use testudo_storage::{StreamLease, StreamRead};

use crate::format::footer::BlockPosition;

/// Consecutive pages of a run.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) first_page: u32,
    pub(crate) pages: u32,
    pub(crate) bytes: AlignedBuffer,
    /// For bytes that were read ahead of use.
    pub(crate) _lease: Option<StreamLease>,
}

/// Pages that follow a window and are on their way.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) first_page: u32,
    pub(crate) pages: u32,
    pub(crate) read: StreamRead,
    pub(crate) lease: StreamLease,
}

impl Ahead {
    pub(crate) fn holds(&self, position: BlockPosition) -> bool {
        holds(self.first_page, self.pages, position)
    }

    /// Waits for the pages.
    pub(crate) fn arrive(self) -> Result<Window> {
        let bytes = self.read.wait()?;
        Ok(Window { first_page: self.first_page, pages: self.pages, bytes, _lease: Some(self.lease) })
    }
}

fn holds(first_page: u32, pages: u32, position: BlockPosition) -> bool {
    position.page >= first_page && position.page + position.pages <= first_page + pages
}

/// Bytes of this many pages.
pub(crate) fn page_bytes(pages: u32) -> usize {
    usize_of(u64::from(pages)) * PAGE_SIZE
}

impl Window {
    pub(crate) fn holds(&self, position: BlockPosition) -> bool {
        holds(self.first_page, self.pages, position)
    }

    /// The bytes of a block. REQUIRES: the window holds it.
    pub(crate) fn block(&self, position: BlockPosition) -> &[u8] {
        debug_assert!(self.holds(position), "the window holds the block");
        let start = page_bytes(position.page - self.first_page);
        &self.bytes[start..start + page_bytes(position.pages)]
    }
}
