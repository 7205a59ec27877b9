//! The governor of write memory: how much of the budget write buffers may take, decided by what the next byte
//! saves on either side. Pure arithmetic over counts; decision 0039 has its derivation.
//!
//! A doubling of the flush distance spares each record about half a rewrite
//! ([`testudo_contract::Update::rewrites_per_doubling`]), so a byte more of write memory `W` saves
//! `written · rewrites / (W · ln 2)` bytes of merging. It also saves flushes: each of `K` keyspaces that
//! are written to takes `B` bytes of `W` whatever it has ([`BUFFER_BYTES`]), and what is left of `W` is
//! flushed by as many flushes as there are keyspaces, each of which writes `F` bytes whatever it has
//! ([`FLUSH_BYTES`]).
//! The caches know which of their reads of the device they would not have made with `G` more bytes, so a byte
//! more saves them `missed / G` of those. With `w = W − K · B` both are worth the same where
//!
//! `written · (rewrites / (w · ln 2) + K · F / w²) = missed · READ_BYTES / G`
//!
//! No read that more memory would have saved: all that write buffers may have. Nothing written: the least
//! they may have, so that what is left in them is flushed when readers need its memory.
//!
//! **Invariants**
//! - The share stays within [`LEAST`] and [`MOST`] of the budget.
//! - Nothing is decided without evidence: as long as nobody writes or misses anything the share stays.

use std::f64::consts::LN_2;

use testudo_base::planted;

/// Least and most of the budget that write buffers get. Below an eighth a flush costs more than what it
/// merges; beyond three quarters nothing is left for indexes and filters.
const LEAST: f64 = 0.125;
const MOST: f64 = 0.75;
/// A read of a page costs as much as merging so many bytes: about 60 µs against 4 ns a byte.
const READ_BYTES: f64 = 16384.0;
/// What a write buffer takes as soon as it has something, and what a flush of one writes whatever it has:
/// pages that are not full, index, filter, footer, nodes, and the same again when that is merged.
const BUFFER_BYTES: f64 = 5120.0;
const FLUSH_BYTES: f64 = 32768.0;
/// Evidence for a decision: this part of the budget was written, or missed by as many bytes as the border
/// between pages and records moves for one read.
const PART_OF_EVIDENCE: u64 = 64;
const BYTES_OF_A_MISS: u64 = 8 << 10;
/// Smaller differences than this part of the budget are not worth a change.
const LEAST_CHANGE: f64 = 1.0 / 32.0;

/// What was counted since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes that users wrote.
    pub written: u64,
    /// Reads of the device for pages, and for records, that were evicted a short while ago.
    pub missed_pages: u64,
    pub missed_records: u64,
}

impl Counted {
    /// Reads that more memory for either cache would have saved since `before`.
    fn missed_since(&self, before: &Self) -> u64 {
        let pages = self.missed_pages.saturating_sub(before.missed_pages);
        pages.max(self.missed_records.saturating_sub(before.missed_records))
    }
}

/// What the decision depends on besides.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// The budget.
    pub total: u64,
    /// The part of it that write buffers have.
    pub share: f64,
    /// How many more bytes would have saved a missed read.
    pub ghost_bytes: u64,
    /// What trees and buffers say.
    pub writing: Writing,
}

/// What the cost of writing depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writing {
    /// Rewrites that a doubling of the flush distance spares each record.
    pub rewrites: f64,
    /// How many keyspaces share the write buffers, if all had as much of them.
    pub keyspaces: f64,
}

/// The last decision and its reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decision {
    /// Changes so far.
    pub changes: u64,
    /// What write buffers should have, of the budget.
    pub wanted: f64,
    /// Bytes written and reads missed that say so: half of those before, and the newest.
    pub written: f64,
    pub missed: f64,
}

/// Remembers what it has seen.
#[derive(Debug, Default)]
pub struct Governor {
    seen: Counted,
    last: Decision,
}

impl Governor {
    pub fn last(&self) -> Decision {
        self.last
    }

    /// Forgets what led to earlier decisions: what comes counts from now on.
    pub fn begin_anew(&mut self, now: Counted) {
        let changes = self.last.changes;
        *self = Self { seen: now, last: Decision { changes, ..Decision::default() } };
    }

    /// Whether enough has happened since the last decision for another one, under a budget of `total`.
    pub fn has_evidence(&self, now: Counted, total: u64) -> bool {
        let written = now.written.saturating_sub(self.seen.written);
        let missed = now.missed_since(&self.seen).saturating_mul(BYTES_OF_A_MISS);
        written.max(missed) >= (total / PART_OF_EVIDENCE).max(1)
    }

    /// The share that write buffers should have from now on, if it should change.
    pub fn decide(&mut self, now: Counted, conditions: &Conditions) -> Option<f64> {
        if !self.has_evidence(now, conditions.total) {
            return None;
        }
        let written = now.written.saturating_sub(self.seen.written);
        let missed = now.missed_since(&self.seen);
        self.seen = now;
        #[expect(clippy::cast_precision_loss, reason = "estimates")]
        let (written, missed) = (written as f64, missed as f64);
        self.last.written = self.last.written / 2.0 + written;
        self.last.missed = self.last.missed / 2.0 + missed;
        self.last.wanted = wanted(&self.last, conditions);
        let distance = self.last.wanted - conditions.share;
        if distance.abs() < LEAST_CHANGE || planted!("write-memory-never-moves") {
            return None;
        }
        self.last.changes += 1;
        // Half of the way: evidence of a moment may mislead.
        let step = if distance.abs() < 2.0 * LEAST_CHANGE { distance } else { distance / 2.0 };
        Some((conditions.share + step).clamp(LEAST, MOST))
    }
}

/// Where a byte is worth the same on either side, of the budget.
#[expect(clippy::cast_precision_loss, reason = "estimates")]
fn wanted(evidence: &Decision, conditions: &Conditions) -> f64 {
    let Writing { rewrites, keyspaces } = conditions.writing;
    // w is the root of w² - slope · w - flushes.
    let worth = evidence.written * conditions.ghost_bytes as f64 / (evidence.missed * READ_BYTES);
    let slope = worth * rewrites / LN_2;
    let flushes = worth * keyspaces * FLUSH_BYTES;
    let beyond = slope / 2.0 + (slope * slope / 4.0 + flushes).sqrt();
    let bytes = if evidence.written > 0.0 { keyspaces * BUFFER_BYTES + beyond } else { beyond };
    // Nothing missed: infinite, or no number if nothing was written either.
    let share = bytes / conditions.total as f64;
    if share.is_nan() { conditions.share } else { share.clamp(LEAST, MOST) }
}

#[cfg(test)]
mod tests;
