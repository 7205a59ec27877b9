//! Walks all pages of a run in order and verifies each block, for copies and scrubbing.
//!
//! The caller reads the bytes, from the data file, bypassing the cache, or from a copy of the run. The walk
//! needs only the run's reference, so that damage in one block does not hide the others.
//!
//! **Invariants**
//! - Every page of the run except the spare ones is in exactly one block of exactly one stretch. The place of
//!   a spare page may be that of another one.
//! - A block without damage is the expected one by store, run, keyspace, kind and checksum.

use testudo_base::{
    PAGE_SIZE, Result, StoreId,
    num::{u32_of, usize_of},
    planted,
};
use testudo_env::AlignedBuffer;
use testudo_storage::{PAGE_HEADER_BYTES, PageHeader, PageIdentity, PageKind, payload_of, verify_pages};

use crate::{RunRef, spans::locate_page};

/// Pages per read, unless a block is longer.
const STRETCH_PAGES: u32 = 64;

/// A visited block, valid or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkedBlock {
    /// First page, counted from the start of the run.
    pub page: u32,
    /// Number of pages; 1 if its header cannot be trusted.
    pub pages: u32,
    /// Expected identity.
    pub identity: PageIdentity,
    /// Reason why it is invalid.
    pub damage: Option<&'static str>,
    /// Whether the unused bytes after the payload, which no checksum covers, are zeros.
    pub is_padded_with_zeros: bool,
}

/// Consecutive whole blocks that were read together.
#[derive(Debug)]
pub struct Stretch<'a> {
    /// First page, counted from the start of the run.
    pub first_page: u32,
    /// Bytes of the blocks.
    pub bytes: &'a mut [u8],
    /// The blocks, in order.
    pub blocks: &'a [WalkedBlock],
}

impl RunRef {
    /// Number of pages of the run: from its first data block to the end of its footer, its map, and its
    /// overflow pages.
    pub fn page_count(&self) -> u32 {
        let overflow = self.replaced.as_ref().map_or(0, |replaced| u32_of(replaced.overflow().len()));
        self.map_end().saturating_add(overflow)
    }

    /// Returns the physical page of page `page` of the run, and how many pages are contiguous from there,
    /// itself included; `None` beyond the end.
    pub fn locate(&self, page: u32) -> Option<(u64, u32)> {
        locate_page(self, || self.spans.iter().copied(), page)
    }
}

/// A walk through one run. Overflow pages come last.
#[derive(Debug)]
pub struct PageWalk<'a> {
    reference: &'a RunRef,
    store: StoreId,
    next_page: u32,
    stretch_pages: u32,
    window: AlignedBuffer,
    blocks: Vec<WalkedBlock>,
}

/// Fills a buffer from a page of the run on.
pub type ReadPages<'r> = dyn FnMut(u32, &mut [u8]) -> Result<()> + 'r;

impl<'a> PageWalk<'a> {
    /// Creates a walk through the run of `reference` in store `store`, from page `first_page` on.
    pub fn new(reference: &'a RunRef, store: StoreId, first_page: u32) -> Self {
        let window = AlignedBuffer::zeroed(0);
        Self {
            reference,
            store,
            next_page: reference.not_spare(first_page),
            stretch_pages: STRETCH_PAGES,
            window,
            blocks: Vec::new(),
        }
    }

    /// First page of the next stretch.
    pub fn next_page(&self) -> u32 {
        self.next_page
    }

    /// Sets the number of pages per read, e.g. 1 after a failed larger read; `None` restores the default.
    pub fn set_stretch(&mut self, pages: Option<u32>) {
        self.stretch_pages = pages.unwrap_or(STRETCH_PAGES).max(1);
    }

    /// Skips pages that could not be read.
    pub fn skip(&mut self, pages: u32) {
        self.next_page = self.reference.not_spare(self.next_page.saturating_add(pages));
    }

    /// Reads and verifies the next blocks; `None` at the end of the run. An error of `read` leaves the
    /// position unchanged.
    pub fn next_stretch(&mut self, read: &mut ReadPages<'_>) -> Result<Option<Stretch<'_>>> {
        let first_page = self.next_page;
        let left = self.reference.page_count().saturating_sub(first_page);
        if left == 0 {
            return Ok(None);
        }
        let mut pages = self.stretch_pages.min(left);
        if !planted!("spare-pages-walked") {
            pages = self.reference.pages_before_spare(first_page, pages);
        }
        self.fill(read, first_page, pages)?;
        self.blocks.clear();
        let mut at = 0;
        if !self.reference.has_known_places() && first_page < self.reference.data_pages {
            at = pages.min(self.reference.data_pages - first_page);
            self.blocks.push(self.unlocated(first_page, at));
            pages = at;
        }
        while at < pages {
            let (kind, count) = self.claim_of(first_page + at, at);
            if at + count > pages {
                if at > 0 {
                    break;
                }
                pages = count;
                self.fill(read, first_page, pages)?;
            }
            let block = self.judge(first_page + at, at, kind, count);
            at += block.pages;
            self.blocks.push(block);
        }
        self.next_page = self.reference.not_spare(first_page + at);
        let bytes = &mut self.window[..bytes_of(at)];
        Ok(Some(Stretch { first_page, bytes, blocks: &self.blocks }))
    }

    /// Returns data pages of a run whose map is lost, as one damaged block: whether they were replaced is
    /// unknown.
    fn unlocated(&self, page: u32, pages: u32) -> WalkedBlock {
        let RunRef { id: generation, keyspace, incarnation, .. } = *self.reference;
        let (store, kind) = (self.store, PageKind::Data);
        let map = self.reference.locate(self.reference.footer_end()).map_or(0, |(physical, _)| physical);
        let identity = PageIdentity { store, kind, page: map, generation, keyspace, incarnation };
        let damage = Some("the map of the run's replaced pages cannot be read");
        WalkedBlock { page, pages, identity, damage, is_padded_with_zeros: true }
    }

    fn fill(&mut self, read: &mut ReadPages<'_>, first_page: u32, pages: u32) -> Result<()> {
        if self.window.len() < bytes_of(pages) || self.window.len() > bytes_of(pages.max(STRETCH_PAGES)) {
            self.window = AlignedBuffer::unfilled(bytes_of(pages));
        }
        read(first_page, &mut self.window[..bytes_of(pages)])
    }

    /// Returns the expected kind of the block at `page`, and its number of pages according to its header.
    fn claim_of(&self, page: u32, at: u32) -> (PageKind, u32) {
        let reference = self.reference;
        let header = PageHeader::read(&self.window[bytes_of(at)..]);
        let (kind, region_end) = if page < reference.data_pages {
            (PageKind::Data, reference.data_pages)
        } else if page >= reference.map_end() {
            (PageKind::Data, page + 1)
        } else if page >= reference.footer_end() {
            (PageKind::Map, reference.map_end())
        } else if page >= reference.footer_page {
            (PageKind::Footer, reference.footer_end())
        } else if header.is_some_and(|header| header.kind == Some(PageKind::Filter)) {
            (PageKind::Filter, reference.footer_page)
        } else {
            (PageKind::Index, reference.footer_page)
        };
        let length = header.map_or(0, |header| usize_of(u64::from(header.payload_bytes)));
        let pages = (PAGE_HEADER_BYTES + length).div_ceil(PAGE_SIZE);
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        (kind, if pages <= region_end - page { pages } else { 1 })
    }

    fn judge(&self, page: u32, at: u32, kind: PageKind, pages: u32) -> WalkedBlock {
        let physical = self.reference.locate(page).map_or(0, |(physical, _)| physical);
        let writing = self.reference.place_of(page).writing;
        let kind = if self.reference.is_replaced(page) { PageKind::Replaced } else { kind };
        let identity = PageIdentity {
            store: self.store,
            kind,
            page: physical,
            generation: writing.generation,
            keyspace: self.reference.keyspace,
            incarnation: writing.incarnation,
        };
        let bytes = &self.window[bytes_of(at)..bytes_of(at + pages)];
        let damage = verify_pages(bytes, &identity).err();
        let end = PAGE_HEADER_BYTES + payload_of(bytes).len();
        let is_padded_with_zeros = bytes[end..].iter().all(|&byte| byte == 0);
        // The length of an invalid block cannot be trusted.
        let pages = if damage.is_some() { 1 } else { pages };
        WalkedBlock { page, pages, identity, damage, is_padded_with_zeros }
    }
}

fn bytes_of(pages: u32) -> usize {
    usize_of(u64::from(pages)) * PAGE_SIZE
}
