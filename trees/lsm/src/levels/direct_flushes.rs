//! Whether flushes go past the levels into the bottom, as decided from recent ones (`update/direct.rs`).
//!
//! **Invariants**
//! - It is a hint, in memory only: losing it costs time, never an answer.

/// State of the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DirectFlushes {
    /// The last flush costs less in levels.
    #[default]
    Off,
    /// Recent flushes would have cost less directly, but have not yet saved this many bytes: those that
    /// emptying the levels costs.
    Worth(u64),
    /// Flushes are direct once the levels are empty. The next one waits until they hold at most this many
    /// bytes.
    On(u64),
}

impl DirectFlushes {
    /// Returns the state after a flush of `bytes` for which going directly saves `saved_bytes`.
    /// `emptying_cost`: bytes written to empty the levels, which hold `upper_bytes`.
    pub(crate) fn after(self, bytes: u64, saved_bytes: u64, emptying_cost: u64, upper_bytes: u64) -> Self {
        // Two flushes of bytes leave the levels for each one that comes.
        let on = Self::On(upper_bytes.saturating_sub(bytes));
        match self {
            Self::On(_) => on,
            Self::Off if emptying_cost <= saved_bytes => on,
            Self::Off => Self::Worth(emptying_cost - saved_bytes),
            Self::Worth(left) if left <= saved_bytes => on,
            Self::Worth(left) => Self::Worth(left - saved_bytes),
        }
    }

    /// Bytes that the levels may hold when the next flush comes, if flushes are to be direct.
    pub(crate) fn upper_max(self) -> Option<u64> {
        if let Self::On(upper_max) = self { Some(upper_max) } else { None }
    }
}
