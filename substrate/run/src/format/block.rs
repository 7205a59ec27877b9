//! A slotted block, read: the payload of a data or an index page (or of several pages with one entry).
//!
//! | bytes | field |
//! |---|---|
//! | 2 | number of entries; + 2^15 if cells of code 3 have a kind byte; + 2^14 if the last value goes on |
//! | 2 | length of the prefix that all keys of the block share |
//! | … | the prefix |
//! | 6 each | slots: head u32, offset u16 of the cell |
//! | … | continuation: the rest of the last value of the page before, if that goes on here |
//! | … | cells: varint (suffix length × 4 + code), varint value length, kind byte, key suffix, value |
//!
//! The code is the number of the kind, or 3 if that is 3 or more. The kind byte is there only in cells of
//! code 3 of blocks that say so, and is the number then. Blocks that say nothing are those without such a
//! cell, and those of builds before there were kind bytes: code 3 is kind 3 there (decision 0043).
//!
//! The last value of a block of one page may go on in the next page of the run, or in several: its cell ends
//! with the payload, and the rest of it is the continuation there (decision 0051). Of a page that has nothing
//! else, the continuation is all behind the block's header. So a payload with the rest of its last value
//! behind it is a whole block.
//!
//! In an index block the key of an entry is a separator of at most 256 bytes, and its value is the position
//! of the data block: page u32 · pages u32, + 2^31 if its last value goes on and this says from where: then
//! a varint, in how many pages that is, a varint length and the bytes of a border: keys from there on are of
//! the last entry. Behind a separator that was cut follows the fork: shared bytes u32 · byte u8.
//!
//! A head is the first four bytes of the key after the prefix, big-endian. Offsets count from the end of the
//! slots. The block builder writes this, [`Block`] reads it; both are the
//! only ones to know it.
//!
//! **Invariants**
//! - Reading never panics: a block that contradicts itself is [`Damage`].

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
/// Set in the number of entries: cells of [`KIND_BYTE_CODE`] have a kind byte.
pub(crate) const KIND_BYTES_FLAG: u16 = 1 << 15;
/// Set in the number of entries: the last value goes on in the next page.
pub(crate) const CONTINUED_FLAG: u16 = 1 << 14;
/// Entries of a block, at most.
pub(crate) const MAX_ENTRIES: u16 = CONTINUED_FLAG - 1;
/// Bytes of a value in a page that has nothing else.
pub(crate) const CONTINUATION_BYTES: usize = PAGE_SIZE - PAGE_HEADER_BYTES - BLOCK_HEADER_BYTES;
/// Pages in which a value goes on, at most.
pub(crate) const CONTINUATION_PAGES_MAX: u32 = 16;
/// No value that goes on is longer.
const CONTINUED_BYTES_MAX: usize = (CONTINUATION_PAGES_MAX as usize + 1) * PAGE_SIZE;
/// The code of all kinds with this number or a greater one.
pub(crate) const KIND_BYTE_CODE: u8 = 3;

/// The first four bytes of a key suffix as an integer in key order.
#[inline]
pub(crate) fn head32(suffix: &[u8]) -> u32 {
    if let Some(bytes) = suffix.first_chunk::<4>() {
        return u32::from_be_bytes(*bytes);
    }
    testudo_base::num::high32(key::head(suffix))
}

/// The kind of a cell without a kind byte.
#[inline]
fn kind_of_code(suffix_and_code: u64) -> Kind {
    match suffix_and_code & 3 {
        0 => Kind::Value,
        1 => Kind::Tombstone,
        2 => Kind::Operands,
        _ => Kind::Unmerged,
    }
}

/// What a kind byte says.
#[cold]
fn kind_of_byte(byte: u8) -> Result<Kind, Damage> {
    let kind = Kind::from_u8(byte).filter(|kind| *kind as u8 >= KIND_BYTE_CODE);
    kind.ok_or(Damage("an entry is of an unknown kind"))
}

/// One entry of a block; the key is `prefix + suffix`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell<'a> {
    pub(crate) kind: Kind,
    pub(crate) suffix: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Bytes that the value has in the pages behind.
    pub(crate) continued_bytes: usize,
}

/// How the bytes of a value lie in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// In one block of several pages, which has one header.
    Block,
    /// In a block of one page and in continuations, each with a header of its own.
    Continued,
}

/// Set in the number of pages: a border follows.
const BORDER_FLAG: u32 = 1 << 31;

/// What an index entry leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry<'a> {
    pub(crate) position: BlockPosition,
    /// Keys from here on need so many pages more: the last value goes on there.
    pub(crate) continued_from: Option<(&'a [u8], u32)>,
    /// There if the separator was cut.
    pub(crate) fork: Option<Fork>,
}

impl<'a> IndexEntry<'a> {
    /// In how many pages the value of `key` goes on.
    #[inline]
    pub(crate) fn pages_behind(&self, key: &[u8]) -> u32 {
        self.continued_from.filter(|(border, _)| *border <= key).map_or(0, |(_, pages)| pages)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
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
        Ok((reader.take(length)?, pages.ok_or(Damage("a value goes on in too many pages"))?))
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

/// Where an index block leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    /// To the data block of this entry.
    Slot(usize),
    /// To one of these, or to that of the entry before them.
    Group(Group),
}

/// Entries whose separators were cut and do not tell where a key belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Slot of the first one.
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

/// Where the parts of a parsed block are, kept by whoever looks at the same payload again and again.
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

    /// Whether the last value goes on in the next page.
    #[inline]
    pub(crate) fn is_continued(&self) -> bool {
        self.is_continued
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Views the payload that the layout was made of.
    #[inline]
    pub(crate) fn view<'a>(&self, payload: &'a [u8]) -> Block<'a> {
        let (head, cells) = payload.split_at(self.slots_end);
        let (head, slots) = head.split_at(self.prefix_end);
        let prefix = head.get(BLOCK_HEADER_BYTES..).unwrap_or_default();
        let Self { count, has_kind_bytes, is_continued, .. } = *self;
        Block { count, has_kind_bytes, is_continued, prefix, slots, cells }
    }
}

impl<'a> Block<'a> {
    /// Views `payload`.
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

    /// What is here of a value that has `length` bytes behind the page before.
    pub(crate) fn continuation(&self, length: usize) -> Result<&'a [u8], Damage> {
        let part = self.cells.get(..length.min(CONTINUATION_BYTES));
        part.ok_or(Damage("a value goes on where too little of it is"))
    }

    /// Bytes that the last value has in the pages behind.
    pub(crate) fn continued_bytes(&self) -> Result<usize, Damage> {
        if !self.is_continued {
            return Ok(0);
        }
        let last = self.count.checked_sub(1).ok_or(Damage("no value goes on"))?;
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

    /// Length of the suffix with the code, length of the value, and what follows both.
    #[inline(always)]
    fn open_cell(&self, index: usize) -> Result<(u64, u64, Reader<'a>), Damage> {
        let (_, offset) = self.slot(index).ok_or(Damage("a slot is missing"))?;
        let mut reader = Reader::new(self.cells.get(offset..).ok_or(Damage("a cell is outside its block"))?);
        Ok((reader.varint()?, reader.varint()?, reader))
    }

    /// Whether a cell whose suffix has this length and code has a kind byte.
    #[inline(always)]
    fn has_kind_byte(&self, suffix_and_code: u64) -> bool {
        self.has_kind_bytes && suffix_and_code & 3 == u64::from(KIND_BYTE_CODE)
    }

    /// The kind and the suffix of an entry, the length of its value, and what follows.
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

    /// The entry at `index`, if this is the first page of a block of several: its value goes on in the
    /// others.
    pub(crate) fn cut_cell(&self, index: usize) -> Result<Cell<'a>, Damage> {
        let (kind, suffix, value_bytes, reader) = self.begin_cell(index)?;
        let here = reader.rest();
        let value = here.get(..value_bytes).unwrap_or(here);
        Ok(Cell { kind, suffix, value, continued_bytes: value_bytes - value.len() })
    }

    /// The entry at `index`.
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

    /// What is here of a value of so many bytes, if it goes on in the next page.
    #[cold]
    fn first_part(&self, index: usize, value_bytes: usize, reader: Reader<'a>) -> Option<&'a [u8]> {
        let goes_on = self.is_continued && index + 1 == self.count && value_bytes <= CONTINUED_BYTES_MAX;
        goes_on.then(|| reader.rest())
    }

    /// The suffix of the key at `index`.
    #[inline(always)]
    fn suffix(&self, index: usize) -> Result<&'a [u8], Damage> {
        let (suffix_and_code, _, mut reader) = self.open_cell(index)?;
        if self.has_kind_byte(suffix_and_code) {
            reader.u8()?;
        }
        reader.take(usize_of(suffix_and_code >> 2))
    }

    /// In an index block: the entry that leads to where `key` is or would be.
    #[inline]
    pub(crate) fn lead(&self, key: &[u8]) -> Result<Lead, Damage> {
        if key.len() >= MAX_SEPARATOR_BYTES {
            return self.lead_among_cut(&key[..MAX_SEPARATOR_BYTES]);
        }
        let (slot, is_equal) = self.lower_bound(key)?;
        Ok(Lead::Slot(if is_equal { slot } else { slot.saturating_sub(1) }))
    }

    /// The same for a key that begins with `start`, which may be all that is kept of separators.
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
        // A separator that is just so long that it need not be cut comes first.
        if IndexEntry::decode(self.cell(from)?.value)?.fork.is_none() {
            from += 1;
        }
        if from == to {
            return Ok(Lead::Slot(to - 1));
        }
        let entry = |slot: usize| {
            let entry = IndexEntry::decode(self.cell(slot)?.value)?;
            Ok((entry.position, entry.fork.ok_or(Damage("a separator is of two kinds"))?))
        };
        let (positions, forks) =
            (from..to).map(entry).collect::<Result<Vec<_>, Damage>>()?.into_iter().unzip();
        Ok(Lead::Group(Group { from, positions, forks }))
    }

    /// The first entry whose key is ≥ `key`, and whether it is equal.
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
        Ok((low, false))
    }
}

#[cfg(test)]
mod tests;
