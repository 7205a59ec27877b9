//! Pages of a version of a run as they are written, with its map.
//!
//! **Invariants**
//! - Places ascend, and adjacent pages are written together.

use testudo_base::{Error, PAGE_SIZE, Result, RunId, Seqno, num::u32_of};
use testudo_env::AlignedBuffer;
use testudo_storage::{DataFile, PAGE_HEADER_BYTES, seal_pages};

use crate::{ReplacedPages, RunRef, format::map_page};

/// Sealed pages, and their places in the data file, ascending.
#[derive(Debug)]
pub(super) struct SealedPages {
    pub(super) places: Vec<u64>,
    pub(super) buffer: AlignedBuffer,
}

/// Number of pages of the map with a list.
pub(super) fn map_pages_for(run: RunId, newest_seqno: Seqno, list: &ReplacedPages) -> u32 {
    let mut payload = Vec::new();
    map_page::encode(run, newest_seqno, list, &mut payload);
    u32_of((PAGE_HEADER_BYTES + payload.len()).div_ceil(PAGE_SIZE))
}

impl SealedPages {
    /// Adds the map of a version.
    pub(super) fn with_map(self, data: &DataFile, reference: &RunRef) -> Result<Self> {
        let outside = || Error::invalid("a map is outside its run");
        let list = reference.replaced.as_deref().ok_or_else(outside)?;
        let map = list.map().ok_or_else(outside)?;
        let mut payload = Vec::new();
        map_page::encode(reference.id, reference.newest_seqno, list, &mut payload);
        let mut block = vec![0; map.places.len() * PAGE_SIZE];
        block[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + payload.len()].copy_from_slice(&payload);
        let physical = reference.map_pages(map).ok_or_else(outside)?;
        let identity = reference.map_identity(map, data.store(), physical[0]);
        seal_pages(&mut block, &identity, payload.len());
        let of_map = physical.iter().copied().zip(block.chunks_exact(PAGE_SIZE));
        let own = self.places.iter().copied().zip(self.buffer.chunks_exact(PAGE_SIZE));
        let mut all: Vec<(u64, &[u8])> = own.chain(of_map).collect();
        all.sort_unstable_by_key(|(physical, _)| *physical);
        let mut buffer = AlignedBuffer::unfilled(all.len() * PAGE_SIZE);
        for ((_, page), bytes) in all.iter().zip(buffer.chunks_exact_mut(PAGE_SIZE)) {
            bytes.copy_from_slice(page);
        }
        physical.iter().for_each(|page| data.forget_page(*page));
        Ok(Self { places: all.into_iter().map(|(physical, _)| physical).collect(), buffer })
    }

    /// Returns adjacent pages together, each with the first place.
    pub(super) fn writes(&self) -> Vec<(u64, &[u8])> {
        let mut rest = &self.buffer[..];
        let mut writes = Vec::new();
        for adjacent in self.places.chunk_by(|a, b| a + 1 == *b) {
            let (bytes, others) = rest.split_at(adjacent.len() * PAGE_SIZE);
            writes.push((adjacent[0], bytes));
            rest = others;
        }
        debug_assert!(rest.is_empty(), "each page has a place");
        writes
    }
}
