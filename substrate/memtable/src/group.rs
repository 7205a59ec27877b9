//! A group: up to [`GROUP_ENTRIES`] consecutive entries of a leaf, adjacent in three cache lines.
//!
//! Outside the caches, a search costs one memory latency per dependent load. All lines of a group are
//! therefore prefetched before its heads are bisected: a key costs one latency here and one for its record.
//!
//! **Invariants**
//! - The first `len` slots are in use; the leaf stores `len`. Unused heads are `u64::MAX`.

use std::ptr;

use testudo_base::{
    prefetch::{LINE_BYTES, prefetch, prefetch_to_write},
    sync::scaled,
};

use crate::arena::Record;

/// Entries of a full group.
pub(crate) const GROUP_ENTRIES: usize = scaled(16, 2);

/// Number of cache lines of a group, which starts at a line.
const LINES: usize = size_of::<Group<'_>>().div_ceil(LINE_BYTES);

#[derive(Debug)]
pub(crate) struct Group<'id> {
    heads: [u64; GROUP_ENTRIES],
    records: [Option<Record<'id>>; GROUP_ENTRIES],
}

impl<'id> Group<'id> {
    pub(crate) fn new() -> Self {
        Self { heads: [u64::MAX; GROUP_ENTRIES], records: [const { None }; GROUP_ENTRIES] }
    }

    /// Prefetches the whole group.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch::<LINES>(ptr::from_ref(self).cast());
    }

    /// Like [`Group::prefetch`], for an insert.
    #[inline]
    pub(crate) fn prefetch_to_write(&self) {
        prefetch_to_write::<LINES>(ptr::from_ref(self).cast());
    }

    pub(crate) fn first_head(&self) -> u64 {
        self.heads[0]
    }

    #[inline]
    pub(crate) fn record(&self, at: usize) -> &Record<'id> {
        self.records[at].as_ref().expect("the slot is in use")
    }

    #[inline]
    pub(crate) fn record_mut(&mut self, at: usize) -> &mut Record<'id> {
        self.records[at].as_mut().expect("the slot is in use")
    }

    /// The records in use, in order.
    pub(crate) fn records(&self) -> impl DoubleEndedIterator<Item = &Record<'id>> + Clone {
        self.records.iter().flatten()
    }

    /// The records in use with their mutable heads.
    pub(crate) fn heads_mut(&mut self) -> impl Iterator<Item = (&mut u64, &Record<'id>)> {
        self.heads.iter_mut().zip(self.records.iter().flatten())
    }

    /// Range of the slots among the first `len` whose heads equal `head`; if there are none, the empty range
    /// at the insertion slot.
    #[inline]
    pub(crate) fn equal_range(&self, len: usize, head: u64) -> (usize, usize) {
        let (below, up_to) = count(&self.heads, head);
        (below, up_to.min(len))
    }

    /// Inserts an entry at slot `at`. REQUIRES: `at <= len < GROUP_ENTRIES`.
    #[inline]
    pub(crate) fn insert(&mut self, len: usize, at: usize, head: u64, record: Record<'id>) {
        debug_assert!(at <= len && len < GROUP_ENTRIES, "the group has room there");
        debug_assert!(
            (at == 0 || self.heads[at - 1] <= head) && (at == len || head <= self.heads[at]),
            "heads ascend"
        );
        self.heads.copy_within(at..len, at + 1);
        self.heads[at] = head;
        self.records[at..=len].rotate_right(1);
        self.records[at] = Some(record);
    }

    /// Moves the entries from `at` on to `right`, a new group.
    pub(crate) fn split(&mut self, at: usize, right: &mut Self) {
        debug_assert!(at > 0 && at <= GROUP_ENTRIES, "some entries stay");
        debug_assert!(right.records().next().is_none(), "the new group is empty");
        right.heads[..GROUP_ENTRIES - at].copy_from_slice(&self.heads[at..]);
        self.heads[at..].fill(u64::MAX);
        for (to, from) in right.records.iter_mut().zip(&mut self.records[at..]) {
            *to = from.take();
        }
    }
}

/// Returns how many of the heads are less than `head`, and how many are at most `head`.
#[inline]
pub(crate) fn count(heads: &[u64; GROUP_ENTRIES], head: u64) -> (usize, usize) {
    // Branchless, to avoid mispredictions.
    let mut below = 0;
    let mut step = GROUP_ENTRIES / 2;
    while step > 0 {
        below += step * usize::from(heads[below + step - 1] < head);
        step /= 2;
    }
    below += usize::from(heads[below] < head);
    // Rarely more than one, and often none.
    let equal = heads[below..].iter().take_while(|&&other| other == head).count();
    (below, below + equal)
}
