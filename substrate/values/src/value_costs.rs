//! Measured costs of separating large values from their keys, and of storing them with their
//! keys (decision 0053).
//!
//! Costs are in bytes of sequential I/O; a random read counts as the bytes that take the same device time.
//! Each operation adds its own cost, and an estimate of the same operation's cost with the other layout.
//!
//! **Invariants**
//! - The balance of a layout is its excess cost since the two were last even: past savings are not credited.

use testudo_base::sync::{
    Arc,
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

/// Cost of a random read in bytes of sequential I/O: about 60 µs at 4 ns a byte.
const READ_BYTES: u64 = 16 << 10;
/// Cost per merged byte: it is read and written.
const MERGE_BYTES: u64 = 2;

/// Where a keyspace stores large values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LargeValues {
    /// In value segments.
    #[default]
    Separated,
    /// With their keys, after the thresholds have moved.
    WithKeys,
}

/// Accumulated costs of both layouts.
#[derive(Debug, Default)]
pub struct ValueCosts {
    separated: AtomicU64,
    with_keys: AtomicU64,
    strays: AtomicU64,
    /// Number of holders that pause the return of values.
    pauses: AtomicU64,
}

/// While held, no values return to their keys.
#[derive(Debug)]
pub struct Paused(Arc<ValueCosts>);

impl Drop for Paused {
    fn drop(&mut self) {
        let before = self.0.pauses.fetch_sub(1, AcqRel);
        debug_assert!(before > 0, "this pause was counted");
    }
}

/// Subtracts `seen`, saturating. Concurrent additions are kept.
fn take_off(sum: &AtomicU64, seen: u64) {
    let _ = sum.fetch_update(AcqRel, Acquire, |sum| Some(sum.saturating_sub(seen)));
}

impl ValueCosts {
    /// Creates the costs of a layout whose balance is already `excess`.
    pub fn beginning_at(present: LargeValues, excess: u64) -> Self {
        let costs = Self::default();
        match present {
            LargeValues::Separated => costs.separated.store(excess, Relaxed),
            LargeValues::WithKeys => costs.with_keys.store(excess, Relaxed),
        }
        costs
    }

    /// Records random reads of separated values by scans, actual or estimated.
    pub fn note_reads(&self, reads: u64) {
        self.separated.fetch_add(reads * READ_BYTES, Relaxed);
    }

    /// Records reads of values that are still separated although they belong with their keys.
    pub fn note_stray_reads(&self, reads: u64) {
        self.strays.fetch_add(reads * READ_BYTES, Relaxed);
    }

    /// Cost of stray reads.
    pub fn of_strays(&self) -> u64 {
        self.strays.load(Acquire)
    }

    /// Records bytes of separated values that were rewritten to reclaim space.
    pub fn note_rewritten(&self, bytes: u64) {
        self.separated.fetch_add(bytes * MERGE_BYTES, Relaxed);
    }

    /// Records bytes of values merged with their keys, actual or estimated.
    pub fn note_merged(&self, bytes: u64) {
        self.with_keys.fetch_add(bytes * MERGE_BYTES, Relaxed);
    }

    /// Excess cost of the present layout over the other one.
    pub fn excess(&self, present: LargeValues) -> u64 {
        let (separated, with_keys) = (self.separated.load(Acquire), self.with_keys.load(Acquire));
        match present {
            LargeValues::Separated => separated.saturating_sub(with_keys),
            LargeValues::WithKeys => with_keys.saturating_sub(separated),
        }
    }

    /// Like [`ValueCosts::excess`], and subtracts the balanced part from both sides.
    pub fn settle(&self, present: LargeValues) -> u64 {
        let (separated, with_keys) = (self.separated.load(Acquire), self.with_keys.load(Acquire));
        let (paid, spared) = match present {
            LargeValues::Separated => (separated, with_keys),
            LargeValues::WithKeys => (with_keys, separated),
        };
        let excess = paid.saturating_sub(spared);
        debug_assert!(excess <= paid, "the excess is a part of the paid costs");
        let settled = |side: LargeValues, seen: u64| if side == present { seen - excess } else { seen };
        take_off(&self.separated, settled(LargeValues::Separated, separated));
        take_off(&self.with_keys, settled(LargeValues::WithKeys, with_keys));
        excess
    }

    /// Resets all costs, when past measurements no longer apply.
    pub fn forget(&self) {
        for sum in [&self.separated, &self.with_keys, &self.strays] {
            sum.store(0, Release);
        }
    }

    /// Pauses the return of values to their keys until the result is dropped.
    pub fn pause(self: &Arc<Self>) -> Paused {
        self.pauses.fetch_add(1, AcqRel);
        Paused(Arc::clone(self))
    }

    /// Whether any pause is held.
    pub fn is_paused(&self) -> bool {
        self.pauses.load(Acquire) > 0
    }

    /// Cost of moving `values` values of `bytes` in total to their keys, with a random read for each if they
    /// are `scattered`.
    pub fn of_moving(values: u64, bytes: u64, scattered: bool) -> u64 {
        let reads = if scattered { values.saturating_mul(READ_BYTES) } else { 0 };
        reads.saturating_add(bytes.saturating_mul(MERGE_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_savings_are_not_credited() {
        let costs = ValueCosts::default();
        costs.note_merged(1 << 30);
        assert_eq!(costs.settle(LargeValues::Separated), 0);
        costs.note_reads(2);
        assert_eq!(costs.settle(LargeValues::Separated), 2 * READ_BYTES);
        costs.note_reads(1);
        costs.note_merged(READ_BYTES / 2);
        assert_eq!(costs.settle(LargeValues::Separated), 2 * READ_BYTES);
        assert_eq!(costs.settle(LargeValues::WithKeys), 0);
        costs.note_merged(100);
        assert_eq!(costs.settle(LargeValues::WithKeys), 200);
        assert_eq!(costs.excess(LargeValues::WithKeys), 200);
        assert_eq!(ValueCosts::beginning_at(LargeValues::WithKeys, 7).settle(LargeValues::WithKeys), 7);
        assert_eq!(ValueCosts::beginning_at(LargeValues::Separated, 7).settle(LargeValues::Separated), 7);
        costs.note_rewritten(300);
        assert_eq!(costs.settle(LargeValues::WithKeys), 0);
        assert_eq!(costs.settle(LargeValues::Separated), 0);
    }

    #[test]
    fn scattered_values_cost_a_read_each() {
        assert_eq!(ValueCosts::of_moving(3, 1000, false), 2000);
        assert_eq!(ValueCosts::of_moving(3, 1000, true), 2000 + 3 * READ_BYTES);
    }
}
