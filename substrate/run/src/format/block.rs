//! Reading of a slotted block: the payload of a data or index page (or of several pages with one entry).
//!
//! | bytes | field |
//! |---|---|
//! | 2 | number of entries; + 2^15 if cells of code 3 have a kind byte; + 2^14 if the last value continues |
//! | 2 | length of the prefix shared by all keys of the block |
//! | … | the prefix |
//! | 6 each | slots: head u32, offset u16 of the cell |
//! | … | continuation: the rest of the previous page's last value, if it continues here |
//! | … | cells: varint (suffix length × 4 + code), varint value length, kind byte, key suffix, value |
//!
//! The code is the number of the kind, or 3 if that is 3 or more. The kind byte exists only in cells of code
//! 3 of blocks with that flag, and contains the number. Blocks without the flag either have no such cell, or
//! were written by builds before kind bytes: code 3 is then kind 3 (decision 0043).
//!
//! The last value of a single-page block may continue in one or more following pages of the run: its cell
//! ends with the payload, and the rest is the continuation there (decision 0051). In a page without entries,
//! the continuation fills everything after the block's header. A payload with the rest of its last value
//! appended is therefore a complete block.
//!
//! In an index block the key of an entry is a separator of at most 256 bytes, and its value is the position
//! of the data block: page u32 · pages u32, + 2^31 if its last value continues and a border follows: the
//! number of pages in which it continues as a varint, a varint length and the bytes of the border. Keys from
//! the border on belong to the last entry. A cut separator is followed by its fork: shared bytes u32 · byte
//! u8.
//!
//! A head is the first four bytes of the key after the prefix, big-endian. Offsets count from the end of the
//! slots. The block builder writes this format, and [`Block`] reads it; no other code depends on it.
//!
//! **Invariants**
//! - Reading never panics: an inconsistent block is [`Damage`].

use std::cmp::Ordering;

use testudo_base::{
    Kind, PAGE_SIZE,
    codec::{self, Damage, Reader},
    key,
    num::{u64_of, usize_of},
    planted,
};

use testudo_storage::PAGE_HEADER_BYTES;

use crate::format::{
    footer::BlockPosition,
    long_separators::{Fork, MAX_SEPARATOR_BYTES},
};

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 6;
/// Bytes before the prefix.
pub(crate) const BLOCK_HEADER_BYTES: usize = 4;
/// Flag in the number of entries: cells of [`KIND_BYTE_CODE`] have a kind byte.
pub(crate) const KIND_BYTES_FLAG: u16 = 1 << 15;
/// Flag in the number of entries: the last value continues in the next page.
pub(crate) const CONTINUED_FLAG: u16 = 1 << 14;
/// Maximum entries of a block.
pub(crate) const MAX_ENTRIES: u16 = CONTINUED_FLAG - 1;
/// Bytes of a value in a page without entries.
pub(crate) const CONTINUATION_BYTES: usize = PAGE_SIZE - PAGE_HEADER_BYTES - BLOCK_HEADER_BYTES;
/// Maximum pages in which a value continues.
pub(crate) const CONTINUATION_PAGES_MAX: u32 = 16;
/// Maximum length of a continued value.
const CONTINUED_BYTES_MAX: usize = (CONTINUATION_PAGES_MAX as usize + 1) * PAGE_SIZE;
/// Code of all kinds with this number or a greater one.
pub(crate) const KIND_BYTE_CODE: u8 = 3;

/// Returns the first four bytes of a key suffix as an integer in key order.
#[inline]
pub(crate) fn head32(suffix: &[u8]) -> u32 {
    if let Some(bytes) = suffix.first_chunk::<4>() {
        return u32::from_be_bytes(*bytes);
    }
    testudo_base::num::high32(key::head(suffix))
}

/// Returns the kind of a cell without a kind byte.
#[inline]
fn kind_of_code(suffix_and_code: u64) -> Kind {
    match suffix_and_code & 3 {
        0 => Kind::Value,
        1 => Kind::Tombstone,
        2 => Kind::Operands,
        _ => Kind::Unmerged,
    }
}

/// Decodes a kind byte.
#[cold]
fn kind_of_byte(byte: u8) -> Result<Kind, Damage> {
    let kind = Kind::from_u8(byte).filter(|kind| *kind as u8 >= KIND_BYTE_CODE);
    kind.ok_or(Damage("unknown kind of an entry"))
}

/// One entry of a block; the key is `prefix + suffix`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell<'a> {
    pub(crate) kind: Kind,
    pub(crate) suffix: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Bytes of the value in the following pages.
    pub(crate) continued_bytes: usize,
}

/// Layout of a value's bytes in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// In one block of several pages, with one header.
    Block,
    /// In a single-page block and in continuations, each with its own header.
    Continued,
}

/// Flag in the number of pages: a border follows.
const BORDER_FLAG: u32 = 1 << 31;

/// A decoded index entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry<'a> {
    pub(crate) position: BlockPosition,
    /// Border and page count: keys from the border on need this many more pages, in which the last value
    /// continues.
    pub(crate) continued_from: Option<(&'a [u8], u32)>,
    /// The fork, if the separator was cut.
    pub(crate) fork: Option<Fork>,
}

impl<'a> IndexEntry<'a> {
    /// Number of pages in which the value of `key` continues.
    #[inline]
    pub(crate) fn pages_behind(&self, key: &[u8]) -> u32 {
        self.continued_from.filter(|(border, _)| *border <= key).map_or(0, |(_, pages)| pages)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(self.position.pages > 0 && self.position.pages & BORDER_FLAG == 0, "a block has pages");
        codec::put_u32(out, self.position.page);
        let flag = if self.continued_from.is_some() { BORDER_FLAG } else { 0 };
        codec::put_u32(out, self.position.pages | flag);
        if let Some((border, pages)) = self.continued_from {
            codec::put_varint(out, u64::from(pages));
            codec::put_varint(out, u64_of(border.len()));
            out.extend_from_slice(border);
        }
        if let Some(fork) = self.fork {
            fork.encode(out);
        }
    }

    #[inline(never)]
    fn decode_border(reader: &mut Reader<'a>) -> Result<(&'a [u8], u32), Damage> {
        let (pages, length) = (reader.varint()?, usize_of(reader.varint()?));
        let pages = u32::try_from(pages).ok().filter(|pages| *pages <= CONTINUATION_PAGES_MAX);
        Ok((reader.take(length)?, pages.ok_or(Damage("a value continues in too many pages"))?))
    }

    #[inline]
    pub(crate) fn decode(value: &'a [u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(value);
        let (page, pages) = (reader.u32()?, reader.u32()?);
        let position = BlockPosition { page, pages: pages & !BORDER_FLAG };
        let continued_from =
            if pages & BORDER_FLAG == 0 { None } else { Some(Self::decode_border(&mut reader)?) };
        let fork = if reader.is_empty() { None } else { Some(Fork::decode(&mut reader)?) };
        reader.finish()?;
        Ok(Self { position, continued_from, fork })
    }
}

/// Result of searching an index block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    /// The data block of this entry.
    Slot(usize),
    /// One of the blocks of this group, or that of the entry before it.
    Group(Group),
}

/// Entries whose cut separators do not determine where a key belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Slot of the first entry.
    pub(crate) from: usize,
    pub(crate) positions: Vec<BlockPosition>,
    pub(crate) forks: Vec<Fork>,
}

/// A parsed view of a block's payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    count: usize,
    has_kind_bytes: bool,
    is_continued: bool,
    prefix: &'a [u8],
    slots: &'a [u8],
    cells: &'a [u8],
}

/// Offsets of a parsed block, kept for repeated access to the same payload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    count: usize,
    has_kind_bytes: bool,
    is_continued: bool,
    prefix_end: usize,
    slots_end: usize,
}

impl Layout {
    /// Parses `payload`.
    pub(crate) fn of(payload: &[u8]) -> Result<Self, Damage> {
        let block = Block::parse(payload)?;
        let prefix_end = BLOCK_HEADER_BYTES + block.prefix.len();
        let slots_end = prefix_end + block.slots.len();
        let Block { count, has_kind_bytes, is_continued, .. } = block;
        Ok(Self { count, has_kind_bytes, is_continued, prefix_end, slots_end })
    }

    /// Whether the last value continues in the next page.
    #[inline]
    pub(crate) fn is_continued(&self) -> bool {
        self.is_continued
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Creates a view of the payload that the layout was made from.
    #[inline]
    pub(crate) fn view<'a>(&self, payload: &'a [u8]) -> Block<'a> {
        debug_assert!(self.slots_end <= payload.len(), "the layout was made from this payload");
        let (head, cells) = payload.split_at(self.slots_end);
        let (head, slots) = head.split_at(self.prefix_end);
        let prefix = head.get(BLOCK_HEADER_BYTES..).unwrap_or_default();
        let Self { count, has_kind_bytes, is_continued, .. } = *self;
        Block { count, has_kind_bytes, is_continued, prefix, slots, cells }
    }
}

impl<'a> Block<'a> {
    /// Parses `payload`.
    #[inline]
    pub(crate) fn parse(payload: &'a [u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(payload);
        let head = reader.u16()?;
        let has_kind_bytes = head & KIND_BYTES_FLAG != 0 && !planted!("kind-byte-ignored");
        let is_continued = head & CONTINUED_FLAG != 0;
        let count = usize::from(head & MAX_ENTRIES);
        let prefix_bytes = usize::from(reader.u16()?);
        let prefix = reader.take(prefix_bytes)?;
        let slots = reader.take(count * SLOT_BYTES)?;
        Ok(Self { count, has_kind_bytes, is_continued, prefix, slots, cells: reader.rest() })
    }

    /// Returns the part in this page of a value that has `length` bytes after the previous page.
    pub(crate) fn continuation(&self, length: usize) -> Result<&'a [u8], Damage> {
        let part = self.cells.get(..length.min(CONTINUATION_BYTES));
        part.ok_or(Damage("a continuation is too short"))
    }

    /// Bytes of the last value in the following pages.
    pub(crate) fn continued_bytes(&self) -> Result<usize, Damage> {
        if !self.is_continued {
            return Ok(0);
        }
        let last = self.count.checked_sub(1).ok_or(Damage("no value to continue"))?;
        Ok(self.cell(last)?.continued_bytes)
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn prefix(&self) -> &'a [u8] {
        self.prefix
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> Option<(u32, usize)> {
        let slot = self.slots.get(index * SLOT_BYTES..)?.first_chunk::<SLOT_BYTES>()?;
        let head = u32::from_le_bytes([slot[0], slot[1], slot[2], slot[3]]);
        Some((head, usize::from(u16::from_le_bytes([slot[4], slot[5]]))))
    }

    /// Decodes suffix length with code, and value length; returns a reader of the rest, too.
    #[inline(always)]
    fn open_cell(&self, index: usize) -> Result<(u64, u64, Reader<'a>), Damage> {
        let (_, offset) = self.slot(index).ok_or(Damage("a slot is missing"))?;
        let mut reader = Reader::new(self.cells.get(offset..).ok_or(Damage("a cell is outside its block"))?);
        Ok((reader.varint()?, reader.varint()?, reader))
    }

    /// Whether a cell with this suffix length and code has a kind byte.
    #[inline(always)]
    fn has_kind_byte(&self, suffix_and_code: u64) -> bool {
        self.has_kind_bytes && suffix_and_code & 3 == u64::from(KIND_BYTE_CODE)
    }

    /// Decodes kind and suffix of an entry and the length of its value; returns a reader of the rest, too.
    #[inline(always)]
    fn begin_cell(&self, index: usize) -> Result<(Kind, &'a [u8], usize, Reader<'a>), Damage> {
        let (suffix_and_code, value_bytes, mut reader) = self.open_cell(index)?;
        let kind = if self.has_kind_byte(suffix_and_code) {
            kind_of_byte(reader.u8()?)?
        } else {
            kind_of_code(suffix_and_code)
        };
        let suffix = reader.take(usize_of(suffix_and_code >> 2))?;
        Ok((kind, suffix, usize_of(value_bytes), reader))
    }

    /// Returns the entry at `index` of the first page of a multi-page block: its value continues in the
    /// others.
    pub(crate) fn cut_cell(&self, index: usize) -> Result<Cell<'a>, Damage> {
        let (kind, suffix, value_bytes, reader) = self.begin_cell(index)?;
        let here = reader.rest();
        let value = here.get(..value_bytes).unwrap_or(here);
        Ok(Cell { kind, suffix, value, continued_bytes: value_bytes - value.len() })
    }

    /// Returns the entry at `index`.
    #[inline(always)]
    pub(crate) fn cell(&self, index: usize) -> Result<Cell<'a>, Damage> {
        let (kind, suffix, value_bytes, mut reader) = self.begin_cell(index)?;
        match reader.take(value_bytes) {
            Ok(value) => Ok(Cell { kind, suffix, value, continued_bytes: 0 }),
            Err(damage) => {
                let value = self.first_part(index, value_bytes, reader).ok_or(damage)?;
                Ok(Cell { kind, suffix, value, continued_bytes: value_bytes - value.len() })
            }
        }
    }

    /// Returns the first part of a value of this length, if it continues in the next page.
    #[cold]
    fn first_part(&self, index: usize, value_bytes: usize, reader: Reader<'a>) -> Option<&'a [u8]> {
        let goes_on = self.is_continued && index + 1 == self.count && value_bytes <= CONTINUED_BYTES_MAX;
        goes_on.then(|| reader.rest())
    }

    /// Returns the suffix of the key at `index`.
    #[inline(always)]
    fn suffix(&self, index: usize) -> Result<&'a [u8], Damage> {
        let (suffix_and_code, _, mut reader) = self.open_cell(index)?;
        if self.has_kind_byte(suffix_and_code) {
            reader.u8()?;
        }
        reader.take(usize_of(suffix_and_code >> 2))
    }

    /// In an index block: finds the entry that leads to `key`.
    #[inline]
    pub(crate) fn lead(&self, key: &[u8]) -> Result<Lead, Damage> {
        if key.len() >= MAX_SEPARATOR_BYTES {
            return self.lead_among_cut(&key[..MAX_SEPARATOR_BYTES]);
        }
        let (slot, is_equal) = self.lower_bound(key)?;
        Ok(Lead::Slot(if is_equal { slot } else { slot.saturating_sub(1) }))
    }

    /// Like [`Self::lead`], for a key that starts with `start`, which may equal cut separators.
    fn lead_among_cut(&self, start: &[u8]) -> Result<Lead, Damage> {
        let (slot, is_equal) = self.lower_bound(start)?;
        if !is_equal {
            return Ok(Lead::Slot(slot.saturating_sub(1)));
        }
        let equal = self.suffix(slot)?;
        let (mut from, mut to) = (slot, slot + 1);
        while from > 0 && self.suffix(from - 1)? == equal {
            from -= 1;
        }
        while to < self.count && self.suffix(to)? == equal {
            to += 1;
        }
        // A separator of exactly the maximum length, which was not cut, comes first.
        if IndexEntry::decode(self.cell(from)?.value)?.fork.is_none() {
            from += 1;
        }
        if from == to {
            return Ok(Lead::Slot(to - 1));
        }
        let entry = |slot: usize| {
            let entry = IndexEntry::decode(self.cell(slot)?.value)?;
            Ok((entry.position, entry.fork.ok_or(Damage("equal separators with and without forks"))?))
        };
        let (positions, forks) =
            (from..to).map(entry).collect::<Result<Vec<_>, Damage>>()?.into_iter().unzip();
        Ok(Lead::Group(Group { from, positions, forks }))
    }

    /// Returns the first entry whose key is ≥ `key`, and whether it is equal.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> Result<(usize, bool), Damage> {
        let shared = self.prefix.len().min(key.len());
        match self.prefix[..shared].cmp(&key[..shared]) {
            Ordering::Less => return Ok((self.count, false)),
            Ordering::Greater => return Ok((0, false)),
            Ordering::Equal if key.len() < self.prefix.len() && planted!("key-within-prefix-sorts-last") => {
                return Ok((self.count, false));
            }
            Ordering::Equal if key.len() < self.prefix.len() => return Ok((0, false)),
            Ordering::Equal => {}
        }
        let suffix = &key[shared..];
        let head = head32(suffix);
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            let (slot_head, _) = self.slot(middle).ok_or(Damage("a slot is missing"))?;
            let order = match slot_head.cmp(&head) {
                Ordering::Equal => self.suffix(middle)?.cmp(suffix),
                order => order,
            };
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok((middle, true)),
            }
        }
        debug_assert!(low <= self.count, "a slot of the block or its end");
        Ok((low, false))
    }
}

#[cfg(test)]
mod tests;
