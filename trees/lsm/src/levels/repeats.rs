//! The fraction of repeated keys in the flow into a sequence, as measured by recent moves.
//!
//! If most keys are repeated, the contents of a compaction buffer become obsolete: they take memory and space
//! from data in use. Such a sequence is *frozen* (LSbM §4.1): its buffer gets nothing more, until most
//! incoming keys are new again, or the buffer is empty. Unlike in the paper, it is frozen only once the
//! incoming sections are as large as the bases below. Until then obsolete entries are the smaller part, and
//! without the bases queries would have to reread everything.
//!
//! **Invariants**
//! - A hint: no answer depends on it. It is stored with the levels, and survives reopening.
//! - A sequence that starts again from empty is not frozen.

use testudo_sequence::Retained;

/// Counts of keys that came into a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inflow {
    pub(crate) entries: u64,
    /// Those of keys that the sequence already had.
    pub(crate) repeated: u64,
}

/// Measurements of recent moves into a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repeats {
    /// Counts of recent moves, with decaying weights.
    pub(crate) seen: Inflow,
    pub(crate) is_frozen: bool,
}

/// Percentage of repeated keys from which a sequence is frozen…
const FROZEN_FROM_PERCENT: u64 = 50;
/// …and below which it is thawed. In between it keeps its state, as hysteresis.
const THAWED_BELOW_PERCENT: u64 = 35;

/// Tenths of its weight that a move keeps at the next one: the weight is halved after two more moves.
const KEPT_TENTHS: u64 = 7;

impl Inflow {
    pub(crate) fn add(&mut self, more: Self) {
        self.entries += more.entries;
        self.repeated += more.repeated;
    }

    fn percent(self) -> u64 {
        self.repeated * 100 / self.entries.max(1)
    }
}

impl Repeats {
    /// Returns the state after a move with `inflow`; `retained`: bytes retained before it.
    #[must_use]
    pub(crate) fn after(self, inflow: Inflow, retained: Retained) -> Self {
        debug_assert!(inflow.repeated <= inflow.entries, "only incoming keys repeat others");
        let Inflow { entries, repeated } = self.seen;
        let Retained { came, bases } = retained;
        let rest = |count: u64| count / 10 * KEPT_TENTHS;
        let mut seen = Inflow { entries: rest(entries), repeated: rest(repeated) };
        seen.add(inflow);
        debug_assert!(seen.repeated <= seen.entries, "repeated keys are among those counted");
        let is_frozen = match seen.percent() {
            _ if seen.entries == 0 => self.is_frozen,
            percent if self.is_frozen => percent >= THAWED_BELOW_PERCENT && came + bases > 0,
            percent => percent >= FROZEN_FROM_PERCENT && came > 0 && came >= bases,
        };
        Self { seen, is_frozen }
    }

    /// Whether nothing was measured yet.
    pub(crate) fn is_new(self) -> bool {
        self == Self::default()
    }

    /// Whether the buffer of the sequence gets nothing more.
    pub(crate) fn is_frozen(self) -> bool {
        self.is_frozen
    }
}

#[cfg(test)]
mod tests;
