//! Out-of-place updates of data pages: pages of a run are written to unused places. The run itself stays
//! unchanged, and a new version of it has the new pages (decision 0049; TreeLine's update in place).
//!
//! `find the pages of keys → read their entries → seal the new pages → new version → write pages and
//! map`
//!
//! Reads and writes of several runs can be batched.
//!
//! Places left by earlier versions are reused; pages are allocated where these are too few. A page whose
//! entries no longer fit gets an overflow page. Updates that do not fit into both, or would leave a page
//! empty, require rewriting the run.
//!
//! **Invariants**
//! - No page in use by any version is overwritten. The writes are durable after the data file is synced.
//! - A key stays on the page to which the index leads, or on its overflow page.
//! - Every version has a map of its own, in places that no version used, written in one batch with its pages.

use std::sync::Arc;

use testudo_base::{
    Entry, Error, ErrorKind, Incarnation, PAGE_SIZE, Result, RunId, Seqno, key,
    num::{low32, u32_of, u64_of, usize_of},
    planted,
    sync::OnceLock,
};
use testudo_env::AlignedBuffer;
use testudo_storage::{DataFile, Extent, PAGE_HEADER_BYTES, PageAddress, PageKind, payload_of, seal_pages};

use crate::{
    EntryList, KeyEnds, MapRef, OverflowPage, PagePart, PagePlace, ReplacedPageRecord, ReplacedPages, Run,
    RunRef, Writing,
    format::{
        block::Block,
        builder::{BlockBuilder, PAGE_PAYLOAD_BYTES},
        find_block::IndexedBlock,
        long_separators::MAX_SEPARATOR_BYTES,
        map_page,
    },
    page_places::choose_places,
    spans::{locate, used_places},
};

/// Maximum spans of a run with replaced pages.
const SPANS_MAX: usize = 64;
/// Maximum distance of pages that are read together: a longer read costs less than a second one.
const READ_GAP_MAX: u64 = 4;

/// New contents of a page: a block, or two blocks with the border between them.
#[derive(Debug)]
struct NewPage {
    page: u32,
    payload: Vec<u8>,
    overflow: Option<(Vec<u8>, Vec<u8>)>,
}

/// Contents of pages that were read together.
#[derive(Default)]
struct PageContents {
    /// Adjacent pages each.
    pieces: Vec<AlignedBuffer>,
    /// Piece and first byte of each page.
    places: Vec<(usize, usize)>,
    /// Pages to be read, with their numbers.
    missing: Vec<(PageAddress, usize)>,
}

impl PageContents {
    fn page(&self, number: usize) -> &[u8] {
        let (piece, start) = self.places[number];
        &self.pieces[piece][start..start + PAGE_SIZE]
    }

    /// Adds pages of a run. Those that are not cached are read later.
    fn add(&mut self, run: &Run, pages: &[u32]) -> Result<()> {
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
    fn read(&mut self, data: &DataFile) -> Result<()> {
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

/// Sealed pages, and their places in the data file, ascending.
#[derive(Debug)]
struct SealedPages {
    places: Vec<u64>,
    buffer: AlignedBuffer,
}

/// Number of pages of the map with a list.
fn map_pages_for(run: RunId, newest_seqno: Seqno, list: &ReplacedPages) -> u32 {
    let mut payload = Vec::new();
    map_page::encode(run, newest_seqno, list, &mut payload);
    u32_of((PAGE_HEADER_BYTES + payload.len()).div_ceil(PAGE_SIZE))
}

impl SealedPages {
    /// Adds the map of a version.
    fn with_map(self, data: &DataFile, reference: &RunRef) -> Result<Self> {
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
    fn writes(&self) -> Vec<(u64, &[u8])> {
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

/// A new version of a run whose pages are not written yet. If it is dropped, its places are free again.
#[derive(Debug)]
pub struct PreparedVersion {
    run: Arc<Run>,
    pages: SealedPages,
    overflow_pages: usize,
}

impl PreparedVersion {
    /// Number of replaced pages.
    pub fn replaced_pages(&self) -> u64 {
        u64_of(self.pages.places.len() - self.overflow_pages)
    }

    /// Number of overflow pages among the pages to be written.
    pub fn overflow_pages(&self) -> u64 {
        u64_of(self.overflow_pages)
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

/// An update of pages of a run.
#[derive(Debug)]
pub struct PageUpdate {
    run: Arc<Run>,
    blocks: Vec<IndexedBlock>,
    changed: Vec<NewPage>,
    entries: u64,
    tombstones: u64,
    user_bytes: u64,
    first_key: Option<Vec<u8>>,
    last_key: Option<Vec<u8>>,
}

impl PageUpdate {
    /// Starts an update of a run; `None` if its pages cannot be replaced. Reads index pages.
    pub fn begin(run: &Arc<Run>) -> Result<Option<Self>> {
        if run.reference().has_continued_values && !planted!("continuation-replaced") {
            return Ok(None);
        }
        run.require_places()?;
        let mut blocks: Vec<IndexedBlock> = Vec::new();
        Run::load_indexes(std::slice::from_ref(run))?;
        for at in run.footer()?.index.positions() {
            blocks.extend(run.index_entries(at)?);
        }
        // With cut separators, blocks are delimited by their first keys, which an update may change.
        if blocks.iter().any(|block| block.fork.is_some()) {
            return Ok(None);
        }
        let RunRef { entries, tombstones, user_bytes, .. } = *run.reference();
        Ok(Some(Self {
            run: Arc::clone(run),
            blocks,
            changed: Vec::new(),
            entries,
            tombstones,
            user_bytes,
            first_key: None,
            last_key: None,
        }))
    }

    /// Number of blocks of the run.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the number of the block that would hold `key`.
    pub fn block_of(&self, key: &[u8]) -> usize {
        self.blocks.partition_point(|block| block.separator.as_slice() <= key).saturating_sub(1)
    }

    /// Exclusive upper bound of a block's keys; `None` for the last block.
    pub fn end_of(&self, block: usize) -> Option<&[u8]> {
        self.blocks.get(block + 1).map(|next| next.separator.as_slice())
    }

    /// Whether all of these blocks can be replaced: those longer than a page cannot.
    pub fn can_replace(&self, blocks: &[usize]) -> bool {
        blocks.iter().all(|block| self.blocks[*block].position.pages == 1)
    }

    /// Returns the entries of some blocks of each update, in order. Pages that are not cached are read in one
    /// batch, bypassing the cache.
    pub fn read(updates: &[(&Self, &[usize])]) -> Result<Vec<Vec<EntryList>>> {
        let Some((first, _)) = updates.first() else { return Ok(Vec::new()) };
        let mut contents = PageContents::default();
        let mut wanted = Vec::with_capacity(updates.len());
        for (update, blocks) in updates {
            let pages = update.pages_of(blocks);
            contents.add(&update.run, &pages)?;
            wanted.push(pages);
        }
        contents.read(first.run.data())?;
        let mut number = 0..;
        let mut all = Vec::with_capacity(updates.len());
        for ((update, blocks), pages) in updates.iter().zip(wanted) {
            let mut lists: Vec<EntryList> = Vec::with_capacity(blocks.len());
            for (page, number) in pages.into_iter().zip(&mut number) {
                if update.run.reference().owner_of(page).is_none() {
                    lists.push(EntryList::default());
                }
                if let Some(list) = lists.last_mut() {
                    update.add_entries(page, payload_of(contents.page(number)), list)?;
                }
            }
            all.push(lists);
        }
        Ok(all)
    }

    /// Returns the pages of blocks, each followed by its overflow page.
    fn pages_of(&self, blocks: &[usize]) -> Vec<u32> {
        debug_assert!(self.can_replace(blocks), "only blocks of one page can be replaced");
        let mut pages = Vec::with_capacity(blocks.len());
        for block in blocks {
            let page = self.blocks[*block].position.page;
            pages.push(page);
            pages.extend(self.run.reference().overflow_of(page).map(|(overflow, _)| overflow));
        }
        pages
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

    /// Replaces the entries `old` of a block, as returned by [`PageUpdate::read`], with `new`; `false` if
    /// these do not fit. REQUIRES: blocks are passed in order.
    pub fn replace(&mut self, block: usize, old: &EntryList, new: &EntryList) -> bool {
        debug_assert!(
            new.iter().all(|entry| self.block_of(entry.key) == block),
            "the keys must belong to the block"
        );
        let page = self.blocks[block].position.page;
        debug_assert!(
            self.changed.last().is_none_or(|last| last.page < page),
            "blocks must be passed in order"
        );
        let (Some(first), Some(last)) = (new.first(), new.last()) else { return false };
        let Some(written) = new_page(page, new) else { return false };
        self.changed.push(written);
        let delta = |of: fn(&EntryList) -> u64, before: u64| (before + of(new)).saturating_sub(of(old));
        self.entries = delta(|list| u64_of(list.len()), self.entries);
        self.tombstones = delta(EntryList::tombstones, self.tombstones);
        self.user_bytes = delta(EntryList::user_bytes, self.user_bytes);
        if block == 0 {
            self.first_key = Some(first.key.to_vec());
        }
        if block + 1 == self.blocks.len() {
            self.last_key = Some(last.key.to_vec());
        }
        true
    }

    /// Whether the last replaced block needs an overflow page.
    pub fn last_overflows(&self) -> bool {
        self.changed.last().is_some_and(|page| page.overflow.is_some())
    }

    /// Number of pages of the run beyond the originally written ones, and those of two maps.
    pub fn extra_pages(&self) -> u32 {
        let all: u64 = self.run.reference().spans.iter().map(|span| u64::from(span.page_count)).sum();
        let maps = self.run.reference().map().map_or(0, |map| map.page_count().saturating_mul(2));
        low32(all).saturating_sub(self.run.reference().footer_end()).saturating_sub(maps)
    }

    /// Prepares a new version of the run, with an age of at least `newest_seqno` and pages of the generation
    /// `id`, which are not written yet. `None` if it would have too many spans.
    ///
    /// Errors: `OutOfSpace`, `Io`.
    ///
    /// REQUIRES: at least one block was replaced.
    pub fn prepare(mut self, id: RunId, newest_seqno: Seqno) -> Result<Option<PreparedVersion>> {
        debug_assert!(!self.changed.is_empty(), "some block must be replaced");
        let run = Arc::clone(&self.run);
        let incarnation = run.data().writer().map(Incarnation::low);
        let incarnation = incarnation
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "the data file is open for reading only"))?;
        let keys = self.key_ends()?;
        let writing = Writing { generation: id, incarnation };
        let before = run.reference();
        let none = || ReplacedPages::new(Vec::new(), Vec::new());
        let old = before.replaced.as_deref().cloned().unwrap_or_else(none);
        let changed = std::mem::take(&mut self.changed);
        let divided = changed.iter().filter(|page| page.overflow.is_some());
        let mut wanted: Vec<u32> = changed.iter().chain(divided).map(|new| new.page).collect();
        let new_pages = wanted.len();
        let first = run.extents().first().ok_or_else(|| Error::invalid("a run without pages"))?;
        let is_changed = |page: u32| changed.binary_search_by_key(&page, |new| new.page).is_ok();
        let list_with = |numbers: &[u32]| {
            let mut numbers = numbers.iter().copied();
            let mut place = || PagePlace { at: numbers.next().unwrap_or_default(), writing };
            let mut pages: Vec<(u32, PagePlace)> = changed.iter().map(|new| (new.page, place())).collect();
            let borders = changed.iter().filter_map(|new| Some((new.page, &new.overflow.as_ref()?.0)));
            let mut overflow: Vec<OverflowPage> = borders
                .map(|(of, border)| OverflowPage { of, border: border[..].into(), place: place() })
                .collect();
            let stays = |page: u32| !is_changed(page) && !planted!("earlier-updated-page-forgotten");
            pages.extend(old.pages().filter(|(page, _)| stays(*page)));
            pages.sort_unstable_by_key(|(page, _)| *page);
            overflow.extend(old.overflow().iter().filter(|page| !is_changed(page.of)).cloned());
            overflow.sort_unstable_by_key(|page| page.of);
            ReplacedPages::new(pages, overflow)
        };
        let newest_seqno = before.newest_seqno.max(newest_seqno);
        // Places that are not chosen yet count as the longest ones.
        let map_pages = map_pages_for(before.id, newest_seqno, &list_with(&vec![u32::MAX - 1; new_pages]));
        if !MapRef::can_have(map_pages) {
            return Ok(None);
        }
        wanted.extend((0..map_pages).map(|_| before.data_pages));
        let make = |numbers: &[u32], extents: &[Arc<Extent>]| {
            let (of_pages, of_map) = numbers.split_at(new_pages);
            let list = list_with(of_pages);
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
        let (places, made) = first.use_places(|used, has_plain| {
            let mut extents = run.extents().to_vec();
            let numbers = choose_places(&run, (used, has_plain), &wanted, &mut extents);
            match numbers {
                Ok(numbers) => {
                    let reference = make(&numbers, &extents);
                    (Arc::new(used_places(&reference)), Ok((numbers, reference, extents)))
                }
                Err(error) => (Arc::default(), Err(error)),
            }
        });
        let (numbers, reference, extents) = made?;
        if extents.len() > SPANS_MAX.max(run.extents().len()) {
            return Ok(None);
        }
        let sealed = self.seal(&changed, &numbers[..new_pages], writing, newest_seqno, &extents)?;
        let pages = sealed.with_map(run.data(), &reference)?;
        let footer = run.footer()?.clone();
        let data = Arc::clone(run.data());
        let scattered_reads = run.scattered_reads();
        let run = Run::with_places(data, reference, extents, OnceLock::from(footer), Some(places));
        run.note_scattered_reads(usize_of(scattered_reads));
        let overflow_pages = changed.iter().filter(|new| new.overflow.is_some()).count();
        Ok(Some(PreparedVersion { run: Arc::new(run), pages, overflow_pages }))
    }

    /// Returns the key ends of the new version. Reads unchanged ends if they are cut in the reference.
    fn key_ends(&mut self) -> Result<KeyEnds> {
        let (first, last) = (self.first_key.take(), self.last_key.take());
        if first.is_none() && last.is_none() {
            return Ok(self.run.reference().keys.clone());
        }
        let (old_first, old_last) = self.run.exact_ends()?;
        Ok(KeyEnds::of(&first.unwrap_or(old_first), &last.unwrap_or(old_last)))
    }

    /// Seals the pages for their places.
    fn seal(
        &self,
        changed: &[NewPage],
        numbers: &[u32],
        writing: Writing,
        newest_seqno: Seqno,
        extents: &[Arc<Extent>],
    ) -> Result<SealedPages> {
        let data = self.run.data();
        let part_of =
            |new: &NewPage| if new.overflow.is_some() { PagePart::BeforeBorder } else { PagePart::All };
        let payloads = changed.iter().map(|new| (new.page, part_of(new), &new.payload));
        let overflow = changed.iter().filter_map(|new| {
            let (_, payload) = new.overflow.as_ref()?;
            Some((new.page, PagePart::Overflow, payload))
        });
        debug_assert_eq!(
            numbers.len(),
            changed.len() + changed.iter().filter(|new| new.overflow.is_some()).count(),
            "each page has a place"
        );
        let spans = || extents.iter().map(|extent| extent.span());
        let mut pages = Vec::with_capacity(numbers.len());
        for (place, (page, part, payload)) in numbers.iter().zip(payloads.chain(overflow)) {
            let (physical, _) =
                locate(spans(), *place).ok_or_else(|| Error::invalid("a place is outside its run"))?;
            let (run, writing_pages) = (self.run.reference().id, u32_of(numbers.len()));
            let record = ReplacedPageRecord { run, page, part, newest_seqno, writing_pages };
            let mut payload = payload.clone();
            record.encode(&mut payload);
            pages.push((physical, page, payload));
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

/// Builds a page with these entries, and its overflow page if needed; `None` if they do not fit into both.
fn new_page(page: u32, entries: &EntryList) -> Option<NewPage> {
    if let Some(payload) = payload_with(entries, 0, entries.len()) {
        return Some(NewPage { page, payload, overflow: None });
    }
    let half = entries.user_bytes() / 2;
    let mut before = 0;
    let middle = entries.iter().position(|entry| {
        before += u64_of(entry.user_bytes());
        before > half
    })?;
    let middle = middle.clamp(1, entries.len().checked_sub(1)?.max(1));
    debug_assert!(middle > 0, "some entries are before the border");
    let (last, next) = (entries.get(middle - 1)?, entries.get(middle)?);
    let border = key::separator(last.key, next.key);
    if border.len() > MAX_SEPARATOR_BYTES {
        return None;
    }
    let payload = payload_with(entries, 0, middle)?;
    let behind = payload_with(entries, middle, entries.len())?;
    Some(NewPage { page, payload, overflow: Some((border, behind)) })
}

/// Builds the payload of a block with a range of entries; `None` if it exceeds a page.
fn payload_with(entries: &EntryList, from: usize, to: usize) -> Option<Vec<u8>> {
    debug_assert!(from < to && to <= entries.len(), "a range of the entries");
    let mut builder = BlockBuilder::default();
    for index in from..to {
        if !builder.push(&entries.get(index)?) {
            return None;
        }
    }
    if builder.is_empty() || builder.payload_bytes() + ReplacedPageRecord::BYTES > PAGE_PAYLOAD_BYTES {
        return None;
    }
    let mut payload = vec![0; PAGE_PAYLOAD_BYTES];
    let length = builder.encode_into(&mut payload);
    payload.truncate(length);
    Some(payload)
}

#[cfg(test)]
mod tests;
