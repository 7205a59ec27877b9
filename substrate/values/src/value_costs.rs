//! What it costs a keyspace to have values of large pairs outside its runs, and what it would cost to have
//! them beside their keys (decision 0053).
//!
//! Costs are bytes: of reading and writing them one after the other, or as many as take the device as long as
//! a read somewhere else. Whoever does the work counts it for the way that it is, and what the same work
//! would have cost the other way.
//!
//! **Invariants**
//! - What is left of one side is what it has cost more than the other since the two were last even: who was
//!   ahead gets no credit for later.

use testudo_base::sync::{
    Arc,
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

/// A read of a value somewhere else takes as long as reading or writing so many bytes on the way: about
/// 60 µs against 4 ns a byte.
const READ_BYTES: u64 = 16 << 10;
/// A merge reads and writes what it moves.
const MERGE_BYTES: u64 = 2;

/// Where a keyspace has the values of its large pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LargeValues {
    /// In value segments.
    #[default]
    Outside,
    /// Beside their keys, where the thresholds have moved so.
    WithKeys,
}

/// The costs of both ways.
#[derive(Debug, Default)]
pub struct ValueCosts {
    outside: AtomicU64,
    with_keys: AtomicU64,
    strays: AtomicU64,
    /// How many want no values to come back for the moment.
    pauses: AtomicU64,
}

/// While it lives, no values come back to their keys.
#[derive(Debug)]
pub struct Paused(Arc<ValueCosts>);

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.pauses.fetch_sub(1, AcqRel);
    }
}

/// Takes off what was seen, or as much as others have left of it. What they count meanwhile stays.
fn take_off(sum: &AtomicU64, seen: u64) {
    let _ = sum.fetch_update(AcqRel, Acquire, |sum| Some(sum.saturating_sub(seen)));
}

impl ValueCosts {
    /// Where the present way has already cost so much more than the other one.
    pub fn beginning_at(present: LargeValues, excess: u64) -> Self {
        let costs = Self::default();
        match present {
            LargeValues::Outside => costs.outside.store(excess, Relaxed),
            LargeValues::WithKeys => costs.with_keys.store(excess, Relaxed),
        }
        costs
    }

    /// Scans have read values in so many places of the device, or would have.
    pub fn note_reads(&self, reads: u64) {
        self.outside.fetch_add(reads * READ_BYTES, Relaxed);
    }

    /// The same of values that are still outside although they should be with their keys.
    pub fn note_stray_reads(&self, reads: u64) {
        self.strays.fetch_add(reads * READ_BYTES, Relaxed);
    }

    /// What scans have paid for such.
    pub fn of_strays(&self) -> u64 {
        self.strays.load(Acquire)
    }

    /// So many bytes of values outside were moved for the sake of space.
    pub fn note_rewritten(&self, bytes: u64) {
        self.outside.fetch_add(bytes * MERGE_BYTES, Relaxed);
    }

    /// Merges have moved so many bytes of values with their keys, or would have.
    pub fn note_merged(&self, bytes: u64) {
        self.with_keys.fetch_add(bytes * MERGE_BYTES, Relaxed);
    }

    /// What having them where they are has cost more than the other way.
    pub fn excess(&self, present: LargeValues) -> u64 {
        let (outside, with_keys) = (self.outside.load(Acquire), self.with_keys.load(Acquire));
        match present {
            LargeValues::Outside => outside.saturating_sub(with_keys),
            LargeValues::WithKeys => with_keys.saturating_sub(outside),
        }
    }

    /// The same, and forgets on both sides what evens out.
    pub fn settle(&self, present: LargeValues) -> u64 {
        let (outside, with_keys) = (self.outside.load(Acquire), self.with_keys.load(Acquire));
        let (paid, spared) = match present {
            LargeValues::Outside => (outside, with_keys),
            LargeValues::WithKeys => (with_keys, outside),
        };
        let excess = paid.saturating_sub(spared);
        let settled = |side: LargeValues, seen: u64| if side == present { seen - excess } else { seen };
        take_off(&self.outside, settled(LargeValues::Outside, outside));
        take_off(&self.with_keys, settled(LargeValues::WithKeys, with_keys));
        excess
    }

    /// Both ways begin anew: what was counted says nothing of what comes.
    pub fn forget(&self) {
        for sum in [&self.outside, &self.with_keys, &self.strays] {
            sum.store(0, Release);
        }
    }

    /// Until what is returned is dropped, no values come back to their keys.
    pub fn pause(self: &Arc<Self>) -> Paused {
        self.pauses.fetch_add(1, AcqRel);
        Paused(Arc::clone(self))
    }

    /// Whether somebody has asked for that.
    pub fn is_paused(&self) -> bool {
        self.pauses.load(Acquire) > 0
    }

    /// What it costs to bring values back to their keys: so many of so many bytes, each in a place of its own
    /// if they are `scattered`.
    pub fn of_moving(values: u64, bytes: u64, scattered: bool) -> u64 {
        let reads = if scattered { values.saturating_mul(READ_BYTES) } else { 0 };
        reads.saturating_add(bytes.saturating_mul(MERGE_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spared_before_is_no_credit() {
        let costs = ValueCosts::default();
        costs.note_merged(1 << 30);
        assert_eq!(costs.settle(LargeValues::Outside), 0);
        costs.note_reads(2);
        assert_eq!(costs.settle(LargeValues::Outside), 2 * READ_BYTES);
        costs.note_reads(1);
        costs.note_merged(READ_BYTES / 2);
        assert_eq!(costs.settle(LargeValues::Outside), 2 * READ_BYTES);
        assert_eq!(costs.settle(LargeValues::WithKeys), 0);
        costs.note_merged(100);
        assert_eq!(costs.settle(LargeValues::WithKeys), 200);
        assert_eq!(costs.excess(LargeValues::WithKeys), 200);
        assert_eq!(ValueCosts::beginning_at(LargeValues::WithKeys, 7).settle(LargeValues::WithKeys), 7);
        assert_eq!(ValueCosts::beginning_at(LargeValues::Outside, 7).settle(LargeValues::Outside), 7);
        costs.note_rewritten(300);
        assert_eq!(costs.settle(LargeValues::WithKeys), 0);
        assert_eq!(costs.settle(LargeValues::Outside), 0);
    }

    #[test]
    fn scattered_values_cost_a_read_each() {
        assert_eq!(ValueCosts::of_moving(3, 1000, false), 2000);
        assert_eq!(ValueCosts::of_moving(3, 1000, true), 2000 + 3 * READ_BYTES);
    }
}
