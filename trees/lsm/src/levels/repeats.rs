//! How much of what comes into a sequence repeats keys that it has, as the last moves have shown.
//!
//! Where that is most of it, what a compaction buffer retains becomes obsolete: it takes memory and space
//! from what queries use. Such a sequence is *frozen* (LSbM §4.1): its buffer gets nothing more, until what
//! comes in is mostly new again, or nothing is left in the buffer. Other than in the paper it is frozen only
//! once what came takes as much as the bases below: until then obsolete entries are the smaller part, and
//! without the bases queries would read all anew.
//!
//! **Invariants**
//! - Advice: no answer depends on it. It is stored with the levels, so that an opened tree goes on with it.
//! - A sequence that begins anew is not frozen.

use testudo_sequence::Retained;

/// Keys that came into a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inflow {
    pub(crate) entries: u64,
    /// Of them, those of keys that the sequence had.
    pub(crate) repeated: u64,
}

/// What the last moves into a sequence have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repeats {
    /// Of the last moves, older ones counting less.
    pub(crate) seen: Inflow,
    pub(crate) is_frozen: bool,
}

/// Frozen from so many repeated keys of a hundred on…
const FROZEN_FROM_PERCENT: u64 = 50;
/// …and no more below so many. Between them it stays as it is, so that it does not change all the time.
const THAWED_BELOW_PERCENT: u64 = 35;

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
    /// After a move has brought this; `retained`: before it.
    #[must_use]
    pub(crate) fn after(self, inflow: Inflow, retained: Retained) -> Self {
        debug_assert!(inflow.repeated <= inflow.entries, "only what came in repeats something");
        let Inflow { entries, repeated } = self.seen;
        let Retained { came, bases } = retained;
        // A move counts for half as much two moves later.
        let mut seen = Inflow { entries: entries / 10 * 7, repeated: repeated / 10 * 7 };
        seen.add(inflow);
        let is_frozen = match seen.percent() {
            _ if seen.entries == 0 => self.is_frozen,
            percent if self.is_frozen => percent >= THAWED_BELOW_PERCENT && came + bases > 0,
            percent => percent >= FROZEN_FROM_PERCENT && came > 0 && came >= bases,
        };
        Self { seen, is_frozen }
    }

    /// Whether nothing was seen yet.
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
