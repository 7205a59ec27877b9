//! The index of the written data blocks, kept until the run ends.
//!
//! Entries are stored contiguously in their encoding of index pages: a run has thousands, and structures with
//! separate keys would take several times the memory.
//!
//! **Invariants**
//! - The entry of a block can change until the next one is added.

use testudo_base::{
    LargeVec, Result,
    codec::Reader,
    num::{u32_of, usize_of},
};

use crate::format::{
    block::IndexEntry,
    footer::BlockPosition,
    long_separators::{Fork, Separator},
};

/// Bytes of the lengths before each entry.
const LENGTHS_BYTES: usize = 3 * 4;

/// Usual bytes of an entry without its separator.
const INDEX_ENTRY_BYTES: usize = 32;

/// A written data block.
#[derive(Debug)]
pub(super) struct WrittenBlock {
    /// Separator before its keys.
    pub(super) separator: Separator,
    pub(super) position: BlockPosition,
    /// Border and page count: keys from the border on need this many more pages.
    pub(super) continued_from: Option<(Box<[u8]>, u32)>,
}

/// Index of the written blocks, in key order.
#[derive(Debug, Default)]
pub(super) struct WrittenIndex {
    /// All blocks but the last: lengths of separator, entry and the fork at the entry's end, as u32;
    /// separator; entry.
    bytes: LargeVec<u8>,
    last: Option<WrittenBlock>,
    len: usize,
    /// Reused buffer for the next entry.
    entry: Vec<u8>,
}

/// An entry in the encoding of index pages.
pub(super) struct EncodedBlock<'a> {
    pub(super) separator: &'a [u8],
    pub(super) entry: &'a [u8],
    /// The fork, if the separator was cut.
    pub(super) fork: Option<Fork>,
}

impl WrittenIndex {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory.
    pub(super) fn room_bytes(&self) -> usize {
        self.bytes.room_bytes()
    }

    pub(super) fn push(&mut self, block: WrittenBlock) {
        debug_assert!(
            self.last.as_ref().is_none_or(|last| last.position.page < block.position.page),
            "blocks are written in order"
        );
        self.encode_last();
        self.last = Some(block);
        self.len += 1;
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut WrittenBlock> {
        self.last.as_mut()
    }

    fn encode_last(&mut self) {
        let Some(WrittenBlock { separator, position, continued_from }) = self.last.take() else { return };
        let continued_from = continued_from.as_ref().map(|(border, pages)| (&**border, *pages));
        let fork_bytes = if separator.fork.is_some() { Fork::BYTES } else { 0 };
        let entry = &mut self.entry;
        entry.clear();
        entry.reserve(LENGTHS_BYTES + separator.bytes.len() + INDEX_ENTRY_BYTES);
        entry.extend_from_slice(&[0; LENGTHS_BYTES]);
        entry.extend_from_slice(&separator.bytes);
        let start = entry.len();
        IndexEntry { position, continued_from, fork: separator.fork }.encode(entry);
        let lengths = [separator.bytes.len(), entry.len() - start, fork_bytes];
        for (place, length) in entry.chunks_exact_mut(4).zip(lengths) {
            place.copy_from_slice(&u32_of(length).to_le_bytes());
        }
        self.bytes.extend_from_slice(entry);
    }

    /// Calls `show` for all entries, in order. No more can be added afterwards.
    pub(super) fn each(&mut self, mut show: impl FnMut(EncodedBlock<'_>) -> Result<()>) -> Result<()> {
        self.encode_last();
        let mut rest = &*self.bytes;
        let mut take = |length: usize| rest.split_off(..length).expect("the entry was just encoded");
        for _ in 0..self.len {
            let [separator, entry, fork] = [(); 3].map(|()| {
                let bytes = take(4).try_into().expect("four bytes");
                usize_of(u64::from(u32::from_le_bytes(bytes)))
            });
            let (separator, entry) = (take(separator), take(entry));
            debug_assert!(fork <= entry.len(), "a fork is the end of its entry");
            let mut fork = Reader::new(&entry[entry.len() - fork..]);
            let fork = if fork.is_empty() { None } else { Fork::decode(&mut fork).ok() };
            show(EncodedBlock { separator, entry, fork })?;
        }
        Ok(())
    }
}
