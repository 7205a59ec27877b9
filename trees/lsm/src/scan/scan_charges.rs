//! Charges for sequences above the bottom that scans had to read, which estimate the savings of emptying
//! them.
//!
//! A point query skips most sequences by their filters; a scan reads a page of every one with data in the
//! part where it begins. Each such read is charged with the bytes of a page. Once the charges reach the bytes
//! that the next move down would write, a job does that move. It deducts
//! its cost when it begins. So a write-only tree keeps
//! its levels, and a scanned one does without them, at no more than twice the cost of its scans.
//!
//! **Invariants**
//! - Charges are hints: losing them costs time, never an answer.

use std::sync::Arc;

use testudo_base::{
    PAGE_BYTES,
    num::u64_of,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

/// Charges of a tree, shared by all of its states.
#[derive(Debug, Default)]
pub(crate) struct ScanCharges {
    bytes: AtomicU64,
    /// Something was charged since the last check.
    is_charged: AtomicBool,
}

impl ScanCharges {
    /// Charges a scan that read `sequences` above the bottom.
    pub(crate) fn charge(&self, sequences: usize) {
        if sequences == 0 {
            return;
        }
        self.bytes.fetch_add(u64_of(sequences) * PAGE_BYTES, Relaxed);
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
pub(crate) struct ScanPayment {
    charges: Arc<ScanCharges>,
    bytes: u64,
}

impl ScanPayment {
    /// Deducts the cost of a move.
    pub(crate) fn of(charges: &Arc<ScanCharges>, bytes: u64) -> Self {
        Self { charges: Arc::clone(charges), bytes: charges.deduct(bytes) }
    }

    /// The move is installed.
    pub(crate) fn spend(mut self) {
        self.bytes = 0;
    }
}

impl Drop for ScanPayment {
    fn drop(&mut self) {
        self.charges.bytes.fetch_add(self.bytes, Relaxed);
    }
}
