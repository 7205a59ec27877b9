//! Charges for sequences above the bottom that reads had to search, which estimate the savings of emptying
//! them.
//!
//! A scan reads a page of every sequence with data in the part where it begins. A point read skips most
//! sequences by their filters; it pays for one that does not have the key if a page was read for it, or if
//! the filter did not exclude the key. Each sequence of a scan, and each page that a point read reads, is
//! charged with the bytes of a page. Once the charges reach the bytes that the next move down would write, a
//! job does that move. It deducts its cost when it begins. So a write-only tree keeps its levels, and one
//! that is read does without them, at no more than twice the cost of its reads.
//!
//! **Invariants**
//! - Charges are hints: losing them costs time, never an answer.

use std::sync::Arc;

use testudo_base::{
    PAGE_BYTES,
    num::u64_of,
    planted,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

/// Charge of a point read for a sequence without its key, if all pages were cached: a sixteenth of a page, as
/// in Bε-trees.
const CACHED_BYTES: u64 = PAGE_BYTES / 16;

/// Charges of a tree, shared by all of its states.
#[derive(Debug, Default)]
pub(crate) struct ReadCharges {
    bytes: AtomicU64,
    /// Something was charged since the last check.
    is_charged: AtomicBool,
}

impl ReadCharges {
    /// Charges a scan that read `sequences` above the bottom.
    pub(crate) fn charge(&self, sequences: usize) {
        if sequences > 0 {
            self.charge_bytes(u64_of(sequences) * PAGE_BYTES);
        }
    }

    /// Charges a point read for a sequence above the bottom that does not have its key. `reads`: pages that
    /// were not cached.
    #[cold]
    pub(crate) fn charge_probe(&self, reads: u32) {
        if !planted!("probes-not-charged") {
            self.charge_bytes(if reads == 0 { CACHED_BYTES } else { u64::from(reads) * PAGE_BYTES });
        }
    }

    fn charge_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.note();
    }

    /// Notes that something has become due.
    pub(crate) fn note(&self) {
        if !self.is_charged.load(Relaxed) {
            self.is_charged.store(true, Relaxed);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Deducts at most `bytes`; returns the bytes deducted.
    fn deduct(&self, bytes: u64) -> u64 {
        let deducted =
            self.bytes.fetch_update(Relaxed, Relaxed, |charged| Some(charged.saturating_sub(bytes)));
        deducted.unwrap_or_default().min(bytes)
    }

    /// Whether anything was charged since the last call.
    pub(crate) fn take_note(&self) -> bool {
        self.is_charged.load(Relaxed) && self.is_charged.swap(false, Relaxed)
    }
}

/// Charges deducted for a move in progress: they do not pay for another one at the same time. They are
/// returned if the move is dropped.
#[derive(Debug)]
pub(crate) struct ReadPayment {
    charges: Arc<ReadCharges>,
    bytes: u64,
}

impl ReadPayment {
    /// Deducts the cost of a move.
    pub(crate) fn of(charges: &Arc<ReadCharges>, bytes: u64) -> Self {
        Self { charges: Arc::clone(charges), bytes: charges.deduct(bytes) }
    }

    /// The move is installed.
    pub(crate) fn spend(mut self) {
        self.bytes = 0;
    }
}

impl Drop for ReadPayment {
    fn drop(&mut self) {
        self.charges.bytes.fetch_add(self.bytes, Relaxed);
    }
}
