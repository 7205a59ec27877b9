//! Reads of pages of several runs in one batch.
//!
//! **Invariants**
//! - Pages are verified; those that are not cached are read bypassing the cache.

use testudo_base::{PAGE_SIZE, Result, num::usize_of};
use testudo_env::AlignedBuffer;
use testudo_storage::{DataFile, PageAddress, PageKind};

use crate::Run;

/// Maximum distance of pages that are read together: a longer read costs less than a second one.
const READ_GAP_MAX: u64 = 4;

/// Contents of pages that were read together.
#[derive(Default)]
pub(super) struct PageContents {
    /// Adjacent pages each.
    pieces: Vec<AlignedBuffer>,
    /// Piece and first byte of each page.
    places: Vec<(usize, usize)>,
    /// Pages to be read, with their numbers.
    missing: Vec<(PageAddress, usize)>,
}

impl PageContents {
    pub(super) fn page(&self, number: usize) -> &[u8] {
        let (piece, start) = self.places[number];
        &self.pieces[piece][start..start + PAGE_SIZE]
    }

    /// Adds pages of a run. Those that are not cached are read later.
    pub(super) fn add(&mut self, run: &Run, pages: &[u32]) -> Result<()> {
        for page in pages {
            let address = run.address(PageKind::Data, *page)?;
            let number = self.places.len();
            self.places.push((self.pieces.len(), 0));
            match run.data().cached_page(&address) {
                Some(cached) => {
                    let mut bytes = AlignedBuffer::unfilled(PAGE_SIZE);
                    bytes.copy_from_slice(&cached);
                    self.pieces.push(bytes);
                }
                None => self.missing.push((address, number)),
            }
        }
        Ok(())
    }

    /// Reads the pages that are not cached, those near each other together, bypassing the cache.
    pub(super) fn read(&mut self, data: &DataFile) -> Result<()> {
        let mut missing = std::mem::take(&mut self.missing);
        missing.sort_unstable_by_key(|(address, _)| address.page);
        let mut first_pages = Vec::new();
        for near in missing.chunk_by(|(a, _), (b, _)| b.page - a.page <= READ_GAP_MAX) {
            let [(first, _), ..] = near else { continue };
            let at = |address: &PageAddress| usize_of(address.page - first.page) * PAGE_SIZE;
            near.iter().for_each(|(address, number)| self.places[*number] = (self.pieces.len(), at(address)));
            let bytes = near.last().map_or(0, |(last, _)| at(last)) + PAGE_SIZE;
            self.pieces.push(AlignedBuffer::unfilled(bytes));
            first_pages.push(first.page);
        }
        let read = self.pieces.len() - first_pages.len();
        let buffers = self.pieces[read..].iter_mut().map(|piece| &mut piece[..]);
        let mut reads: Vec<(u64, &mut [u8])> = first_pages.into_iter().zip(buffers).collect();
        if !reads.is_empty() {
            data.read_many(&mut reads).into_iter().collect::<Result<()>>()?;
        }
        missing.iter().try_for_each(|(address, number)| data.verify(self.page(*number), address))
    }
}
