//! A slotted block, written: collects sorted entries and encodes them with their common prefix cut off.
//!
//! **Invariants**
//! - [`BlockBuilder::fits`] never promises more than [`BlockBuilder::encode_into`] can place.

use testudo_base::{
    Entry, PAGE_SIZE,
    codec::{self, varint_bytes},
    key,
    num::{u16_of, u64_of},
};
use testudo_storage::PAGE_HEADER_BYTES;

use crate::block::{BLOCK_HEADER_BYTES, SLOT_BYTES, head32};

/// Payload of a block of one page.
pub(crate) const PAGE_PAYLOAD_BYTES: usize = PAGE_SIZE - PAGE_HEADER_BYTES;

#[derive(Debug, Clone, Copy)]
struct Pending {
    start: usize,
    key_bytes: usize,
    value_bytes: usize,
    kind: u8,
}

/// Entries on their way into one block.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    entries: Vec<Pending>,
    prefix_bytes: usize,
    /// Slots, length fields, whole keys and values; the prefix is subtracted when the size is asked for.
    unshared_bytes: usize,
}

fn entry_bytes(entry: &Entry<'_>) -> usize {
    SLOT_BYTES
        + varint_bytes(u64_of(entry.key.len()) << 2)
        + varint_bytes(u64_of(entry.value.len()))
        + entry.key.len()
        + entry.value.len()
}

impl BlockBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn first_key(&self) -> &[u8] {
        self.entries.first().map_or(&[], |first| &self.bytes[..first.key_bytes])
    }

    fn prefix_with(&self, key: &[u8]) -> usize {
        if self.entries.is_empty() {
            return key.len().min(usize::from(u16::MAX));
        }
        key::common_prefix(&self.first_key()[..self.prefix_bytes], key)
    }

    /// Whether the entry can join without the block outgrowing one page.
    pub(crate) fn fits(&self, entry: &Entry<'_>) -> bool {
        let prefix = self.prefix_with(entry.key);
        let shared = prefix * self.entries.len();
        let total = BLOCK_HEADER_BYTES + self.unshared_bytes + entry_bytes(entry) - shared;
        total <= PAGE_PAYLOAD_BYTES && self.entries.len() < usize::from(u16::MAX)
    }

    /// Adds an entry; its key must be greater than all before.
    pub(crate) fn push(&mut self, entry: &Entry<'_>) {
        self.prefix_bytes = self.prefix_with(entry.key);
        self.unshared_bytes += entry_bytes(entry);
        self.entries.push(Pending {
            start: self.bytes.len(),
            key_bytes: entry.key.len(),
            value_bytes: entry.value.len(),
            kind: entry.kind as u8,
        });
        self.bytes.extend_from_slice(entry.key);
        self.bytes.extend_from_slice(entry.value);
    }

    /// Appends the payload to `out` and starts anew.
    pub(crate) fn encode_into(&mut self, out: &mut Vec<u8>) {
        let prefix = self.prefix_bytes;
        codec::put_u16(out, u16_of(self.entries.len()));
        codec::put_u16(out, u16_of(prefix));
        out.extend_from_slice(&self.bytes[..prefix]);
        let slots = out.len();
        out.resize(slots + self.entries.len() * SLOT_BYTES, 0);
        let cells = out.len();
        for (index, entry) in self.entries.iter().enumerate() {
            let suffix = &self.bytes[entry.start + prefix..entry.start + entry.key_bytes];
            let value_start = entry.start + entry.key_bytes;
            let slot = slots + index * SLOT_BYTES;
            let offset = u16_of(out.len() - cells);
            out[slot..slot + 4].copy_from_slice(&head32(suffix).to_le_bytes());
            out[slot + 4..slot + 6].copy_from_slice(&offset.to_le_bytes());
            codec::put_varint(out, u64_of(suffix.len()) << 2 | u64::from(entry.kind));
            codec::put_varint(out, u64_of(entry.value_bytes));
            out.extend_from_slice(suffix);
            out.extend_from_slice(&self.bytes[value_start..value_start + entry.value_bytes]);
        }
        self.bytes.clear();
        self.entries.clear();
        self.prefix_bytes = 0;
        self.unshared_bytes = 0;
    }
}
