//! Blocks of several pages in the page cache: each page is in a frame of its own.
//!
//! Who looks for one entry needs the first page of a block and those in which the entry lies; so the others
//! may go. What is missing is read with the whole block, in one read, because the checksum is that of the
//! block.
//!
//! **Invariants**
//! - A page comes into the cache only with its block, after that was verified. So each page that is there can
//!   be believed without the others.
//! - Blocks whose pages do not lie beside each other are not cached.

use std::{borrow::Cow, cell::OnceCell};

use testudo_base::{
    PAGE_BYTES, PAGE_SIZE,
    num::{u64_of, usize_of},
    planted,
};
use testudo_env::{AlignedBuffer, ReadRequest};

use crate::{
    DataFile, PageAddress, PageRef,
    cache::{Arrival, Awaited, Loading, Priority},
    data_file::page_format::{PAGE_HEADER_BYTES, PageHeader, payload_of},
};

/// Pages of a block that is cached, at most.
pub const CACHED_BLOCK_PAGES_MAX: u32 = 8;

/// In the place of a page that is not there, where a bug is planted.
static NOTHING: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// A block of several pages, as far as the cache has it.
#[derive(Debug)]
pub struct CachedBlock<'a> {
    data: &'a DataFile,
    address: PageAddress,
    /// Those that were looked for; they stay in the cache until the block is dropped.
    pages: [OnceCell<Option<PageRef<'a>>>; CACHED_BLOCK_PAGES_MAX as usize],
}

impl<'a> CachedBlock<'a> {
    /// The first page; `None` if it is not in the cache.
    pub fn first_page(&self) -> Option<&PageRef<'a>> {
        self.page(0)
    }

    /// Length of the payload; `None` if the first page is not in the cache.
    pub fn payload_bytes(&self) -> Option<usize> {
        let length = PageHeader::read(self.first_page()?).map_or(0, |header| header.payload_bytes);
        let most = usize_of(u64::from(self.address.pages)) * PAGE_SIZE - PAGE_HEADER_BYTES;
        Some(usize_of(u64::from(length)).min(most))
    }

    /// A part of the payload; `None` if a page of it is not in the cache. REQUIRES: it lies within the
    /// payload.
    pub fn part(&self, from: usize, length: usize) -> Option<Cow<'_, [u8]>> {
        let (start, end) = (PAGE_HEADER_BYTES + from, PAGE_HEADER_BYTES + from + length);
        let (first, last) = (start / PAGE_SIZE, end.saturating_sub(1).max(start) / PAGE_SIZE);
        let piece = |at: usize| {
            let (page, before) = (self.bytes(at)?, at * PAGE_SIZE);
            page.get(start.max(before) - before..end.min(before + PAGE_SIZE) - before)
        };
        if first == last {
            return piece(first).map(Cow::Borrowed);
        }
        let mut bytes = Vec::with_capacity(length);
        for at in first..=last {
            bytes.extend_from_slice(piece(at)?);
        }
        Some(Cow::Owned(bytes))
    }

    /// Appends the payload to `out`; `false` if a page of it is not in the cache.
    pub fn copy_payload(&self, out: &mut Vec<u8>) -> bool {
        let Some(length) = self.payload_bytes() else { return false };
        let end = PAGE_HEADER_BYTES + length;
        for at in 0..end.div_ceil(PAGE_SIZE) {
            let Some(page) = self.bytes(at) else { return false };
            let from = if at == 0 { PAGE_HEADER_BYTES } else { 0 };
            out.extend_from_slice(&page[from..PAGE_SIZE.min(end - at * PAGE_SIZE)]);
        }
        true
    }

    fn page(&self, at: usize) -> Option<&PageRef<'a>> {
        let page = || self.data.cache.get(self.address.page + u64_of(at), self.address.generation);
        self.pages.get(at)?.get_or_init(page).as_ref()
    }

    fn bytes(&self, at: usize) -> Option<&[u8]> {
        let page = self.page(at).map(|page| &**page);
        page.or(if planted!("block-from-partial-hit") { Some(&NOTHING) } else { None })
    }
}

/// A block that is being read.
#[derive(Debug)]
pub(super) struct BlockLoad<'a> {
    address: PageAddress,
    /// For its first page, unless that is there, or there is no frame for it.
    loading: Option<Loading<'a>>,
    present: Option<PageRef<'a>>,
    buffer: AlignedBuffer,
}

impl<'a> BlockLoad<'a> {
    /// Begins to read a block, or returns the load for which to wait if another thread does.
    pub(super) fn begin(data: &'a DataFile, address: &PageAddress) -> Result<Self, Awaited<'a>> {
        let (mut loading, mut present) = (None, None);
        match data.begin_load(address) {
            Arrival::Load(first) => loading = Some(first),
            Arrival::Present(first) => present = Some(first),
            Arrival::Elsewhere(awaited) => return Err(awaited),
            Arrival::Refused => {}
        }
        let buffer = AlignedBuffer::unfilled(usize_of(u64::from(address.pages)) * PAGE_SIZE);
        Ok(Self { address: *address, loading, present, buffer })
    }

    pub(super) fn page(&self) -> u64 {
        self.address.page
    }

    pub(super) fn request(&mut self) -> ReadRequest<'_> {
        ReadRequest::new(self.address.page * PAGE_BYTES, &mut self.buffer)
    }

    /// Verifies what was read and puts it into the cache; the block, and its first page there.
    pub(super) fn end(self, data: &DataFile) -> testudo_base::Result<(AlignedBuffer, Option<PageRef<'a>>)> {
        data.verify(&self.buffer, &self.address)?;
        // The first page last: who waits for the block waits for that.
        data.admit_pages(&self.address, &self.buffer, 1);
        let finish = |mut loading: Loading<'a>| {
            loading.bytes().copy_from_slice(&self.buffer[..PAGE_SIZE]);
            loading.finish()
        };
        let first = self.loading.map(finish).or(self.present);
        Ok((self.buffer, first))
    }
}

impl DataFile {
    /// What the cache has of a block of several pages; never reads from the device.
    pub fn cached_block(&self, address: &PageAddress) -> CachedBlock<'_> {
        debug_assert!(address.pages <= CACHED_BLOCK_PAGES_MAX, "longer blocks are not cached");
        CachedBlock { data: self, address: *address, pages: Default::default() }
    }

    /// Whether all pages of a block are in the cache, or on their way there.
    pub fn has_block(&self, address: &PageAddress) -> bool {
        (0..u64::from(address.pages)).all(|at| self.has_page(address.page + at))
    }

    /// Reads a block of several pages from the device into the cache, unless another thread does or just did.
    /// `act` sees its payload, and its first page in the cache if there is room for it.
    ///
    /// Errors: as of [`DataFile::load_page`].
    pub fn load_block<R>(
        &self,
        address: &PageAddress,
        act: impl FnOnce(&[u8], Option<&PageRef<'_>>) -> R,
    ) -> testudo_base::Result<R> {
        loop {
            match BlockLoad::begin(self, address) {
                Ok(mut load) => {
                    self.read_counted(address.page, &mut load.buffer)?;
                    let (block, first) = load.end(self)?;
                    return Ok(act(payload_of(&block), first.as_ref()));
                }
                Err(awaited) => awaited.wait(),
            }
            let (cached, mut payload) = (self.cached_block(address), Vec::new());
            if cached.copy_payload(&mut payload) {
                return Ok(act(&payload, cached.first_page()));
            }
        }
    }

    /// Puts the pages of a verified block into the cache, from page `from` of it on.
    pub(super) fn admit_pages(&self, address: &PageAddress, bytes: &[u8], from: usize) {
        for (at, page) in bytes.chunks_exact(PAGE_SIZE).enumerate().skip(from) {
            drop(self.cache.insert(address.page + u64_of(at), address.generation, page, Priority::Data));
        }
    }
}

#[cfg(test)]
mod tests;
