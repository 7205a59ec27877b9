//! The governor of write memory: the share of the budget that write buffers may use, determined by the
//! marginal saving of a byte on either side. Pure arithmetic over counts; decision 0039 has its derivation.
//!
//! Doubling the flush distance saves each record about half a rewrite
//! ([`testudo_contract::Update::rewrites_per_doubling`]), so one more byte of write memory `W` saves
//! `written · rewrites / (W · ln 2)` bytes of merging. It also saves flushes. Each of the `K` keyspaces
//! being written uses a fixed `B` bytes of `W` (`BUFFER_BYTES`). The rest of `W` is flushed by one flush
//! per keyspace, each of which writes a fixed `F` bytes (`FLUSH_BYTES`).
//! The caches count the device reads that `G` more bytes would have avoided, so one more byte saves them
//! `missed / G` reads. With `w = W − K · B` both sides are equal where
//!
//! `written · (rewrites / (w · ln 2) + K · F / w²) = missed · READ_BYTES / G`
//!
//! If more memory would have avoided no read, write buffers get their maximum. If nothing was written, they
//! get their minimum, so that their contents are flushed when readers need the memory.
//!
//! **Invariants**
//! - The share stays within `LEAST` and `MOST` of the budget.
//! - There is no decision without evidence: while there are neither writes nor misses the share does not
//!   change.

use std::f64::consts::LN_2;

use testudo_base::planted;

/// Minimum and maximum share of write buffers. Below an eighth a flush costs more than it merges; above three
/// quarters nothing is left for indexes and filters.
const LEAST: f64 = 0.125;
const MOST: f64 = 0.75;
/// Number of merged bytes that cost as much as a page read: about 60 µs against 4 ns per byte.
const READ_BYTES: f64 = 16384.0;
/// Fixed bytes of a non-empty write buffer, and fixed bytes that its flush writes: partly filled pages,
/// index, filter, footer, nodes, and the same again when they are merged.
const BUFFER_BYTES: f64 = 3072.0;
const FLUSH_BYTES: f64 = 32768.0;
/// Evidence for a decision: this fraction of the budget was written, or missed. A miss counts as many bytes
/// as the border between pages and records moves for one read.
const PART_OF_EVIDENCE: u64 = 64;
const BYTES_OF_A_MISS: u64 = 8 << 10;
/// Earlier evidence counts this much at each decision: workloads change.
const EVIDENCE_KEPT: f64 = 0.5;
/// A decision moves this part of the way: momentary evidence may mislead.
const STEP: f64 = 0.5;
/// Changes below this fraction of the budget are not made.
const LEAST_CHANGE: f64 = 1.0 / 32.0;

/// Counters since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes that users wrote.
    pub written: u64,
    /// Device reads for pages, and for records, that had been evicted recently.
    pub missed_pages: u64,
    pub missed_records: u64,
}

impl Counted {
    /// Reads since `before` that more memory for either cache would have avoided.
    fn missed_since(&self, before: &Self) -> u64 {
        let pages = self.missed_pages.saturating_sub(before.missed_pages);
        pages.max(self.missed_records.saturating_sub(before.missed_records))
    }
}

/// Further inputs of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// The budget.
    pub total: u64,
    /// Current share of the write buffers.
    pub share: f64,
    /// Additional bytes that would have avoided a missed read.
    pub ghost_bytes: u64,
    /// Inputs from trees and buffers.
    pub writing: Writing,
}

/// Inputs of the cost of writing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writing {
    /// Rewrites saved per record by doubling the flush distance.
    pub rewrites: f64,
    /// Effective number of keyspaces that share the write buffers, as if in equal parts.
    pub keyspaces: f64,
}

/// The last decision and its reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decision {
    /// Changes so far.
    pub changes: u64,
    /// Wanted share of the write buffers.
    pub wanted: f64,
    /// Evidence: bytes written and reads missed, halved at each decision before new counts are added.
    pub written: f64,
    pub missed: f64,
}

/// The governor and the evidence it has seen.
#[derive(Debug, Default)]
pub struct Governor {
    seen: Counted,
    last: Decision,
}

impl Governor {
    pub fn last(&self) -> Decision {
        self.last
    }

    /// Discards the evidence of earlier decisions and counts from `now` on.
    pub fn begin_anew(&mut self, now: Counted) {
        let changes = self.last.changes;
        *self = Self { seen: now, last: Decision { changes, ..Decision::default() } };
    }

    /// Whether there is enough new evidence for another decision, under a budget of `total`.
    pub fn has_evidence(&self, now: Counted, total: u64) -> bool {
        let written = now.written.saturating_sub(self.seen.written);
        let missed = now.missed_since(&self.seen).saturating_mul(BYTES_OF_A_MISS);
        written.max(missed) >= (total / PART_OF_EVIDENCE).max(1)
    }

    /// The new share of the write buffers, if it should change.
    pub fn decide(&mut self, now: Counted, conditions: &Conditions) -> Option<f64> {
        if !self.has_evidence(now, conditions.total) {
            return None;
        }
        debug_assert!(conditions.total > 0, "the budget was checked");
        debug_assert!((0.0..1.0).contains(&conditions.share), "a share of the budget");
        let written = now.written.saturating_sub(self.seen.written);
        let missed = now.missed_since(&self.seen);
        self.seen = now;
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let (written, missed) = (written as f64, missed as f64);
        self.last.written = self.last.written * EVIDENCE_KEPT + written;
        self.last.missed = self.last.missed * EVIDENCE_KEPT + missed;
        self.last.wanted = wanted(&self.last, conditions);
        debug_assert!(!self.last.wanted.is_nan(), "without evidence the present share is wanted");
        let distance = self.last.wanted - conditions.share;
        if distance.abs() < LEAST_CHANGE || planted!("write-memory-never-moves") {
            return None;
        }
        self.last.changes += 1;
        // A step must not be smaller than the least change.
        let step = if distance.abs() * STEP < LEAST_CHANGE { distance } else { distance * STEP };
        Some((conditions.share + step).clamp(LEAST, MOST))
    }
}

/// The share at which a byte is worth the same on either side.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn wanted(evidence: &Decision, conditions: &Conditions) -> f64 {
    let Writing { rewrites, keyspaces } = conditions.writing;
    // w is the root of w² - slope · w - flushes.
    let worth = evidence.written * conditions.ghost_bytes as f64 / (evidence.missed * READ_BYTES);
    let slope = worth * rewrites / LN_2;
    let flushes = worth * keyspaces * FLUSH_BYTES;
    let beyond = slope / 2.0 + (slope * slope / 4.0 + flushes).sqrt();
    let bytes = if evidence.written > 0.0 { keyspaces * BUFFER_BYTES + beyond } else { beyond };
    // Nothing missed: infinite, or NaN if nothing was written either.
    let share = bytes / conditions.total as f64;
    if share.is_nan() { conditions.share } else { share.clamp(LEAST, MOST) }
}

#[cfg(test)]
mod tests;
