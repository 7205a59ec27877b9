//! What becomes of entries that no reader will see again: whoever merges tells a sink of each of them.
//!
//! An entry *dies* when a newer one of its key takes its place, when a tombstone has nothing left to hide, or
//! when operands are folded; what they are folded into is a *made* entry. So of any piece of work
//!
//! ```text
//! entries in + entries made = entries out + entries dropped
//! ```
//!
//! holds, and the same for their bytes.
//!
//! **Invariants**
//! - A sink is told of each entry once, with the key and the value that it had.

use crate::{Entry, ValueReference, num::u64_of};

mod references;

pub use references::{ReferenceDrops, SegmentDrops};

/// Is told of each entry that dies, and of each that is made out of such. `()` does not listen, and costs
/// nothing.
pub trait DropSink {
    /// Whether it listens at all.
    const LISTENS: bool = true;

    /// The entry will not be seen again.
    fn dropped(&mut self, entry: &Entry<'_>);
    /// The entry was made of others, which were dropped.
    fn made(&mut self, entry: &Entry<'_>);
}

impl DropSink for () {
    const LISTENS: bool = false;

    #[inline]
    fn dropped(&mut self, _: &Entry<'_>) {}

    #[inline]
    fn made(&mut self, _: &Entry<'_>) {}
}

/// Counts what it is told. Bytes are those of keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// Entries that died.
    pub dropped_entries: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Entries made of such.
    pub made_entries: u64,
    /// Their bytes.
    pub made_bytes: u64,
}

impl DropSink for DropCounts {
    #[inline]
    fn dropped(&mut self, entry: &Entry<'_>) {
        self.dropped_entries += 1;
        self.dropped_bytes += u64_of(entry.user_bytes());
    }

    #[inline]
    fn made(&mut self, entry: &Entry<'_>) {
        self.made_entries += 1;
        self.made_bytes += u64_of(entry.user_bytes());
    }
}

/// Counts what it is told, and keeps what became of references to values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeDrops {
    /// Of all entries.
    pub counts: DropCounts,
    /// Of those with references to value segments.
    pub references: ReferenceDrops,
}

impl MergeDrops {
    /// The entry goes on with the value to which it refers.
    #[inline]
    pub fn note_reference(&mut self, entry: &Entry<'_>) {
        if let Some(reference) = reference_of(entry) {
            self.references.dropped(&reference);
        }
    }
}

/// The reference of an entry to a value of a segment.
#[inline]
fn reference_of(entry: &Entry<'_>) -> Option<ValueReference> {
    // What is damaged is found by who reads it.
    let reference = ValueReference::of(entry.kind, entry.value).ok().flatten();
    reference.filter(|reference| reference.pieces().is_none())
}

impl DropSink for MergeDrops {
    #[inline]
    fn dropped(&mut self, entry: &Entry<'_>) {
        self.counts.dropped(entry);
        self.note_reference(entry);
    }

    #[inline]
    fn made(&mut self, entry: &Entry<'_>) {
        self.counts.made(entry);
        if let Some(reference) = reference_of(entry) {
            self.references.made(&reference);
        }
    }
}

impl std::ops::AddAssign for MergeDrops {
    fn add_assign(&mut self, more: Self) {
        self.counts += more.counts;
        self.references += more.references;
    }
}

impl std::ops::AddAssign for DropCounts {
    fn add_assign(&mut self, more: Self) {
        self.dropped_entries += more.dropped_entries;
        self.dropped_bytes += more.dropped_bytes;
        self.made_entries += more.made_entries;
        self.made_bytes += more.made_bytes;
    }
}
