//! Accounting for entries that no reader will see again: each merge reports them to a sink.
//!
//! An entry is *dropped* when a newer one of its key replaces it, when a tombstone has nothing left to hide,
//! or when operands are folded. The result of folding is a *made* entry. So for any step of work
//!
//! ```text
//! entries in + entries made = entries out + entries dropped
//! ```
//!
//! holds, and the same for their bytes.
//!
//! **Invariants**
//! - A sink receives each entry once, with its key and value.

use crate::{Entry, ValueReference, num::u64_of};

mod references;

pub use references::{ReferenceDrops, SegmentDrops};

/// Receives each entry that is dropped, and each entry made from such. `()` ignores them at no cost.
pub trait DropSink {
    /// Whether the sink uses the calls at all.
    const LISTENS: bool = true;

    /// Called for an entry that will not be seen again.
    fn dropped(&mut self, entry: &Entry<'_>);
    /// Called for an entry made from others, which were dropped.
    fn made(&mut self, entry: &Entry<'_>);
}

impl DropSink for () {
    const LISTENS: bool = false;

    #[inline]
    fn dropped(&mut self, _: &Entry<'_>) {}

    #[inline]
    fn made(&mut self, _: &Entry<'_>) {}
}

/// Counts the entries reported to it. Bytes are those of keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// Number of dropped entries.
    pub dropped_entries: u64,
    /// Bytes of dropped entries.
    pub dropped_bytes: u64,
    /// Number of entries made from dropped ones.
    pub made_entries: u64,
    /// Bytes of entries made.
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

/// Counts the entries reported to it, and tracks their references to values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeDrops {
    /// Counts over all entries.
    pub counts: DropCounts,
    /// Tracked references to values in value segments.
    pub references: ReferenceDrops,
}

impl MergeDrops {
    /// Records the reference of an entry that continues with the value itself.
    #[inline]
    pub fn note_reference(&mut self, entry: &Entry<'_>) {
        if let Some(reference) = reference_of(entry) {
            self.references.dropped(&reference);
        }
    }
}

/// Returns the reference of an entry to a value in a value segment.
#[inline]
fn reference_of(entry: &Entry<'_>) -> Option<ValueReference> {
    // Damage is reported by the reader of the entry.
    let reference = ValueReference::of(entry.kind, entry.value).ok().flatten();
    reference.filter(|reference| reference.is_in_segment())
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
