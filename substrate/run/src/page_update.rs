//! Out-of-place updates of data pages: pages of a run are written to unused places. The run itself stays
//! unchanged, and a new version of it has the new pages (decision 0049; TreeLine's update in place).
//!
//! `find the sections of keys → read their entries → split and join (section_changes.rs) → seal the new
//! pages → new version → write pages and map`
//!
//! Reads and writes of several runs can be batched.
//!
//! Places left by earlier versions are reused; pages are allocated where these are too few.
//!
//! **Invariants**
//! - No page in use by any version is overwritten. The writes are durable after the data file is synced.
//! - A key stays on the page to which the index leads, or on one of its overflow pages.
//! - Every version has a map of its own, in places that no version used, written in one batch with its pages.

use std::{collections::BTreeSet, sync::Arc};

use testudo_base::{
    Entry, Error, ErrorKind, Incarnation, Kind, PAGE_SIZE, Result, RunId, Seqno,
    num::{low32, u32_of, u64_of, usize_of},
    planted,
    sync::OnceLock,
};
use testudo_env::AlignedBuffer;
use testudo_storage::{Extent, PAGE_HEADER_BYTES, PageAddress, PageKind, PlaceSet, payload_of, seal_pages};

use crate::{
    EntryList, KeyEnds, MapRef, OverflowPage, PagePlace, ReplacedPageRecord, ReplacedPages, Run, RunRef,
    Writing,
    format::block::Block,
    page_places::choose_places,
    page_update::{
        contents::PageContents,
        sealed_pages::{SealedPages, map_pages_for},
        section_changes::{ChangedSection, NewPage, Piece, Section, pages_of, pieces},
    },
    spans::{locate, used_places},
};

mod contents;
mod sealed_pages;
mod section_changes;

/// Maximum spans of a run with replaced pages.
const SPANS_MAX: usize = 64;

/// Work of an update, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateCounts {
    /// Pages that were replaced.
    pub replaced: u64,
    /// Pages that were split: further pages were written for their entries.
    pub split: u64,
    /// Pages that were joined with others.
    pub joined: u64,
    /// Pages written, without the map.
    pub written: u64,
}

/// A new version of a run whose pages are not written yet. If it is dropped, its places are free again.
#[derive(Debug)]
pub struct PreparedVersion {
    run: Arc<Run>,
    pages: SealedPages,
    counts: UpdateCounts,
    /// Sections that were split, ascending.
    split: Vec<usize>,
    tombstones: Vec<Vec<u8>>,
}

impl PreparedVersion {
    /// Work of the update.
    pub fn counts(&self) -> UpdateCounts {
        self.counts
    }

    /// Whether some entries of a section of the earlier version went to overflow pages.
    pub fn has_split(&self, section: usize) -> bool {
        self.split.binary_search(&section).is_ok()
    }

    /// Keys of the tombstones that were made for pages that would be empty.
    pub fn tombstones(&self) -> &[Vec<u8>] {
        &self.tombstones
    }

    /// Writes the pages of several versions in one batch.
    ///
    /// Errors: `OutOfSpace`, `Io`. Pages written until then are unreferenced.
    pub fn write(versions: Vec<Self>) -> Result<Vec<Arc<Run>>> {
        if let Some(first) = versions.first() {
            let writes: Vec<(u64, &[u8])> =
                versions.iter().flat_map(|version| version.pages.writes()).collect();
            first.run.data().write_many(&writes)?;
        }
        Ok(versions.into_iter().map(|version| version.run).collect())
    }
}

/// Pages to be written for an update.
#[derive(Debug, Default)]
struct NewPages {
    /// Those of first sections come first.
    pages: Vec<NewPage>,
    /// Pages of the run whose entries are all in new pages.
    replaced: BTreeSet<u32>,
    /// Sections that were split, ascending.
    split: Vec<usize>,
    counts: UpdateCounts,
}

/// A version whose pages have places.
struct PlacedVersion {
    /// Numbers of the places of its new pages.
    numbers: Vec<u32>,
    reference: RunRef,
    extents: Vec<Arc<Extent>>,
    /// All places that it uses.
    used: Arc<PlaceSet>,
}

/// An update of pages of a run.
///
/// Sections are numbered in key order: each data page, and after it its overflow pages.
#[derive(Debug)]
pub struct PageUpdate {
    run: Arc<Run>,
    sections: Vec<Section>,
    changed: Vec<ChangedSection>,
    /// First pages of the blocks that are longer than a page: they cannot be replaced.
    long: BTreeSet<u32>,
    entries: u64,
    tombstones: u64,
    user_bytes: u64,
}

impl PageUpdate {
    /// Starts an update of a run; `None` if its pages cannot be replaced. Reads index pages.
    pub fn begin(run: &Arc<Run>) -> Result<Option<Self>> {
        if run.reference().has_continued_values && !planted!("continuation-replaced") {
            return Ok(None);
        }
        run.require_places()?;
        Run::load_indexes(std::slice::from_ref(run))?;
        let (mut sections, mut long) = (Vec::new(), BTreeSet::new());
        for at in run.footer()?.index.positions() {
            for block in run.index_entries(at)? {
                // With cut separators, blocks are delimited by their first keys, which an update may change.
                if block.fork.is_some() {
                    return Ok(None);
                }
                let of = block.position.page;
                if block.position.pages > 1 {
                    long.insert(of);
                }
                sections.push(Section { of, page: of, low: block.separator });
                let overflow = run.reference().overflow_of(of);
                let border = |page: u32| run.reference().border_of(page).unwrap_or_default().to_vec();
                sections.extend(overflow.map(|page| Section { of, page, low: border(page) }));
            }
        }
        let RunRef { entries, tombstones, user_bytes, .. } = *run.reference();
        let run = Arc::clone(run);
        Ok(Some(Self { run, sections, changed: Vec::new(), long, entries, tombstones, user_bytes }))
    }

    /// Number of sections of the run.
    pub fn sections(&self) -> usize {
        self.sections.len()
    }

    /// Returns the number of the section that would hold `key`.
    pub fn section_of(&self, key: &[u8]) -> usize {
        self.sections.partition_point(|section| section.low.as_slice() <= key).saturating_sub(1)
    }

    /// Exclusive upper bound of a section's keys; `None` for the last one.
    pub fn end_of(&self, section: usize) -> Option<&[u8]> {
        self.sections.get(section + 1).map(|next| next.low.as_slice())
    }

    /// Whether all of these sections can be replaced: blocks longer than a page cannot.
    pub fn can_replace(&self, sections: &[usize]) -> bool {
        sections.iter().all(|section| !self.long.contains(&self.sections[*section].of))
    }

    /// Returns the entries of some sections of each update, in order. Pages that are not cached are read in
    /// one batch, bypassing the cache.
    pub fn read(updates: &[(&Self, &[usize])]) -> Result<Vec<Vec<EntryList>>> {
        let Some((first, _)) = updates.first() else { return Ok(Vec::new()) };
        let mut contents = PageContents::default();
        for (update, sections) in updates {
            debug_assert!(update.can_replace(sections), "only blocks of one page can be replaced");
            let pages: Vec<u32> = sections.iter().map(|section| update.sections[*section].page).collect();
            contents.add(&update.run, &pages)?;
        }
        contents.read(first.run.data())?;
        let mut number = 0..;
        let mut all = Vec::with_capacity(updates.len());
        for (update, sections) in updates {
            let mut lists: Vec<EntryList> = Vec::with_capacity(sections.len());
            for (section, number) in sections.iter().zip(&mut number) {
                let mut list = EntryList::default();
                let page = update.sections[*section].page;
                update.add_entries(page, payload_of(contents.page(number)), &mut list)?;
                lists.push(list);
            }
            all.push(lists);
        }
        Ok(all)
    }

    fn add_entries(&self, page: u32, payload: &[u8], list: &mut EntryList) -> Result<()> {
        let damaged = |damage| self.run.damaged(page, damage);
        let block = Block::parse(payload).map_err(damaged)?;
        let mut key = Vec::new();
        for slot in 0..block.count() {
            let cell = block.cell(slot).map_err(damaged)?;
            key.clear();
            key.extend_from_slice(block.prefix());
            key.extend_from_slice(cell.suffix);
            if list.last().is_some_and(|last| last.key >= key.as_slice()) {
                let message = format!("data: run {} has keys that do not increase", self.run.reference().id);
                return Err(Error::new(ErrorKind::Corruption, message));
            }
            list.push(&Entry { key: &key, kind: cell.kind, value: cell.value });
        }
        Ok(())
    }

    /// Replaces the entries `old` of a section, as returned by [`PageUpdate::read`], with `new`, after
    /// entries from the key `incoming` on came into it. REQUIRES: sections are passed in order.
    pub fn replace(&mut self, section: usize, old: &EntryList, incoming: &[u8], new: EntryList) {
        debug_assert!(
            new.iter().all(|entry| self.section_of(entry.key) == section),
            "the keys must belong to the section"
        );
        debug_assert!(
            self.changed.last().is_none_or(|last| last.section < section),
            "sections must be passed in order"
        );
        let delta = |of: fn(&EntryList) -> u64, before: u64| (before + of(&new)).saturating_sub(of(old));
        self.entries = delta(|list| u64_of(list.len()), self.entries);
        self.tombstones = delta(EntryList::tombstones, self.tombstones);
        self.user_bytes = delta(EntryList::user_bytes, self.user_bytes);
        let is_unchanged = |at: usize| new.get(at) == old.get(at);
        let is_greater = old.last().is_some_and(|last| last.key < incoming)
            && new.len() > old.len()
            && (0..old.len()).all(is_unchanged);
        let staying = if is_greater { old.len() } else { 0 };
        let first_key = old.first().map(|entry| entry.key.to_vec()).unwrap_or_default();
        self.changed.push(ChangedSection { section, entries: new, staying, first_key });
    }

    /// Number of pages of the run beyond the originally written ones, and those of two maps.
    pub fn extra_pages(&self) -> u32 {
        let all: u64 = self.run.reference().spans.iter().map(|span| u64::from(span.page_count)).sum();
        let maps = self.run.reference().map().map_or(0, |map| map.page_count().saturating_mul(2));
        low32(all).saturating_sub(self.run.reference().footer_end()).saturating_sub(maps)
    }

    /// Prepares a new version of the run, with an age of at least `newest_seqno` and pages of the generation
    /// `id`, which are not written yet. `None` if it is impossible: it would have too many spans or too long
    /// a map, or an entry or a border is too long.
    ///
    /// Errors: `OutOfSpace`, `Io`; those of reading pages with which others are joined.
    ///
    /// REQUIRES: at least one section was replaced.
    pub fn prepare(mut self, id: RunId, newest_seqno: Seqno) -> Result<Option<PreparedVersion>> {
        debug_assert!(!self.changed.is_empty(), "some section must be replaced");
        let incarnation = self.run.data().writer().map(Incarnation::low);
        let incarnation = incarnation
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "the data file is open for reading only"))?;
        let writing = Writing { generation: id, incarnation };
        let mut tombstones = Vec::new();
        let changed = std::mem::take(&mut self.changed);
        let read =
            |sections: &[usize]| Ok(Self::read(&[(&self, sections)])?.into_iter().next().unwrap_or_default());
        let pieces = pieces(&self.sections, changed, read, &mut tombstones)?;
        for key in &tombstones {
            let tombstone = Entry { key, kind: Kind::Tombstone, value: &[] };
            self.entries += 1;
            self.tombstones += 1;
            self.user_bytes += u64_of(tombstone.user_bytes());
        }
        let Some(pages) = self.pages_of(&pieces) else { return Ok(None) };
        let keys = self.key_ends(&pieces, &pages)?;
        let newest_seqno = self.run.reference().newest_seqno.max(newest_seqno);
        let placed = self.place(&pages, writing, (newest_seqno, keys))?;
        let Some(PlacedVersion { numbers, reference, extents, used }) = placed else { return Ok(None) };
        let sealed = self.seal(&pages.pages, &numbers, writing, newest_seqno, &extents)?;
        let sealed = sealed.with_map(self.run.data(), &reference)?;
        let footer = self.run.footer()?.clone();
        let data = Arc::clone(self.run.data());
        let scattered_reads = self.run.scattered_reads();
        let run = Run::with_places(data, reference, extents, OnceLock::from(footer), Some(used));
        run.note_scattered_reads(usize_of(scattered_reads));
        let NewPages { counts, split, .. } = pages;
        Ok(Some(PreparedVersion { run: Arc::new(run), pages: sealed, counts, split, tombstones }))
    }

    /// Builds the pages of all pieces, those of first sections first; `None` if that is impossible.
    fn pages_of(&self, pieces: &[Piece]) -> Option<NewPages> {
        let mut all = NewPages::default();
        let mut further = Vec::new();
        for piece in pieces {
            let written = pages_of(&self.sections, piece)?;
            let count = u64_of(written.pages.len());
            all.counts.written += count;
            all.counts.replaced += u64::from(!written.is_appended);
            if written.is_appended || count > 1 {
                all.counts.split += 1;
                all.split.extend(piece.sections.clone());
            }
            all.counts.joined += u64_of(piece.sections.len()) - 1;
            if !written.is_appended {
                all.replaced.extend(self.sections[piece.sections.clone()].iter().map(|section| section.page));
            }
            let (first, others): (Vec<_>, Vec<_>) =
                written.pages.into_iter().partition(|page| page.low.is_none());
            all.pages.extend(first);
            further.extend(others);
        }
        all.pages.extend(further);
        Some(all)
    }

    /// Returns the list of replaced pages of a version with new pages in places with these numbers.
    fn list_with(&self, new: &NewPages, numbers: &[u32], writing: Writing) -> ReplacedPages {
        let before = self.run.reference();
        let (mut pages, mut overflow): (Vec<(u32, PagePlace)>, Vec<OverflowPage>) = (Vec::new(), Vec::new());
        for (page, at) in new.pages.iter().zip(numbers) {
            let place = PagePlace { at: *at, writing };
            match &page.low {
                None => pages.push((page.of, place)),
                Some(low) => overflow.push(OverflowPage { of: page.of, border: low[..].into(), place }),
            }
        }
        let stays = |page: u32| !new.replaced.contains(&page);
        if let Some(old) = &before.replaced {
            let stays_here = |page: u32| stays(page) && !planted!("earlier-updated-page-forgotten");
            pages.extend(old.pages().filter(|(page, _)| stays_here(*page)));
            let numbered = (before.map_end()..).zip(old.overflow());
            overflow.extend(numbered.filter(|(page, _)| stays(*page)).map(|(_, page)| page.clone()));
        }
        pages.sort_unstable_by_key(|(page, _)| *page);
        overflow.sort_unstable_by(|a, b| (a.of, &a.border).cmp(&(b.of, &b.border)));
        ReplacedPages::new(pages, overflow)
    }

    /// Chooses places for new pages and the map; `None` if the version would have too many spans, or too long
    /// a map.
    fn place(
        &self,
        new: &NewPages,
        writing: Writing,
        (newest_seqno, keys): (Seqno, KeyEnds),
    ) -> Result<Option<PlacedVersion>> {
        let run = &self.run;
        let before = run.reference();
        let new_pages = new.pages.len();
        // Places that are not chosen yet count as the longest ones.
        let longest = self.list_with(new, &vec![u32::MAX - 1; new_pages], writing);
        let map_pages = map_pages_for(before.id, newest_seqno, &longest);
        if !MapRef::can_have(map_pages) {
            return Ok(None);
        }
        let mut wanted: Vec<u32> = new.pages.iter().map(|page| page.of).collect();
        wanted.extend((0..map_pages).map(|_| before.data_pages));
        let make = |numbers: &[u32], extents: &[Arc<Extent>]| {
            let (of_pages, of_map) = numbers.split_at(new_pages);
            let list = self.list_with(new, of_pages, writing);
            let needed = map_pages_for(before.id, newest_seqno, &list);
            debug_assert!(needed <= map_pages, "the longest places were assumed");
            let map =
                MapRef { writing, places: of_map.iter().copied().take(usize_of(needed.into())).collect() };
            let old_map = before.map().filter(|_| planted!("map-of-version-before")).cloned();
            RunRef {
                newest_seqno,
                spans: extents.iter().map(|extent| extent.span()).collect(),
                entries: self.entries,
                tombstones: self.tombstones,
                user_bytes: self.user_bytes,
                keys: keys.clone(),
                replaced: Some(Arc::new(list.in_map(Some(old_map.unwrap_or(map))))),
                ..before.clone()
            }
        };
        let first = run.extents().first().ok_or_else(|| Error::invalid("a run without pages"))?;
        let (used, made) = first.use_places(|used, has_plain| {
            let mut extents = run.extents().to_vec();
            let numbers = choose_places(run, (used, has_plain), &wanted, &mut extents);
            match numbers {
                Ok(numbers) => {
                    let reference = make(&numbers, &extents);
                    (Arc::new(used_places(&reference)), Ok((numbers, reference, extents)))
                }
                Err(error) => (Arc::default(), Err(error)),
            }
        });
        let (mut numbers, reference, extents) = made?;
        if extents.len() > SPANS_MAX.max(run.extents().len()) {
            return Ok(None);
        }
        numbers.truncate(new_pages);
        Ok(Some(PlacedVersion { numbers, reference, extents, used }))
    }

    /// Returns the key ends of the new version. Reads unchanged ends if they are cut in the reference.
    fn key_ends(&self, pieces: &[Piece], new: &NewPages) -> Result<KeyEnds> {
        let first = pieces
            .first()
            .filter(|piece| piece.sections.start == 0 && new.replaced.contains(&self.sections[0].page));
        let last = pieces.last().filter(|piece| piece.sections.end == self.sections.len());
        if first.is_none() && last.is_none() {
            return Ok(self.run.reference().keys.clone());
        }
        let (mut first_key, mut last_key) = self.run.exact_ends()?;
        if let Some(entry) = first.and_then(|piece| piece.entries.first()) {
            first_key = entry.key.to_vec();
        }
        if let Some(entry) = last.and_then(|piece| piece.entries.last()) {
            last_key = entry.key.to_vec();
        }
        Ok(KeyEnds::of(&first_key, &last_key))
    }

    /// Seals the pages for their places.
    fn seal(
        &self,
        new: &[NewPage],
        numbers: &[u32],
        writing: Writing,
        newest_seqno: Seqno,
        extents: &[Arc<Extent>],
    ) -> Result<SealedPages> {
        let data = self.run.data();
        debug_assert_eq!(numbers.len(), new.len(), "each page has a place");
        let spans = || extents.iter().map(|extent| extent.span());
        let mut pages = Vec::with_capacity(numbers.len());
        for (place, page) in numbers.iter().zip(new) {
            let (physical, _) =
                locate(spans(), *place).ok_or_else(|| Error::invalid("a place is outside its run"))?;
            let (run, writing_pages) = (self.run.reference().id, u32_of(numbers.len()));
            let part = page.part.clone();
            let record = ReplacedPageRecord { run, page: page.of, part, newest_seqno, writing_pages };
            let mut payload = page.payload.clone();
            record.encode(&mut payload);
            pages.push((physical, page.instead_of, payload));
        }
        pages.sort_unstable_by_key(|(physical, ..)| *physical);
        let mut buffer = AlignedBuffer::unfilled(pages.len() * PAGE_SIZE);
        for ((physical, _, payload), bytes) in pages.iter().zip(buffer.chunks_exact_mut(PAGE_SIZE)) {
            bytes[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + payload.len()].copy_from_slice(payload);
            seal_pages(bytes, &data.identity(&self.address_of(*physical, writing)), payload.len());
        }
        self.admit(&pages, &buffer, writing)?;
        Ok(SealedPages { places: pages.into_iter().map(|(physical, ..)| physical).collect(), buffer })
    }

    /// Address of a page of this update.
    fn address_of(&self, physical: u64, writing: Writing) -> PageAddress {
        let Writing { generation, incarnation } = writing;
        let (keyspace, kind) = (self.run.reference().keyspace, PageKind::Replaced);
        PageAddress { page: physical, generation, keyspace, incarnation, kind }
    }

    /// Caches new pages that replace cached ones. They are not found before the version is part of a tree.
    fn admit(&self, pages: &[(u64, u32, Vec<u8>)], bytes: &[u8], writing: Writing) -> Result<()> {
        let data = self.run.data();
        for ((physical, of, _), bytes) in pages.iter().zip(bytes.chunks_exact(PAGE_SIZE)) {
            data.forget_page(*physical);
            let replaced = self.run.address(PageKind::Data, *of)?;
            if data.has_page(replaced.page) {
                data.admit(&self.address_of(*physical, writing), bytes);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
