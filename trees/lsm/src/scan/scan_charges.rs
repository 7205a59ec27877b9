//! How often scans had to look into sequences above the bottom, and so what emptying those would save.
//!
//! A point query is spared most sequences by their filters; a scan reads a page of every one that holds
//! anything for the part where it begins. Each such look is charged, as the bytes of a page. Whenever the
//! charges amount to what the next move down would write, that is done, as a job, and paid from them. So a
//! tree that is only written keeps its levels, and one that is scanned does without, at no more than twice
//! what scans spend anyway.
//!
//! **Invariants**
//! - Charges are advice: losing them costs time, never an answer.

use testudo_base::{
    PAGE_BYTES,
    num::u64_of,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

/// Charges of a tree, whatever state it is in.
#[derive(Debug, Default)]
pub(crate) struct ScanCharges {
    bytes: AtomicU64,
    /// Something was charged since somebody asked.
    is_charged: AtomicBool,
}

impl ScanCharges {
    /// A scan looked into so many sequences above the bottom.
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

    /// Takes what a move has cost.
    pub(crate) fn pay(&self, bytes: u64) {
        let _ = self.bytes.fetch_update(Relaxed, Relaxed, |charged| Some(charged.saturating_sub(bytes)));
    }

    /// Whether anything was charged since the last time.
    pub(crate) fn take_note(&self) -> bool {
        self.is_charged.load(Relaxed) && self.is_charged.swap(false, Relaxed)
    }
}
