//! Restores pages of an earlier cache: adjacent ones together, in large reads.
//!
//! **Invariants**
//! - A page with a wrong identity is skipped: its next reader will report the damage.
//! - Restoring only fills the page cache; it evicts nothing.

use testudo_base::{
    Error, KeyspaceId, LargeVec, PAGE_BYTES, PAGE_SIZE, Result,
    num::{u64_of, usize_of},
};
use testudo_env::{AlignedBuffer, File as _, ReadRequest};

use crate::{
    DATA_FILE, DataFile, HotPage, Keeping, PAGE_HEADER_BYTES, PageAddress, PageHeader, PageKind, Restoring,
};

/// Maximum pages per read (256 KiB).
const PAGES_MAX: u64 = 64;
/// Maximum pages of a restored block (2 MiB).
const BLOCK_PAGES_MAX: usize = 512;
/// Maximum distance of wanted pages in one read: reading the gap costs less than another read.
const GAP_MAX: u64 = 4;

/// A page to restore, with its expected identity except the kind, which its header states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedPage {
    /// The page.
    pub hot: HotPage,
    /// The keyspace that wrote it.
    pub keyspace: KeyspaceId,
    /// Lowest 32 bits of the incarnation that wrote it.
    pub incarnation: u32,
}

/// Result of a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Number of pages that were added to the cache.
    pub pages: u64,
    /// Bytes that were read for them.
    pub read_bytes: u64,
    /// Whether the cache ran out of memory.
    pub is_full: bool,
}

impl DataFile {
    /// Returns the cached pages, approximately. A block of several pages is represented by its first page,
    /// which alone has a header; restoring it restores the block.
    pub fn hot_pages(&self, kept: Keeping) -> LargeVec<[u64; 2]> {
        self.cache
            .hot_pages(kept, |page, bytes| PageHeader::read(bytes).is_some_and(|header| header.page == page))
    }

    /// Restores pages to the cache as far as there is memory. REQUIRES: they are sorted by number, fit into
    /// one batch of reads, and their extents are held.
    ///
    /// Errors: `Io`. Pages with a wrong identity are skipped.
    pub fn restore_pages(&self, wanted: &[WantedPage]) -> Result<Restored> {
        debug_assert!(wanted.is_sorted_by_key(|wanted| wanted.hot.page), "pages must be sorted by number");
        let missing: Vec<_> = wanted.iter().filter(|wanted| !self.cache.has(wanted.hot.page)).collect();
        let chunks: Vec<_> = missing.chunk_by(|a, b| are_read_together(a.hot.page, b.hot.page)).collect();
        let mut buffers: Vec<_> =
            chunks.iter().map(|chunk| AlignedBuffer::unfilled(bytes_of(chunk))).collect();
        let mut requests: Vec<ReadRequest<'_>> = chunks
            .iter()
            .zip(&mut buffers)
            .map(|(chunk, buffer)| ReadRequest::new(chunk[0].hot.page * PAGE_BYTES, buffer))
            .collect();
        self.file.read_batch(&mut requests);
        let results: Vec<_> = requests.into_iter().map(|request| request.result).collect();
        let (mut restored, mut blocks) = (Restored::default(), Vec::new());
        for ((chunk, buffer), result) in chunks.iter().zip(&buffers).zip(results) {
            result.map_err(|error| Error::io(DATA_FILE, error))?;
            restored.read_bytes += u64_of(buffer.len());
            if !restored.is_full {
                blocks.extend(self.put_back(chunk, buffer, &mut restored));
            }
        }
        for (address, keeping, pages) in &blocks {
            if !restored.is_full && self.cache.has_room_for(*pages) {
                self.put_block_back(address, (*keeping, *pages), &mut restored)?;
            }
        }
        self.count_stream_reads(u64_of(chunks.len() + blocks.len()), restored.read_bytes);
        Ok(restored)
    }

    /// Restores the pages of a block, if they are consecutive in the file.
    fn put_block_back(
        &self,
        address: &PageAddress,
        (keeping, pages): (Keeping, usize),
        restored: &mut Restored,
    ) -> Result<()> {
        let mut bytes = AlignedBuffer::unfilled(pages * PAGE_SIZE);
        match self.file.read_at(address.page * PAGE_BYTES, &mut bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            outcome => outcome.map_err(|error| Error::io(DATA_FILE, error))?,
        }
        restored.read_bytes += u64_of(bytes.len());
        if self.check(&bytes, address).is_err() {
            return Ok(());
        }
        for (page, bytes) in (address.page..).zip(bytes.chunks_exact(PAGE_SIZE)) {
            let hot = HotPage { page, generation: address.generation, keeping };
            match self.cache.restore(&hot, bytes) {
                Restoring::Done => restored.pages += 1,
                Restoring::Present => {}
                Restoring::Full => restored.is_full = true,
            }
        }
        Ok(())
    }

    /// Restores the pages of one read. Returns the first page of each block of several pages, with the
    /// block's keeping and its number of pages according to the header.
    fn put_back(
        &self,
        chunk: &[&WantedPage],
        buffer: &[u8],
        restored: &mut Restored,
    ) -> Vec<(PageAddress, Keeping, usize)> {
        let mut blocks = Vec::new();
        for WantedPage { hot, keyspace, incarnation } in chunk.iter().copied() {
            let start = usize_of((hot.page - chunk[0].hot.page) * PAGE_BYTES);
            let bytes = &buffer[start..start + PAGE_SIZE];
            let Some(header) = PageHeader::read(bytes) else { continue };
            let Some(kind) = header.kind else { continue };
            let address = PageAddress {
                page: hot.page,
                generation: hot.generation,
                keyspace: *keyspace,
                incarnation: *incarnation,
                kind,
            };
            let pages = (PAGE_HEADER_BYTES + usize_of(header.payload_bytes.into())).div_ceil(PAGE_SIZE);
            let is_block = (2..=BLOCK_PAGES_MAX).contains(&pages);
            if !is_block && self.check(bytes, &address).is_err() {
                continue;
            }
            let keeping = match (kind, hot.keeping) {
                (PageKind::Data | PageKind::Replaced, Keeping::Probation) => Keeping::Probation,
                (PageKind::Data | PageKind::Replaced, _) => Keeping::Main,
                _ => Keeping::Structure,
            };
            if is_block {
                blocks.push((address, keeping, pages));
                continue;
            }
            match self.cache.restore(&HotPage { keeping, ..*hot }, bytes) {
                Restoring::Done => restored.pages += 1,
                Restoring::Present => {}
                Restoring::Full => {
                    restored.is_full = true;
                    break;
                }
            }
        }
        blocks
    }
}

fn are_read_together(page: u64, next: u64) -> bool {
    next - page <= GAP_MAX && page / PAGES_MAX == next / PAGES_MAX
}

/// Bytes from the start of the first page to the end of the last one.
fn bytes_of(chunk: &[&WantedPage]) -> usize {
    let pages = chunk[chunk.len() - 1].hot.page - chunk[0].hot.page + 1;
    usize_of(pages * PAGE_BYTES)
}
