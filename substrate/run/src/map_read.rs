//! Reads the maps of runs: those of an open store in batches, and those of a damaged store from its file.
//!
//! **Invariants**
//! - A damaged map does not fail the opening of its store: its run is opened, and fails reads of its data.

use testudo_base::{Error, PAGE_SIZE, Result, StoreId, codec::Damage, planted};
use testudo_env::{AlignedBuffer, File};
use testudo_storage::{DataFile, PageHeader, PageIdentity, PageKind, payload_of, verify_pages};

use crate::{MapPage, MapRef, RunRef, read_leniently, spans::locate};

impl RunRef {
    /// Physical pages of the map, in order; `None` if one is outside the run.
    pub(crate) fn map_pages(&self, map: &MapRef) -> Option<Vec<u64>> {
        let physical = |place: &u32| locate(self.spans.iter().copied(), *place).map(|(page, _)| page);
        map.places.iter().map(physical).collect()
    }

    /// Identity of the map at physical page `page`.
    pub(crate) fn map_identity(&self, map: &MapRef, store: StoreId, page: u64) -> PageIdentity {
        let (generation, incarnation) = (map.writing.generation, map.writing.incarnation);
        PageIdentity { store, kind: PageKind::Map, page, generation, keyspace: self.keyspace, incarnation }
    }

    /// Takes the list of replaced pages from the bytes of the map, if these are valid and its own.
    fn take_map(&mut self, store: StoreId, page: u64, bytes: &[u8]) -> std::result::Result<(), Damage> {
        let Some(map) = self.map().cloned() else { return Ok(()) };
        let mut identity = self.map_identity(&map, store, page);
        if planted!("map-page-older-than-run")
            && let Some(header) = PageHeader::read(bytes)
        {
            (identity.generation, identity.incarnation) = (header.generation, header.incarnation);
        }
        verify_pages(bytes, &identity).map_err(Damage)?;
        let list = MapPage::read(payload_of(bytes))?.into_list_of(self.id, self.newest_seqno)?;
        self.set_replaced(list.in_map(Some(map)))
    }

    /// Reads the map of the run, if it has one that was not read, from the data file of `store`.
    ///
    /// Errors: the reason why the map cannot be used.
    pub fn read_map(&mut self, file: &dyn File, store: StoreId) -> std::result::Result<(), Damage> {
        let Some(map) = self.map().filter(|_| !self.has_known_places()).cloned() else { return Ok(()) };
        let pages = self.map_pages(&map).ok_or(Damage("a map is outside its run"))?;
        let mut bytes = AlignedBuffer::zeroed(pages.len() * PAGE_SIZE);
        for (page, bytes) in pages.iter().zip(bytes.chunks_exact_mut(PAGE_SIZE)) {
            read_leniently(file, *page, bytes);
        }
        self.take_map(store, pages[0], &bytes)
    }
}

/// Reads the maps of runs that were not read yet, in one batch. Damaged ones are left out.
///
/// Errors: `Corruption` if a map is outside its run.
pub(crate) fn read_maps(data: &DataFile, references: &mut [RunRef]) -> Result<()> {
    let mut wanted = Vec::new();
    for (number, reference) in references.iter().enumerate() {
        let Some(map) = reference.map().filter(|_| !reference.has_known_places()) else { continue };
        let outside = || Error::corruption("manifest", 0, "a map is outside its run");
        let pages = reference.map_pages(map).ok_or_else(outside)?;
        let bytes = AlignedBuffer::unfilled(pages.len() * PAGE_SIZE);
        wanted.push((number, pages, bytes));
    }
    let mut reads: Vec<(u64, &mut [u8])> = Vec::new();
    for (_, pages, bytes) in &mut wanted {
        reads.extend(pages.iter().copied().zip(bytes.chunks_exact_mut(PAGE_SIZE)));
    }
    if reads.is_empty() {
        return Ok(());
    }
    let mut outcomes = data.read_many(&mut reads).into_iter();
    for (number, pages, bytes) in wanted {
        let are_read = outcomes.by_ref().take(pages.len()).fold(true, |all, read| all & read.is_ok());
        if are_read {
            // Without its list the run is opened, and its reads report the damage.
            let _ = references[number].take_map(data.store(), pages[0], &bytes);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
