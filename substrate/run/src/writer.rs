//! Writes a run in one sequential pass.
//!
//! Entries are collected into blocks, and blocks into a buffer of up to 256 KiB, which is written to the
//! device when full. Index separators and key hashes stay in memory until the end. Index and filter pages are
//! put into the page cache, because the next queries need them, and so are data pages that replace pages in
//! use by queries (decision 0046). The decoded footer stays in the run.
//!
//! **Invariants**
//! - Pages are sealed for their final location: space is allocated before a block is sealed.
//! - At most `writes_max` buffers are in flight while the next one is filled.
//! - Dropping an unfinished writer frees its space once its in-flight writes have ended; nothing refers to
//!   it.

use std::{collections::VecDeque, sync::Arc};

use testudo_base::{
    Entry, Error, ErrorKind, Incarnation, KeyspaceId, Kind, LargeVec, PAGE_SIZE, Result, RunId, Seqno,
    checksum::hash_key,
    key,
    num::{u32_of, u64_of, usize_of},
    planted,
};
use testudo_env::AlignedBuffer;
use testudo_storage::{DataFile, Extent, PAGE_HEADER_BYTES, PageAddress, PageKind, PageWrite, seal_pages};

use self::written_index::{WrittenBlock, WrittenIndex};
use crate::{
    RunLayout,
    format::slot_group::{GROUP_PAGES, GROUP_SPARES},
    format::{
        block::CONTINUATION_BYTES,
        builder::{BlockBuilder, PAGE_PAYLOAD_BYTES},
        footer::BlockPosition,
        long_separators::{MAX_SEPARATOR_BYTES, Separator},
    },
    spans::locate,
};

mod ending;
mod written_index;

/// Maximum bytes of a buffer.
const BUFFER_BYTES: usize = 256 << 10;
/// Initial allocation if the expected size is not available; more is allocated on demand.
const PAGES_MIN: u32 = 4;
/// Slots, headers, index and filter take about this part of the bytes of entries.
const OVERHEAD_PARTS: u64 = 16;
/// Minimum entries of an index page with short keys, for space estimates.
const INDEX_ENTRIES_MIN: usize = 64;
/// Entries of a page for which memory is allocated at once.
const PAGE_ENTRIES: usize = 32;
/// Pages of an incomplete index block and of a footer, for space estimates.
const ENDING_PAGES: usize = 3;

/// Identity of a new run.
#[derive(Clone, Debug)]
pub struct RunOrigin {
    /// Id of the run.
    pub id: RunId,
    /// The keyspace that writes it.
    pub keyspace: KeyspaceId,
    /// Name of that keyspace.
    pub keyspace_name: Arc<str>,
    /// Its age, see [`RunRef::newest_seqno`](crate::RunRef::newest_seqno).
    pub newest_seqno: Seqno,
}

/// Longer borders are not stored in the index.
const MAX_BORDER_BYTES: usize = 64;

/// A run being written.
#[derive(Debug)]
pub struct RunWriter {
    layout: RunLayout,
    /// Writes in flight. Before `extents`, because fields are dropped in order.
    on_its_way: VecDeque<PageWrite>,
    /// Maximum writes in flight.
    writes_max: usize,
    /// Whether its pages may be only in the memory of the process until the next sync.
    is_collected: bool,
    data: Arc<DataFile>,
    origin: RunOrigin,
    /// Lowest 32 bits of the data file's writing incarnation.
    incarnation: u32,
    extents: Vec<Arc<Extent>>,
    /// Number of leading extents that the durable state references.
    referred_extents: usize,
    /// Number of pages in `extents`.
    taken_pages: u32,
    /// Number of pages sealed so far.
    next_page: u32,
    buffer: AlignedBuffer,
    buffered_pages: usize,
    block: BlockBuilder,
    index: WrittenIndex,
    hashes: LargeVec<u64>,
    admitted: Vec<(u32, PageKind, Vec<u8>)>,
    /// Last key of the finished blocks.
    previous_key: Vec<u8>,
    /// First key of the last finished block, if it is long.
    previous_first: Vec<u8>,
    block_separator: Separator,
    first_key: Vec<u8>,
    entries: u64,
    /// Number of entries of the open block, and how many of them are warm.
    block_entries: u32,
    block_warm_entries: u32,
    tombstones: u64,
    user_bytes: u64,
    data_bytes: u64,
    has_continued_values: bool,
    /// Exclusive end of the slot groups with spare pages so far.
    spare_end: u32,
}

impl RunWriter {
    /// Starts a run. `expected_bytes` of entries determine the first allocation; more is allocated on demand.
    ///
    /// Errors: `OutOfSpace`, `Io`.
    pub fn new(data: Arc<DataFile>, origin: RunOrigin, expected_bytes: u64) -> Result<Self> {
        let pages = u32_of(
            usize_of(expected_bytes + expected_bytes / OVERHEAD_PARTS).div_ceil(PAGE_SIZE).clamp(2, 1 << 18)
                + 2,
        );
        let incarnation = data
            .writer()
            .map(Incarnation::low)
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "the data file is open for reading only"))?;
        let extents = match data.allocate(pages) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => data.allocate(PAGES_MIN)?,
            outcome => outcome?,
        };
        debug_assert!(!extents.is_empty(), "a run has space");
        Ok(Self {
            layout: RunLayout::default(),
            taken_pages: extents.iter().map(|extent| extent.span().page_count).sum(),
            on_its_way: VecDeque::new(),
            writes_max: 1,
            is_collected: false,
            data,
            origin,
            incarnation,
            extents,
            referred_extents: 0,
            next_page: 0,
            // A small run needs only its data pages plus index, filter and footer.
            buffer: AlignedBuffer::unfilled(BUFFER_BYTES.min((usize_of(u64::from(pages)) + 4) * PAGE_SIZE)),
            buffered_pages: 0,
            block: BlockBuilder::with_room_for(PAGE_ENTRIES, usize_of(expected_bytes)),
            index: WrittenIndex::default(),
            hashes: LargeVec::new(),
            admitted: Vec::new(),
            previous_key: Vec::new(),
            previous_first: Vec::new(),
            block_separator: Separator::default(),
            first_key: Vec::new(),
            entries: 0,
            block_entries: 0,
            block_warm_entries: 0,
            tombstones: 0,
            user_bytes: 0,
            data_bytes: 0,
            has_continued_values: false,
            spare_end: 0,
        })
    }

    /// Sets the page layout. REQUIRES: no entry was pushed.
    #[must_use]
    pub fn with_layout(self, layout: RunLayout) -> Self {
        debug_assert_eq!(self.entries, 0, "set before the first entry");
        Self { layout, ..self }
    }

    /// Sets the maximum bytes that are filled of the open page and the following ones.
    pub fn set_fill_bytes(&mut self, bytes: u16) {
        self.layout.fill_bytes = bytes;
    }

    /// Extents allocated so far.
    pub fn extents(&self) -> &[Arc<Extent>] {
        &self.extents
    }

    /// Lowest 32 bits of the incarnation in its page headers.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Allows up to `writes_max` in-flight buffers of about `bytes` each, at most 256 KiB. REQUIRES: no entry
    /// was pushed.
    #[must_use]
    pub fn with_buffers(self, writes_max: usize, bytes: usize) -> Self {
        debug_assert_eq!(self.entries, 0, "set before the first entry");
        debug_assert!(writes_max > 0, "a write is in flight at least");
        let bytes = bytes.next_multiple_of(PAGE_SIZE).clamp(4 * PAGE_SIZE, BUFFER_BYTES);
        Self { buffer: AlignedBuffer::unfilled(bytes), writes_max, ..self }
    }

    /// Allows small writes to be combined with those of other runs, until the next sync of the data file: for
    /// entries that are in the log as well. REQUIRES: no entry was pushed.
    #[must_use]
    pub fn collected(self) -> Self {
        debug_assert_eq!(self.entries, 0, "set before the first entry");
        Self { is_collected: true, ..self }
    }

    /// Sets the upper bound of its entries' seqnos: for commits it is known only at the end.
    pub fn set_newest_seqno(&mut self, seqno: Seqno) {
        self.origin.newest_seqno = seqno;
    }

    /// Marks the space allocated so far as referenced by the durable state, until an edit references the run
    /// instead. The caller keeps that space.
    pub fn note_referred(&mut self) {
        self.referred_extents = self.extents.len();
    }

    /// Whether an entry of this size fits into the allocated space, with index and footer.
    pub fn has_room_for(&self, entry_bytes: usize) -> bool {
        // The block of a long value is as long as the value.
        let is_open = !self.block.is_empty() || self.block.has_continuation();
        let open = if is_open { self.block.payload_bytes().div_ceil(PAGE_PAYLOAD_BYTES) } else { 0 };
        let ending = self.index.len() / INDEX_ENTRIES_MIN + ENDING_PAGES;
        debug_assert!(self.next_page <= self.taken_pages, "pages are written to allocated space");
        let pages = entry_bytes.div_ceil(PAGE_PAYLOAD_BYTES) + 1 + open + ending;
        usize_of(u64::from(self.taken_pages - self.next_page)) >= pages
    }

    /// Writes all pushed entries, so that they can be read back without an index. The next entry starts a new
    /// page.
    pub fn write_out(&mut self) -> Result<()> {
        self.finish_block()?;
        self.write_rest()
    }

    /// Approximate bytes of memory: buffers, including those in flight, and data kept until the end.
    pub fn memory_bytes(&self) -> usize {
        // The OS backs a buffer with memory when it is first filled.
        let buffers = self.on_its_way.len() + usize::from(self.next_page > 0);
        buffers * self.buffer.len() + self.index.room_bytes() + self.hashes.room_bytes()
    }

    /// Bytes of finished data blocks.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Last key so far; empty if there is none.
    #[inline]
    pub fn last_key(&self) -> &[u8] {
        if self.block.is_empty() { &self.previous_key } else { self.block.last_key() }
    }

    /// Number of entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Adds an entry.
    ///
    /// Errors: `Corruption` unless its key is greater than all previous ones: entries come from other runs,
    /// which may be damaged.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<()> {
        if self.entries > 0 && entry.key <= self.last_key() {
            let message = format!("data: run {} would get keys that do not increase", self.origin.id);
            return Err(Error::new(ErrorKind::Corruption, message));
        }
        if self.entries == 0 {
            self.first_key = entry.key.to_vec();
        }
        if self.is_filled_by(entry) || !self.push_whole(entry) {
            self.push_across(entry)?;
        }
        if self.layout.has_filter {
            self.hashes.push(hash_key(entry.key));
        }
        self.entries += 1;
        self.block_entries += 1;
        self.tombstones += u64::from(entry.kind == Kind::Tombstone);
        self.user_bytes += u64_of(entry.user_bytes());
        debug_assert!(self.tombstones <= self.entries, "tombstones are entries");
        Ok(())
    }

    /// Adds an entry to the open block; `false` if it does not fit.
    #[inline]
    fn push_whole(&mut self, entry: &Entry<'_>) -> bool {
        let is_first = self.block.is_empty();
        if !self.block.push(entry) {
            return false;
        }
        if is_first && self.next_page > 0 {
            self.begin_block(entry.key);
        }
        true
    }

    /// Starts a block that is not the first one with this key.
    fn begin_block(&mut self, first_key: &[u8]) {
        self.block_separator = Separator::between(&self.previous_first, &self.previous_key, first_key);
    }

    /// Adds an entry that does not fit into the open block: in parts, or in the next block.
    fn push_across(&mut self, entry: &Entry<'_>) -> Result<()> {
        if self.push_in_parts(entry)? {
            return Ok(());
        }
        self.finish_block()?;
        if !self.push_whole(entry) && !self.push_in_parts(entry)? {
            if self.next_page > 0 {
                self.begin_block(entry.key);
            }
            self.block.push_long(entry);
        }
        Ok(())
    }

    /// Adds the part of an entry that fits into the open block, and the rest to the following pages; `false`
    /// if that is not worth it.
    fn push_in_parts(&mut self, entry: &Entry<'_>) -> Result<bool> {
        if !self.layout.continues_values {
            return Ok(false);
        }
        let is_first = self.block.is_empty();
        let border = if is_first { Vec::new() } else { key::separator(self.block.last_key(), entry.key) };
        let Some(written) = self.block.push_first_part(entry) else { return Ok(false) };
        if is_first && self.next_page > 0 {
            self.begin_block(entry.key);
        }
        debug_assert!(written > 0 && written < entry.value.len(), "a part of the value is in each page");
        self.has_continued_values = true;
        self.finish_block()?;
        let parts = entry.value[written..].chunks(CONTINUATION_BYTES);
        if let Some(block) = self.index.last_mut().filter(|_| border.len() <= MAX_BORDER_BYTES) {
            let stated = u32_of(parts.len()) + u32::from(planted!("pages-behind-overstated"));
            block.continued_from = Some((border.into(), stated));
        }
        for part in parts {
            self.finish_block()?;
            self.block.start_with(part);
        }
        Ok(true)
    }

    /// Whether the open block has reached its fill limit, so that the entry goes to the next one.
    #[inline]
    fn is_filled_by(&self, entry: &Entry<'_>) -> bool {
        let fill_bytes = usize::from(self.layout.fill_bytes);
        fill_bytes < PAGE_PAYLOAD_BYTES
            && !self.block.is_empty()
            && self.block.payload_bytes() + entry.user_bytes() > fill_bytes
    }

    /// Marks the last entry as warm ([`testudo_base::Cursor::is_warm`]).
    #[inline]
    pub fn note_warm(&mut self) {
        self.block_warm_entries += 1;
    }

    fn finish_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            // The index never leads queries to a page that holds only the end of a value.
            let is_needed = self.block.has_continuation() && !planted!("lone-continuation-not-written");
            return if is_needed { self.write_open_block().map(|_| ()) } else { Ok(()) };
        }
        self.previous_key.clear();
        self.previous_key.extend_from_slice(self.block.last_key());
        self.previous_first.clear();
        if self.block.first_key().len() > MAX_SEPARATOR_BYTES {
            self.previous_first.extend_from_slice(self.block.first_key());
        }
        let position = self.write_open_block()?;
        let separator = std::mem::take(&mut self.block_separator);
        self.index.push(WrittenBlock { separator, position, continued_from: None });
        Ok(())
    }

    fn write_open_block(&mut self) -> Result<BlockPosition> {
        let mut block = std::mem::take(&mut self.block);
        let written = self.write_block_of(PageKind::Data, &mut block);
        self.block = block;
        (self.block_entries, self.block_warm_entries) = (0, 0);
        let position = written?;
        self.data_bytes += u64::from(position.pages) * u64_of(PAGE_SIZE);
        Ok(position)
    }

    /// Encodes a block in place in the write buffer, and seals it.
    fn write_block_of(&mut self, kind: PageKind, block: &mut BlockBuilder) -> Result<BlockPosition> {
        let pages = (block.payload_bytes() + PAGE_HEADER_BYTES).div_ceil(PAGE_SIZE);
        if kind == PageKind::Data && self.layout.has_spares {
            self.leave_spares(pages)?;
        }
        self.write_block_with(kind, pages, |payload| block.encode_into(payload))
    }

    /// Leaves spare pages before a data block of `pages` pages, if they are due.
    fn leave_spares(&mut self, pages: usize) -> Result<()> {
        // A block of several pages may not fit into a group.
        self.layout.has_spares = pages == 1;
        if pages > 1 || self.next_page % GROUP_PAGES != GROUP_PAGES - GROUP_SPARES {
            return Ok(());
        }
        self.take_space(usize_of(u64::from(GROUP_SPARES)))?;
        for _ in 0..GROUP_SPARES {
            if (self.buffered_pages + 1) * PAGE_SIZE > self.buffer.len() {
                self.write_buffer()?;
            }
            self.buffer[self.buffered_pages * PAGE_SIZE..][..PAGE_SIZE].fill(0);
            self.buffered_pages += 1;
            self.next_page += 1;
        }
        self.spare_end = self.next_page;
        Ok(())
    }

    /// Seals a block and queues it for the device.
    fn write_block(&mut self, kind: PageKind, payload: &[u8]) -> Result<BlockPosition> {
        self.write_block_in(kind, payload, (payload.len() + PAGE_HEADER_BYTES).div_ceil(PAGE_SIZE))
    }

    /// Allocates space until this many more pages fit.
    fn take_space(&mut self, pages: usize) -> Result<()> {
        while usize_of(u64::from(self.taken_pages - self.next_page)) < pages {
            let more = match self.data.allocate(u32_of(pages.max(16))) {
                Err(error) if error.kind() == ErrorKind::OutOfSpace => self.data.allocate(u32_of(pages))?,
                outcome => outcome?,
            };
            self.taken_pages += more.iter().map(|extent| extent.span().page_count).sum::<u32>();
            self.extents.extend(more);
        }
        debug_assert!(usize_of(u64::from(self.taken_pages - self.next_page)) >= pages, "the pages fit");
        Ok(())
    }

    /// Like [`Self::write_block`], in this many pages. REQUIRES: the payload fits.
    fn write_block_in(&mut self, kind: PageKind, payload: &[u8], pages: usize) -> Result<BlockPosition> {
        debug_assert!(payload.len() + PAGE_HEADER_BYTES <= pages * PAGE_SIZE, "the payload must fit");
        self.write_block_with(kind, pages, |out| {
            out[..payload.len()].copy_from_slice(payload);
            payload.len()
        })
    }

    /// Lets `encode` write a payload for `pages` pages and return its length; seals it and queues it for
    /// writing.
    fn write_block_with(
        &mut self,
        kind: PageKind,
        pages: usize,
        encode: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<BlockPosition> {
        debug_assert!(pages > 0, "a block needs at least one page");
        self.take_space(pages)?;
        let position = BlockPosition { page: self.next_page, pages: u32_of(pages) };
        let length = pages * PAGE_SIZE;
        let address = self.address(kind, position.page);
        let identity = self.data.identity(&address);
        if self.buffered_pages * PAGE_SIZE + length > self.buffer.len() {
            self.write_buffer()?;
        }
        if length > self.buffer.len() {
            let mut large = AlignedBuffer::zeroed(length);
            let payload_bytes = encode(&mut large[PAGE_HEADER_BYTES..]);
            seal_pages(&mut large, &identity, payload_bytes);
            self.write_across(position.page, &large)?;
        } else {
            let start = self.buffered_pages * PAGE_SIZE;
            let target = &mut self.buffer[start..start + length];
            let payload_bytes = encode(&mut target[PAGE_HEADER_BYTES..]);
            seal_pages(target, &identity, payload_bytes);
            if matches!(kind, PageKind::Index | PageKind::Filter) && pages == 1 {
                self.admitted.push((position.page, kind, target.to_vec()));
            }
            // Queries use most of it. It is not found before the run is part of a tree, and it is dropped
            // from the cache with the run's space.
            if kind == PageKind::Data && pages == 1 && self.block_warm_entries * 2 > self.block_entries {
                self.data.admit_warm(&address, target);
            }
            self.buffered_pages += pages;
        }
        self.next_page += position.pages;
        debug_assert!(self.next_page <= self.taken_pages, "pages are written to allocated space");
        debug_assert!(
            self.buffered_pages * PAGE_SIZE <= self.buffer.len(),
            "buffered pages are in the buffer"
        );
        Ok(position)
    }

    /// Starts writing the full buffer and switches to another one.
    fn write_buffer(&mut self) -> Result<()> {
        debug_assert!(self.on_its_way.len() <= self.writes_max, "writes in flight are bounded");
        let first = self.next_page - u32_of(self.buffered_pages);
        let spare = if self.on_its_way.len() >= self.writes_max { self.await_write()? } else { None };
        match locate(self.extents.iter().map(|extent| extent.span()), first) {
            Some((physical, room)) if usize_of(u64::from(room)) >= self.buffered_pages => {
                let spare = spare.unwrap_or_else(|| AlignedBuffer::unfilled(self.buffer.len()));
                let full = std::mem::replace(&mut self.buffer, spare);
                let length = self.buffered_pages * PAGE_SIZE;
                self.on_its_way.push_back(self.data.start_write(physical, full, length));
            }
            _ => self.write_across(first, self.buffered())?,
        }
        self.buffered_pages = 0;
        Ok(())
    }

    /// Writes the buffered rest, and waits for all writes.
    fn write_rest(&mut self) -> Result<()> {
        let first = self.next_page - u32_of(self.buffered_pages);
        self.write_across(first, self.buffered())?;
        self.buffered_pages = 0;
        while !self.on_its_way.is_empty() {
            self.await_write()?;
        }
        Ok(())
    }

    /// Writes pages from the `first` page of the run on, across its extents.
    fn write_across(&self, first: u32, bytes: &[u8]) -> Result<()> {
        let (mut page, mut bytes) = (first, bytes);
        while !bytes.is_empty() {
            let spans = self.extents.iter().map(|extent| extent.span());
            let (physical, room) = locate(spans, page).expect("space must be allocated");
            debug_assert!(room > 0 && bytes.len().is_multiple_of(PAGE_SIZE), "whole pages are written");
            let length = bytes.len().min(usize_of(u64::from(room)) * PAGE_SIZE);
            if self.is_collected || planted!("logged-values-written-late") {
                self.data.write_pages_soon(physical, &bytes[..length])?;
            } else {
                self.data.write_pages(physical, &bytes[..length])?;
            }
            bytes = &bytes[length..];
            page += u32_of(length / PAGE_SIZE);
        }
        Ok(())
    }

    fn buffered(&self) -> &[u8] {
        &self.buffer[..self.buffered_pages * PAGE_SIZE]
    }

    /// Waits for the oldest write in flight, if there is one, and returns its buffer.
    fn await_write(&mut self) -> Result<Option<AlignedBuffer>> {
        self.on_its_way.pop_front().map(PageWrite::wait).transpose()
    }

    fn address(&self, kind: PageKind, page: u32) -> PageAddress {
        let (physical, _) =
            locate(self.extents.iter().map(|e| e.span()), page).expect("space must be allocated");
        let (generation, keyspace) = (self.origin.id, self.origin.keyspace);
        PageAddress { page: physical, generation, keyspace, incarnation: self.incarnation, kind }
    }
}
