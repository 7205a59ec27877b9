//! Building of a slotted block: collects sorted entries and encodes them without their common prefix.
//!
//! **Invariants**
//! - [`BlockBuilder::push`] never accepts more than [`BlockBuilder::encode_into`] can place in one page. Only
//!   a sole entry passed to [`BlockBuilder::push_long`] may be longer.
//! - In `bytes` each value follows its key, and the next key follows that value.

use testudo_base::{
    Entry, PAGE_SIZE,
    codec::{self, varint_bytes},
    key,
    num::{u16_of, u32_of, u64_of, usize_of},
};
use testudo_storage::PAGE_HEADER_BYTES;

use crate::format::block::{
    BLOCK_HEADER_BYTES, CONTINUATION_BYTES, CONTINUATION_PAGES_MAX, CONTINUED_FLAG, KIND_BYTE_CODE,
    KIND_BYTES_FLAG, MAX_ENTRIES, SLOT_BYTES, head32,
};

/// Payload bytes of a single-page block.
pub(crate) const PAGE_PAYLOAD_BYTES: usize = PAGE_SIZE - PAGE_HEADER_BYTES;

/// Maximum bytes left empty per page rather than filled with a part of a value: a continued value costs its
/// readers another page.
const EMPTY_BYTES_MAX: usize = PAGE_PAYLOAD_BYTES / 16;

#[derive(Debug, Clone, Copy)]
struct Pending {
    key_bytes: u32,
    value_bytes: u32,
    kind: u8,
}

/// Entries collected for one block.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    entries: Vec<Pending>,
    prefix_bytes: usize,
    /// The rest of the previous page's last value.
    continuation: Vec<u8>,
    /// Bytes of the last value in following pages.
    continued_bytes: usize,
    /// Whether any entry has a kind byte.
    has_kind_bytes: bool,
    /// Slots, length fields, whole keys and values; the prefix is subtracted when the size is computed.
    unshared_bytes: usize,
    /// Range of the last key in `bytes`.
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
    /// A builder with memory for `entries` entries of `bytes` bytes in total, at most for those of a page.
    pub(crate) fn with_room_for(entries: usize, bytes: usize) -> Self {
        let (entries, bytes) = (Vec::with_capacity(entries), Vec::with_capacity(bytes.min(PAGE_SIZE)));
        Self { bytes, entries, ..Self::default() }
    }

    /// Whether it has no entry. It may still have a continuation.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn has_continuation(&self) -> bool {
        !self.continuation.is_empty()
    }

    /// Starts the block with the rest of the previous value. REQUIRES: the block is empty.
    pub(crate) fn start_with(&mut self, continuation: &[u8]) {
        debug_assert!(self.is_empty() && !self.has_continuation(), "the continuation must come first");
        debug_assert!(continuation.len() <= CONTINUATION_BYTES, "a page holds the continuation");
        self.continuation.extend_from_slice(continuation);
        self.unshared_bytes = continuation.len();
    }

    /// Last key added; empty if there is none.
    #[inline]
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.bytes[self.last_key_start..self.last_key_end]
    }

    /// First key added; empty if there is none.
    #[inline]
    pub(crate) fn first_key(&self) -> &[u8] {
        self.entries.first().map_or(&[], |entry| &self.bytes[..entry.key_bytes as usize])
    }

    #[inline]
    fn prefix_with(&self, key: &[u8]) -> usize {
        if self.entries.is_empty() {
            return key.len().min(usize::from(u16::MAX));
        }
        // The first key is at the start of `bytes`.
        key::common_prefix(&self.bytes[..self.prefix_bytes], key)
    }

    /// Adds an entry, whose key must be greater than all previous ones; `false` if the block would exceed a
    /// page. Never `false` for an entry that fits into a page if the block is empty.
    #[inline]
    pub(crate) fn push(&mut self, entry: &Entry<'_>) -> bool {
        debug_assert!(self.last_key() <= entry.key, "keys must increase; only cut separators can be equal");
        let prefix = self.prefix_with(entry.key);
        let unshared = self.unshared_bytes + entry_bytes(entry);
        let count = self.entries.len();
        let total = BLOCK_HEADER_BYTES + unshared - prefix * count;
        if total > PAGE_PAYLOAD_BYTES || count >= usize::from(MAX_ENTRIES) {
            return false;
        }
        self.add(entry, prefix, unshared, entry.value);
        true
    }

    /// Adds an entry longer than a page, to a block of its own. REQUIRES: the block is empty.
    pub(crate) fn push_long(&mut self, entry: &Entry<'_>) {
        debug_assert!(self.is_empty() && !self.has_continuation(), "a long entry must be alone");
        let prefix = self.prefix_with(entry.key);
        self.add(entry, prefix, entry_bytes(entry), entry.value);
    }

    /// Adds an entry that does not fit completely, with the part of its value that fits; returns that part's
    /// length. `None` if it is impossible, or not worth it because little space would be left empty
    /// otherwise. Nothing can be added after it.
    pub(crate) fn push_first_part(&mut self, entry: &Entry<'_>) -> Option<usize> {
        debug_assert!(self.last_key() <= entry.key, "keys must increase");
        let prefix = self.prefix_with(entry.key);
        let whole = entry_bytes(entry);
        let unshared = self.unshared_bytes + whole - entry.value.len();
        let count = self.entries.len();
        let without_value = BLOCK_HEADER_BYTES + unshared - prefix * count;
        let room = PAGE_PAYLOAD_BYTES.checked_sub(without_value)?.min(entry.value.len());
        // Number of pages it would take in a block of its own.
        let pages = (PAGE_HEADER_BYTES + BLOCK_HEADER_BYTES + whole).div_ceil(PAGE_SIZE);
        let empty_behind = if pages > 1 { pages * PAGE_SIZE - whole } else { 0 };
        let empty = PAGE_PAYLOAD_BYTES.saturating_sub(self.payload_bytes()) + empty_behind;
        let is_worth = empty > EMPTY_BYTES_MAX * pages;
        // The part that fits may be far smaller than the empty space: a key that shares little makes the
        // others longer.
        let continued_bytes = entry.value.len() - room;
        let fits =
            continued_bytes.div_ceil(CONTINUATION_BYTES) <= usize_of(u64::from(CONTINUATION_PAGES_MAX));
        if room == 0 || !is_worth || !fits || count >= usize::from(MAX_ENTRIES) {
            return None;
        }
        self.continued_bytes = continued_bytes;
        self.add(entry, prefix, unshared + room, &entry.value[..room]);
        Some(room)
    }

    fn add(&mut self, entry: &Entry<'_>, prefix: usize, unshared: usize, value: &[u8]) {
        debug_assert!(prefix <= entry.key.len() && prefix <= usize::from(u16::MAX), "a prefix of the key");
        debug_assert!(
            self.entries.is_empty() || prefix <= self.prefix_bytes,
            "the shared prefix never gets longer"
        );
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
        self.bytes.extend_from_slice(value);
    }

    /// Bytes of the encoded payload: an upper bound for a single page, exact for a longer payload.
    pub(crate) fn payload_bytes(&self) -> usize {
        let prefix = self.prefix_bytes;
        let shared = prefix * self.entries.len();
        let most = BLOCK_HEADER_BYTES + prefix + self.unshared_bytes - shared;
        if most <= PAGE_PAYLOAD_BYTES {
            return most;
        }
        // The length field of a suffix may be shorter than that of its key.
        let cell = |entry: &Pending| {
            debug_assert_eq!(self.continued_bytes, 0, "a block longer than a page must not continue");
            let (key, value) = (usize_of(u64::from(entry.key_bytes)), u64::from(entry.value_bytes));
            let kind_bytes = usize::from(entry.kind >= KIND_BYTE_CODE);
            let length_bytes = varint_bytes(u64_of(key - prefix) << 2) + varint_bytes(value);
            SLOT_BYTES + length_bytes + kind_bytes + key - prefix + usize_of(value)
        };
        BLOCK_HEADER_BYTES + prefix + self.entries.iter().map(cell).sum::<usize>()
    }

    /// Encodes the payload to the start of `out`, returns its length and resets the builder. REQUIRES: `out`
    /// has room for [`BlockBuilder::payload_bytes`].
    pub(crate) fn encode_into(&mut self, out: &mut [u8]) -> usize {
        debug_assert!(!self.is_empty() || self.has_continuation(), "the block must not be empty");
        let promised = self.payload_bytes();
        debug_assert!(out.len() >= promised, "the payload must fit");
        debug_assert!(self.entries.len() <= usize::from(MAX_ENTRIES), "the number of entries fits");
        let prefix = self.prefix_bytes;
        let mut flag = if self.has_kind_bytes { KIND_BYTES_FLAG } else { 0 };
        if self.continued_bytes > 0 {
            flag |= CONTINUED_FLAG;
        }
        out[..2].copy_from_slice(&(u16_of(self.entries.len()) | flag).to_le_bytes());
        out[2..4].copy_from_slice(&u16_of(prefix).to_le_bytes());
        let (head, rest) = out.split_at_mut(BLOCK_HEADER_BYTES + prefix);
        head[BLOCK_HEADER_BYTES..].copy_from_slice(&self.bytes[..prefix]);
        let (slots, cells) = rest.split_at_mut(self.entries.len() * SLOT_BYTES);
        let (mut pending, mut at) = (self.bytes.as_slice(), self.continuation.len());
        cells[..at].copy_from_slice(&self.continuation);
        for (slot, entry) in slots.chunks_exact_mut(SLOT_BYTES).zip(&self.entries) {
            let key_bytes = entry.key_bytes as usize;
            // Only the last value may be incomplete.
            let length = key_bytes + entry.value_bytes as usize;
            let (bytes, others) = pending.split_at(length.min(pending.len()));
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
        debug_assert!(pending.is_empty(), "every entry is encoded");
        let length = BLOCK_HEADER_BYTES + prefix + slots.len() + at;
        debug_assert!(length <= promised, "the promised length");
        self.bytes.clear();
        self.entries.clear();
        self.continuation.clear();
        self.continued_bytes = 0;
        (self.prefix_bytes, self.unshared_bytes, self.has_kind_bytes) = (0, 0, false);
        (self.last_key_start, self.last_key_end) = (0, 0);
        length
    }
}
