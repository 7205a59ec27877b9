//! Reads all readable entries of a damaged run, block by block, for salvage.
//!
//! Needs only the file and a reference: no index, filter or footer. Everything unreadable is reported.
//!
//! **Invariants**
//! - Every entry comes from a block that was verified as the expected one, and keys are strictly increasing.
//! - Entries outside the section of their page are ignored.
//! - Pages that cannot be read, or hold something else, are reported exactly once.
//! - Memory is bounded by one stretch of pages and the longest block.

use std::{collections::VecDeque, ops::Range};

use testudo_base::{
    Entry, Kind, MAX_KEY_BYTES, PAGE_BYTES, PAGE_SIZE, Result, StoreId,
    codec::Damage,
    num::{u32_of, u64_of, usize_of},
    operands_format::check_value,
    sync::Arc,
};
use testudo_env::File;
use testudo_storage::payload_of;

use crate::{PageWalk, RunRef, WalkedBlock, format::block::Block};

/// Pages of a run that provided no entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPages {
    /// Number of pages.
    pub pages: u32,
    /// Offset of the first of them in the data file, in bytes.
    pub offset: u64,
    /// Reason why it is lost.
    pub why: String,
}

/// Slots of the entries of a section, and the first and the last key of them.
type SectionEntries = (Range<usize>, Vec<u8>, Vec<u8>);

/// A forward cursor over the readable entries of a run.
#[derive(Debug)]
pub struct LenientCursor {
    file: Arc<dyn File>,
    store: StoreId,
    /// Reference to the run, restricted to its data blocks.
    reference: RunRef,
    next_page: u32,
    bytes: Vec<u8>,
    blocks: VecDeque<WalkedBlock>,
    next_byte: usize,
    unreadable: Vec<(u32, String)>,
    payload: Vec<u8>,
    count: usize,
    slot: usize,
    key: Option<Vec<u8>>,
    last_key: Option<Vec<u8>>,
    bytes_read: u64,
}

impl LenientCursor {
    /// Creates a cursor over the data blocks of `reference` in store `store`, positioned before the first
    /// entry.
    pub fn new(file: Arc<dyn File>, store: StoreId, reference: &RunRef) -> Self {
        let reference = RunRef { footer_page: reference.data_pages, footer_pages: 0, ..reference.clone() };
        Self {
            file,
            store,
            reference,
            next_page: 0,
            bytes: Vec::new(),
            blocks: VecDeque::new(),
            next_byte: 0,
            unreadable: Vec::new(),
            payload: Vec::new(),
            count: 0,
            slot: 0,
            key: None,
            last_key: None,
            bytes_read: 0,
        }
    }

    /// Moves to the next readable entry, or past the end; reports pages skipped on the way.
    pub fn advance(&mut self) -> Option<LostPages> {
        if let Some(key) = self.key.take() {
            self.last_key = Some(key);
        }
        let mut lost: Option<LostPages> = None;
        self.slot += 1;
        while self.slot >= self.count {
            let Some(block) = self.next_block() else { return lost };
            if let Err(why) = self.load(&block) {
                let first = lost.get_or_insert_with(|| LostPages {
                    pages: 0,
                    offset: self.offset_of(block.page),
                    why,
                });
                first.pages += block.pages;
            }
        }
        self.key = self.key_at(self.slot);
        lost
    }

    /// Current entry; `None` before the first and past the last.
    pub fn entry(&self) -> Option<Entry<'_>> {
        let key = self.key.as_deref()?;
        let cell = Block::parse(&self.payload).ok()?.cell(self.slot).ok()?;
        Some(Entry { key, kind: cell.kind, value: cell.value })
    }

    /// Key of the last passed entry.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.last_key.as_deref()
    }

    /// Bytes of pages read since the last call.
    pub fn take_bytes_read(&mut self) -> u64 {
        std::mem::take(&mut self.bytes_read)
    }

    fn offset_of(&self, page: u32) -> u64 {
        self.reference.locate(page).map_or(0, |(physical, _)| physical.saturating_mul(PAGE_BYTES))
    }

    fn key_at(&self, slot: usize) -> Option<Vec<u8>> {
        let block = Block::parse(&self.payload).ok()?;
        Some(full_key(&block, slot).ok()?.0)
    }

    fn next_block(&mut self) -> Option<WalkedBlock> {
        if self.blocks.is_empty() {
            self.read_stretch();
        }
        self.blocks.pop_front()
    }

    fn read_stretch(&mut self) {
        if self.next_page >= self.reference.data_pages {
            return;
        }
        let mut walk = PageWalk::new(&self.reference, self.store, self.next_page);
        self.unreadable.clear();
        let (file, reference, unreadable) = (&*self.file, &self.reference, &mut self.unreadable);
        let mut read = |first: u32, buffer: &mut [u8]| -> Result<()> {
            read_run_leniently(file, reference, first, buffer, unreadable);
            Ok(())
        };
        let Ok(Some(stretch)) = walk.next_stretch(&mut read) else { return };
        self.bytes.clear();
        let mut at = 0;
        // Overflow pages are inserted in key order, not after all others.
        let mut overflow = Vec::new();
        for block in stretch.blocks.iter().filter(|block| block.page < reference.data_pages) {
            let length = usize_of(u64::from(block.pages)) * PAGE_SIZE;
            self.bytes.extend_from_slice(&stretch.bytes[at..at + length]);
            at += length;
            self.blocks.push_back(block.clone());
            let pages = reference.overflow_of(block.page);
            overflow.extend(pages.map(|page| (self.blocks.len(), self.bytes.len(), page)));
        }
        self.next_page = walk.next_page();
        for (block, byte, page) in overflow.into_iter().rev() {
            let mut walk = PageWalk::new(&self.reference, self.store, page);
            walk.set_stretch(Some(1));
            let mut read = |first: u32, buffer: &mut [u8]| -> Result<()> {
                read_run_leniently(&*self.file, &self.reference, first, buffer, &mut self.unreadable);
                Ok(())
            };
            if let Ok(Some(stretch)) = walk.next_stretch(&mut read) {
                self.bytes.splice(byte..byte, stretch.bytes.iter().copied());
                self.blocks.insert(block, stretch.blocks[0].clone());
            }
        }
        self.next_byte = 0;
        self.bytes_read += u64_of(self.bytes.len());
    }

    /// Makes a block the current one, if it is entirely valid.
    fn load(&mut self, block: &WalkedBlock) -> std::result::Result<(), String> {
        let start = self.next_byte;
        self.next_byte += usize_of(u64::from(block.pages)) * PAGE_SIZE;
        (self.count, self.slot) = (0, 0);
        if let Some((_, why)) = self.unreadable.iter().find(|(page, _)| *page == block.page) {
            return Err(why.clone());
        }
        if let Some(why) = block.damage {
            return Err(why.to_owned());
        }
        self.payload.clear();
        self.payload.extend_from_slice(payload_of(&self.bytes[start..self.next_byte]));
        self.complete(block.page);
        if Block::parse(&self.payload).is_ok_and(|block| block.count() == 0) {
            // It holds only the end of a value.
            return Ok(());
        }
        let (slots, first, last) = self.section_of(block.page).map_err(|Damage(why)| why.to_owned())?;
        if slots.is_empty() {
            return Ok(());
        }
        let follows = self.last_key.as_ref().is_none_or(|previous| *previous < first);
        let keys = &self.reference.keys;
        if !follows || !keys.may_hold(&first) || !keys.may_hold(&last) {
            return Err("keys are outside the expected range".to_owned());
        }
        let is_cut = Block::parse(&self.payload)
            .is_ok_and(|block| block.continued_bytes().is_ok_and(|bytes| bytes > 0));
        // Without its continuation, a page of which is reported as lost, the entry is lost, too.
        (self.slot, self.count) = (slots.start, slots.end - usize::from(is_cut));
        Ok(())
    }

    /// Returns the entries of the loaded block that belong to the section of `page`, with the first and the
    /// last key among them. A page that was found may have entries of other sections, which are in newer
    /// pages.
    fn section_of(&self, page: u32) -> std::result::Result<SectionEntries, Damage> {
        let ends = block_keys(&self.payload)?;
        let block = Block::parse(&self.payload)?;
        let reference = &self.reference;
        let low = reference.border_of(page);
        let next = match reference.owner_of(page) {
            Some(owner) => Some(page + 1).filter(|next| reference.overflow_of(owner).contains(next)),
            None => reference.section_after(page, 0),
        };
        let high = next.and_then(|next| reference.border_of(next));
        if low.is_none() && high.is_none() {
            return Ok((0..block.count(), ends.0, ends.1));
        }
        let mut slots = 0..block.count();
        while slots.start < slots.end && low.is_some_and(|low| is_before(&block, slots.start, low)) {
            slots.start += 1;
        }
        while slots.start < slots.end && high.is_some_and(|high| !is_before(&block, slots.end - 1, high)) {
            slots.end -= 1;
        }
        if slots.is_empty() {
            return Ok((slots, Vec::new(), Vec::new()));
        }
        let key = |slot: usize| full_key(&block, slot).map(|(key, _)| key);
        Ok((slots.clone(), key(slots.start)?, key(slots.end - 1)?))
    }

    /// Appends the continuation of the current block's last value from the following pages, if they are
    /// readable.
    fn complete(&mut self, page: u32) {
        let missing = |payload: &[u8]| Block::parse(payload).and_then(|block| block.continued_bytes());
        for next in page.saturating_add(1)..self.reference.data_pages {
            let Ok(length) = missing(&self.payload) else { return };
            if length == 0 {
                return;
            }
            let mut walk = PageWalk::new(&self.reference, self.store, next);
            walk.set_stretch(Some(1));
            let mut unreadable = Vec::new();
            let mut read = |first: u32, buffer: &mut [u8]| -> Result<()> {
                read_run_leniently(&*self.file, &self.reference, first, buffer, &mut unreadable);
                Ok(())
            };
            let Ok(Some(stretch)) = walk.next_stretch(&mut read) else { return };
            if stretch.blocks.iter().any(|block| block.damage.is_some() || block.pages > 1) {
                return;
            }
            let rest = Block::parse(payload_of(stretch.bytes)).and_then(|block| block.continuation(length));
            let Ok(rest) = rest else { return };
            self.payload.extend_from_slice(rest);
        }
    }
}

/// Whether the key of an entry is less than `border`. REQUIRES: the block is valid.
fn is_before(block: &Block<'_>, slot: usize, border: &[u8]) -> bool {
    full_key(block, slot).is_ok_and(|(key, _)| key.as_slice() < border)
}

/// Returns the first and the last key of a block of entries, after validating all of it.
pub fn block_keys(payload: &[u8]) -> std::result::Result<(Vec<u8>, Vec<u8>), Damage> {
    let block = Block::parse(payload)?;
    if block.count() == 0 {
        return Err(Damage("a block without entries"));
    }
    let (first, _) = full_key(&block, 0)?;
    let mut last = first.clone();
    for slot in 1..block.count() {
        let (key, _) = full_key(&block, slot)?;
        if key <= last {
            return Err(Damage("keys of a block do not increase"));
        }
        last = key;
    }
    Ok((first, last))
}

/// Whether `holds` is true for every entry of a block. For a value that continues in the next pages it gets
/// only the part in this block.
pub fn every_entry(payload: &[u8], mut holds: impl FnMut(&Entry<'_>) -> bool) -> bool {
    let Ok(block) = Block::parse(payload) else { return false };
    (0..block.count()).all(|slot| {
        let (Ok((key, kind)), Ok(cell)) = (full_key(&block, slot), block.cell(slot)) else { return false };
        holds(&Entry { key: &key, kind, value: cell.value })
    })
}

fn full_key(block: &Block<'_>, slot: usize) -> std::result::Result<(Vec<u8>, Kind), Damage> {
    let cell = block.cell(slot)?;
    if block.prefix().len() + cell.suffix.len() > MAX_KEY_BYTES {
        return Err(Damage("a key is too long"));
    }
    if cell.continued_bytes == 0 {
        check_value(cell.kind, cell.value)?;
    }
    Ok(([block.prefix(), cell.suffix].concat(), cell.kind))
}

/// Fills `buffer` from page `first` of a run; unreadable pages are zeroed and recorded.
pub(crate) fn read_run_leniently(
    file: &dyn File,
    reference: &RunRef,
    first: u32,
    buffer: &mut [u8],
    unreadable: &mut Vec<(u32, String)>,
) {
    let (mut page, mut rest) = (first, buffer);
    while !rest.is_empty() {
        let Some((physical, room)) = reference.locate(page) else {
            rest.fill(0);
            unreadable.push((page, "the run has fewer pages than its reference says".to_owned()));
            return;
        };
        let length = rest.len().min(usize_of(u64::from(room)).saturating_mul(PAGE_SIZE));
        let (chunk, after) = rest.split_at_mut(length);
        for (index, why) in read_leniently(file, physical, chunk) {
            unreadable.push((page + index, why));
        }
        page += u32_of(length / PAGE_SIZE);
        rest = after;
    }
}

/// Fills `buffer` from consecutive pages of a file; unreadable pages are zeroed and returned with the reason.
pub fn read_leniently(file: &dyn File, first_page: u64, buffer: &mut [u8]) -> Vec<(u32, String)> {
    let offset = |index: usize| {
        let bytes = u64_of(index * PAGE_SIZE);
        first_page.checked_mul(PAGE_BYTES).and_then(|start| start.checked_add(bytes))
    };
    if offset(0).is_some_and(|offset| file.read_at(offset, buffer).is_ok()) {
        return Vec::new();
    }
    let mut unreadable = Vec::new();
    for (index, page) in buffer.chunks_mut(PAGE_SIZE).enumerate() {
        let failed = match offset(index).map(|offset| file.read_at(offset, page)) {
            Some(Ok(())) => continue,
            Some(Err(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                "the file ends before this page".to_owned()
            }
            Some(Err(error)) => error.to_string(),
            None => "the offset exceeds the maximum file size".to_owned(),
        };
        page.fill(0);
        unreadable.push((u32_of(index), failed));
    }
    unreadable
}
