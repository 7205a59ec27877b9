//! A slotted block, read: the payload of a data or an index page (or of several pages with one entry).
//!
//! | bytes | field |
//! |---|---|
//! | 2 | number of entries |
//! | 2 | length of the prefix that all keys of the block share |
//! | … | the prefix |
//! | 6 each | slots: head u32 (first four bytes of the key after the prefix, big-endian order), offset u16 of the cell |
//! | … | cells: varint (suffix length × 4 + kind), varint value length, key suffix, value |
//!
//! Offsets count from the end of the slots. The block builder writes this, [`Block`] reads it; both are the only
//! ones to know it.
//!
//! **Invariants**
//! - Reading never panics: a block that contradicts itself is [`Damage`].

use std::cmp::Ordering;

use testudo_base::{
    Kind,
    codec::{Damage, Reader},
    key,
    num::usize_of,
    planted,
};

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 6;
/// Bytes before the prefix.
pub(crate) const BLOCK_HEADER_BYTES: usize = 4;

/// The first four bytes of a key suffix as an integer in key order.
#[inline]
pub(crate) fn head32(suffix: &[u8]) -> u32 {
    if let Some(bytes) = suffix.first_chunk::<4>() {
        return u32::from_be_bytes(*bytes);
    }
    testudo_base::num::high32(key::head(suffix))
}

/// One entry of a block; the key is `prefix + suffix`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell<'a> {
    pub(crate) kind: Kind,
    pub(crate) suffix: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// A parsed view of a block's payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    count: usize,
    prefix: &'a [u8],
    slots: &'a [u8],
    cells: &'a [u8],
}

/// Where the parts of a parsed block are, kept by whoever looks at the same payload again and again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    count: usize,
    prefix_end: usize,
    slots_end: usize,
}

impl Layout {
    /// Parses `payload`.
    pub(crate) fn of(payload: &[u8]) -> Result<Self, Damage> {
        let block = Block::parse(payload)?;
        let prefix_end = BLOCK_HEADER_BYTES + block.prefix.len();
        Ok(Self { count: block.count, prefix_end, slots_end: prefix_end + block.slots.len() })
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Views the payload that the layout was made of.
    #[inline]
    pub(crate) fn view<'a>(&self, payload: &'a [u8]) -> Block<'a> {
        let (head, cells) = payload.split_at(self.slots_end);
        let (head, slots) = head.split_at(self.prefix_end);
        Block { count: self.count, prefix: head.get(BLOCK_HEADER_BYTES..).unwrap_or_default(), slots, cells }
    }
}

impl<'a> Block<'a> {
    /// Views `payload`.
    #[inline]
    pub(crate) fn parse(payload: &'a [u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(payload);
        let count = usize::from(reader.u16()?);
        let prefix_bytes = usize::from(reader.u16()?);
        let prefix = reader.take(prefix_bytes)?;
        let slots = reader.take(count * SLOT_BYTES)?;
        Ok(Self { count, prefix, slots, cells: reader.rest() })
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn prefix(&self) -> &'a [u8] {
        self.prefix
    }

    #[inline]
    fn slot(&self, index: usize) -> Option<(u32, usize)> {
        let slot = self.slots.get(index * SLOT_BYTES..)?.first_chunk::<SLOT_BYTES>()?;
        let head = u32::from_le_bytes([slot[0], slot[1], slot[2], slot[3]]);
        Some((head, usize::from(u16::from_le_bytes([slot[4], slot[5]]))))
    }

    /// The entry at `index`.
    #[inline]
    pub(crate) fn cell(&self, index: usize) -> Result<Cell<'a>, Damage> {
        let (_, offset) = self.slot(index).ok_or(Damage("a slot is missing"))?;
        let mut reader = Reader::new(self.cells.get(offset..).ok_or(Damage("a cell is outside its block"))?);
        let suffix_and_kind = reader.varint()?;
        let value_bytes = usize_of(reader.varint()?);
        let kind = Kind::from_low_bits((suffix_and_kind & 3) as u8);
        let suffix = reader.take(usize_of(suffix_and_kind >> 2))?;
        let value = reader.take(value_bytes)?;
        Ok(Cell { kind, suffix, value })
    }

    /// In an index block: the entry that leads to where `key` is or would be.
    pub(crate) fn leading_slot(&self, key: &[u8]) -> Result<usize, Damage> {
        let (slot, is_equal) = self.lower_bound(key)?;
        Ok(if is_equal { slot } else { slot.saturating_sub(1) })
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
                Ordering::Equal => self.cell(middle)?.suffix.cmp(suffix),
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
