//! A slotted block, written: collects sorted entries and encodes them with their common prefix cut off.
//!
//! A block of small entries is one page. Where whole entries would leave much of the page empty, the block
//! goes on over more pages, up to eight (decision 0047): as many as leave little empty, if entries to come
//! are alike. One that is longer than a page has a block for itself.
//!
//! **Invariants**
//! - [`BlockBuilder::push`] never takes more than [`BlockBuilder::encode_into`] can place in
//!   [`BLOCK_PAGES_MAX`] pages, in an index block in one, but for a sole entry.
//! - What a page leaves empty is at most an eighth of it, or the block goes on if there is another entry.
//! - In `bytes` each value follows its key, and the next key that value.

use testudo_base::{
    Entry, PAGE_SIZE,
    codec::{self, varint_bytes},
    key,
    num::{u16_of, u32_of, u64_of, usize_of},
};
use testudo_storage::{CACHED_BLOCK_PAGES_MAX, PAGE_HEADER_BYTES};

use crate::format::block::{BLOCK_HEADER_BYTES, KIND_BYTE_CODE, KIND_BYTES_FLAG, SLOT_BYTES, head32};

/// Payload of a block of one page.
pub(crate) const PAGE_PAYLOAD_BYTES: usize = PAGE_SIZE - PAGE_HEADER_BYTES;
/// Pages of a block with several entries, at most: offsets of cells have 16 bits, and who looks for one entry
/// reads all of the block.
const BLOCK_PAGES_MAX: u32 = CACHED_BLOCK_PAGES_MAX;
/// A block of one page may leave so much of it empty…
const PAGE_TAIL_MAX: usize = PAGE_SIZE / 8;
/// …and a longer one one part in so many.
const BLOCK_TAIL_SHARE: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Pending {
    key_bytes: u32,
    value_bytes: u32,
    kind: u8,
}

/// Entries on their way into one block.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    /// Pages that the block may have, and those that it has so far.
    pages_max: usize,
    pages: usize,
    bytes: Vec<u8>,
    entries: Vec<Pending>,
    prefix_bytes: usize,
    /// Whether some entry has a kind byte.
    has_kind_bytes: bool,
    /// Slots, length fields, whole keys and values; the prefix is subtracted when the size is asked for.
    unshared_bytes: usize,
    /// Where the last key is.
    last_key_start: usize,
    last_key_end: usize,
}

fn entry_bytes(entry: &Entry<'_>) -> usize {
    SLOT_BYTES
        + varint_bytes(u64_of(entry.key.len()) << 2)
        + varint_bytes(u64_of(entry.value.len()))
        + usize::from(entry.kind as u8 >= KIND_BYTE_CODE)
        + entry.key.len()
        + entry.value.len()
}

/// Payload of a block of so many pages.
fn payload_of_pages(pages: usize) -> usize {
    pages * PAGE_SIZE - PAGE_HEADER_BYTES
}

/// How many pages a block should have of which `used` bytes of the payload are taken, and whose first page
/// more than `pages` it would outgrow with one more entry of `next` bytes: as few as leave little empty, or
/// as many as leave least, if all that follow are like that one. `None` if it should end as it is.
fn pages_worth(used: usize, next: usize, pages: usize, pages_max: usize) -> Option<usize> {
    let left = payload_of_pages(pages).saturating_sub(used);
    let is_full = match pages {
        1 => left <= PAGE_TAIL_MAX,
        _ => left * BLOCK_TAIL_SHARE <= pages * PAGE_SIZE,
    };
    if is_full {
        return None;
    }
    let (mut best, mut least) = (pages, left);
    for more in pages + 1..=pages_max {
        let empty = payload_of_pages(more).saturating_sub(used);
        if empty < next {
            continue;
        }
        let empty = empty % next;
        if empty * BLOCK_TAIL_SHARE <= more * PAGE_SIZE {
            return Some(more);
        }
        if empty * best < least * more {
            (best, least) = (more, empty);
        }
    }
    (best > pages).then_some(best)
}

impl Default for BlockBuilder {
    /// Of a block of one page, but for a sole entry.
    fn default() -> Self {
        Self::of_pages(1)
    }
}

impl BlockBuilder {
    /// Of a block of data: of one page or a few.
    pub(crate) fn of_data() -> Self {
        Self::of_pages(usize_of(u64::from(BLOCK_PAGES_MAX)))
    }

    fn of_pages(pages_max: usize) -> Self {
        Self {
            pages_max,
            pages: 1,
            bytes: Vec::new(),
            entries: Vec::new(),
            prefix_bytes: 0,
            has_kind_bytes: false,
            unshared_bytes: 0,
            last_key_start: 0,
            last_key_end: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The key that was added last; empty if there is none.
    #[inline]
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.bytes[self.last_key_start..self.last_key_end]
    }

    /// The key that was added first; empty if there is none.
    #[inline]
    pub(crate) fn first_key(&self) -> &[u8] {
        self.entries.first().map_or(&[], |entry| &self.bytes[..entry.key_bytes as usize])
    }

    #[inline]
    fn prefix_with(&self, key: &[u8]) -> usize {
        if self.entries.is_empty() {
            return key.len().min(usize::from(u16::MAX));
        }
        // The first key starts `bytes`.
        key::common_prefix(&self.bytes[..self.prefix_bytes], key)
    }

    /// Adds an entry, whose key must be greater than all before; `false` if the block is better finished
    /// before it.
    #[inline]
    pub(crate) fn push(&mut self, entry: &Entry<'_>) -> bool {
        debug_assert!(
            self.last_key() <= entry.key,
            "keys ascend; only separators that were cut can be equal"
        );
        let prefix = self.prefix_with(entry.key);
        let unshared = self.unshared_bytes + entry_bytes(entry);
        let count = self.entries.len();
        let total = BLOCK_HEADER_BYTES + unshared - prefix * count;
        if count > 0 && (total > PAGE_PAYLOAD_BYTES || count >= usize::from(!KIND_BYTES_FLAG)) {
            if self.pages_max == 1 || !self.extend(total, count) {
                return false;
            }
        }
        (self.prefix_bytes, self.unshared_bytes) = (prefix, unshared);
        self.has_kind_bytes |= entry.kind as u8 >= KIND_BYTE_CODE;
        self.entries.push(Pending {
            key_bytes: u32_of(entry.key.len()),
            value_bytes: u32_of(entry.value.len()),
            kind: entry.kind as u8,
        });
        self.last_key_start = self.bytes.len();
        self.bytes.extend_from_slice(entry.key);
        self.last_key_end = self.bytes.len();
        self.bytes.extend_from_slice(entry.value);
        true
    }

    /// Whether the block, of more than a page with the next entry, goes on with it; `total` is its payload
    /// then, about.
    #[cold]
    fn extend(&mut self, total: usize, count: usize) -> bool {
        if count >= usize::from(!KIND_BYTES_FLAG) {
            return false;
        }
        let used = self.payload_bytes();
        if total <= payload_of_pages(self.pages) {
            return true;
        }
        let next = total.saturating_sub(used).max(1);
        // Who looks for a long entry does not read others along with it.
        let has_long = next > PAGE_PAYLOAD_BYTES || (count == 1 && used > PAGE_PAYLOAD_BYTES);
        if has_long {
            return false;
        }
        let Some(pages) = pages_worth(used, next, self.pages, self.pages_max) else { return false };
        debug_assert!(total <= payload_of_pages(pages), "it has room for the next entry");
        self.pages = pages;
        true
    }

    /// Bytes of the payload, once encoded; for one of a page at most that, for a longer one exactly.
    pub(crate) fn payload_bytes(&self) -> usize {
        let prefix = self.prefix_bytes;
        let shared = prefix * self.entries.len();
        let most = BLOCK_HEADER_BYTES + prefix + self.unshared_bytes - shared;
        if most <= PAGE_PAYLOAD_BYTES {
            return most;
        }
        // The length of a suffix may take less than that of its key did.
        let cell = |entry: &Pending| {
            let (key, value) = (usize_of(u64::from(entry.key_bytes)), u64::from(entry.value_bytes));
            let kind_bytes = usize::from(entry.kind >= KIND_BYTE_CODE);
            let length_bytes = varint_bytes(u64_of(key - prefix) << 2) + varint_bytes(value);
            SLOT_BYTES + length_bytes + kind_bytes + key - prefix + usize_of(value)
        };
        BLOCK_HEADER_BYTES + prefix + self.entries.iter().map(cell).sum::<usize>()
    }

    /// Writes the payload to the start of `out`, returns its length and starts anew.
    /// REQUIRES: `out` has room for [`BlockBuilder::payload_bytes`].
    pub(crate) fn encode_into(&mut self, out: &mut [u8]) -> usize {
        debug_assert!(!self.is_empty() && out.len() >= self.payload_bytes(), "the payload fits");
        let prefix = self.prefix_bytes;
        let flag = if self.has_kind_bytes { KIND_BYTES_FLAG } else { 0 };
        out[..2].copy_from_slice(&(u16_of(self.entries.len()) | flag).to_le_bytes());
        out[2..4].copy_from_slice(&u16_of(prefix).to_le_bytes());
        let (head, rest) = out.split_at_mut(BLOCK_HEADER_BYTES + prefix);
        head[BLOCK_HEADER_BYTES..].copy_from_slice(&self.bytes[..prefix]);
        let (slots, cells) = rest.split_at_mut(self.entries.len() * SLOT_BYTES);
        let (mut pending, mut at) = (self.bytes.as_slice(), 0);
        for (slot, entry) in slots.chunks_exact_mut(SLOT_BYTES).zip(&self.entries) {
            let key_bytes = entry.key_bytes as usize;
            let (bytes, others) = pending.split_at(key_bytes + entry.value_bytes as usize);
            pending = others;
            let suffix_and_value = &bytes[prefix..];
            slot[..4].copy_from_slice(&head32(&bytes[prefix..key_bytes]).to_le_bytes());
            slot[4..].copy_from_slice(&u16_of(at).to_le_bytes());
            at += codec::write_varint(
                &mut cells[at..],
                u64_of(key_bytes - prefix) << 2 | u64::from(entry.kind.min(KIND_BYTE_CODE)),
            );
            at += codec::write_varint(&mut cells[at..], u64::from(entry.value_bytes));
            if entry.kind >= KIND_BYTE_CODE {
                cells[at] = entry.kind;
                at += 1;
            }
            cells[at..at + suffix_and_value.len()].copy_from_slice(suffix_and_value);
            at += suffix_and_value.len();
        }
        let length = BLOCK_HEADER_BYTES + prefix + slots.len() + at;
        self.bytes.clear();
        self.entries.clear();
        (self.prefix_bytes, self.unshared_bytes, self.has_kind_bytes) = (0, 0, false);
        (self.last_key_start, self.last_key_end) = (0, 0);
        self.pages = 1;
        length
    }
}

#[cfg(test)]
mod tests;
