//! A slotted block, read: the payload of a data or an index page (or of several pages with one entry).
//!
//! | bytes | field |
//! |---|---|
//! | 2 | number of entries; + 2^15 if cells of code 3 have a kind byte |
//! | 2 | length of the prefix that all keys of the block share |
//! | … | the prefix |
//! | 6 each | slots: head u32, offset u16 of the cell |
//! | … | cells: varint (suffix length × 4 + code), varint value length, kind byte, key suffix, value |
//!
//! The code is the number of the kind, or 3 if that is 3 or more. The kind byte is there only in cells of
//! code 3 of blocks that say so, and is the number then. Blocks that say nothing are those without such a
//! cell, and those of builds before there were kind bytes: code 3 is kind 3 there (decision 0043).
//!
//! In an index block the key of an entry is a separator of at most 256 bytes, and its value is the position
//! of the data block: page u32 · pages u32, and behind a separator that was cut the fork: shared bytes u32
//! · byte u8.
//!
//! A head is the first four bytes of the key after the prefix, big-endian. Offsets count from the end of the
//! slots. The block builder writes this, [`Block`] reads it; both are the
//! only ones to know it.
//!
//! **Invariants**
//! - Reading never panics: a block that contradicts itself is [`Damage`].

use std::cmp::Ordering;

use testudo_base::{
    Kind,
    codec::{self, Damage, Reader},
    key,
    num::usize_of,
    planted,
};

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
}

/// What an index entry leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) position: BlockPosition,
    /// There if the separator was cut.
    pub(crate) fork: Option<Fork>,
}

impl IndexEntry {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_u32(out, self.position.page);
        codec::put_u32(out, self.position.pages);
        if let Some(fork) = self.fork {
            fork.encode(out);
        }
    }

    #[inline]
    pub(crate) fn decode(value: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(value);
        let position = BlockPosition { page: reader.u32()?, pages: reader.u32()? };
        let fork = if reader.is_empty() { None } else { Some(Fork::decode(&mut reader)?) };
        reader.finish()?;
        Ok(Self { position, fork })
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
    prefix: &'a [u8],
    slots: &'a [u8],
    cells: &'a [u8],
}

/// Where the parts of a parsed block are, kept by whoever looks at the same payload again and again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    count: usize,
    has_kind_bytes: bool,
    prefix_end: usize,
    slots_end: usize,
}

impl Layout {
    /// Parses `payload`.
    pub(crate) fn of(payload: &[u8]) -> Result<Self, Damage> {
        let block = Block::parse(payload)?;
        let prefix_end = BLOCK_HEADER_BYTES + block.prefix.len();
        let slots_end = prefix_end + block.slots.len();
        Ok(Self { count: block.count, has_kind_bytes: block.has_kind_bytes, prefix_end, slots_end })
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
        Block { count: self.count, has_kind_bytes: self.has_kind_bytes, prefix, slots, cells }
    }
}

impl<'a> Block<'a> {
    /// Views `payload`.
    #[inline]
    pub(crate) fn parse(payload: &'a [u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(payload);
        let head = reader.u16()?;
        let has_kind_bytes = head & KIND_BYTES_FLAG != 0 && !planted!("kind-byte-ignored");
        let count = usize::from(head & !KIND_BYTES_FLAG);
        let prefix_bytes = usize::from(reader.u16()?);
        let prefix = reader.take(prefix_bytes)?;
        let slots = reader.take(count * SLOT_BYTES)?;
        Ok(Self { count, has_kind_bytes, prefix, slots, cells: reader.rest() })
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

    /// The entry at `index`.
    #[inline(always)]
    pub(crate) fn cell(&self, index: usize) -> Result<Cell<'a>, Damage> {
        let (suffix_and_code, value_bytes, mut reader) = self.open_cell(index)?;
        let kind = if self.has_kind_byte(suffix_and_code) {
            kind_of_byte(reader.u8()?)?
        } else {
            kind_of_code(suffix_and_code)
        };
        let suffix = reader.take(usize_of(suffix_and_code >> 2))?;
        let value = reader.take(usize_of(value_bytes))?;
        Ok(Cell { kind, suffix, value })
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
