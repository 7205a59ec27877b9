//! A slotted block, written: collects sorted entries and encodes them with their common prefix cut off.
//!
//! **Invariants**
//! - [`BlockBuilder::push`] never takes more than [`BlockBuilder::encode_into`] can place in one page, but
//!   for a sole entry.
//! - In `bytes` each value follows its key, and the next key that value.

use testudo_base::{
    Entry, PAGE_SIZE,
    codec::{self, varint_bytes},
    key,
    num::{u16_of, u32_of, u64_of, usize_of},
};
use testudo_storage::PAGE_HEADER_BYTES;

use crate::format::block::{BLOCK_HEADER_BYTES, KIND_BYTE_CODE, KIND_BYTES_FLAG, SLOT_BYTES, head32};

/// Payload of a block of one page.
pub(crate) const PAGE_PAYLOAD_BYTES: usize = PAGE_SIZE - PAGE_HEADER_BYTES;

#[derive(Debug, Clone, Copy)]
struct Pending {
    key_bytes: u32,
    value_bytes: u32,
    kind: u8,
}

/// Entries on their way into one block.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
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

impl BlockBuilder {
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

    /// Adds an entry, whose key must be greater than all before; `false` if the block would outgrow one page
    /// by that.
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
            return false;
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
        length
    }
}
