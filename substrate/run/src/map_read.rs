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

/// Reads the maps of runs that were not read yet, in one batch. Those that cannot be read in a second attempt
/// either, and damaged ones, are left out.
///
/// Errors: `Corruption` if a map is outside its run; transient errors of the device.
pub(crate) fn read_maps(data: &DataFile, references: &mut [RunRef]) -> Result<()> {
    let mut wanted = Vec::new();
    for (number, reference) in references.iter().enumerate() {
        let Some(map) = reference.map().filter(|_| !reference.has_known_places()) else { continue };
        let outside = || Error::corruption("manifest", 0, "a map is outside its run");
        let pages = reference.map_pages(map).ok_or_else(outside)?;
        wanted.push((number, pages));
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let all: Vec<u64> = wanted.iter().flat_map(|(_, pages)| pages).copied().collect();
    let (mut bytes, mut outcomes) = (AlignedBuffer::unfilled(all.len() * PAGE_SIZE), Vec::new());
    for attempt in 0..2 {
        let reads = all.iter().copied().zip(bytes.chunks_exact_mut(PAGE_SIZE));
        outcomes = data.read_many(&mut reads.collect::<Vec<_>>());
        if outcomes.iter().all(Result::is_ok) {
            break;
        }
        let transient =
            |outcome: &Result<()>| outcome.as_ref().err().filter(|error| error.is_transient()).cloned();
        if let Some(error) = outcomes.iter().find_map(transient).filter(|_| attempt > 0) {
            return Err(error);
        }
    }
    let (mut outcomes, mut rest) = (outcomes.into_iter(), &bytes[..]);
    for (number, pages) in wanted {
        let (own, behind) = rest.split_at(pages.len() * PAGE_SIZE);
        rest = behind;
        if outcomes.by_ref().take(pages.len()).fold(true, |all, read| all & read.is_ok()) {
            // Without its list the run is opened, and its reads report the damage.
            let _ = references[number].take_map(data.store(), pages[0], own);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
