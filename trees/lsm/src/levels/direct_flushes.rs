//! Whether flushes go past the levels into the bottom, as decided from recent ones (`update/direct.rs`).
//!
//! **Invariants**
//! - It is a hint, in memory only: losing it costs time, never an answer.

/// Measures of a flush for which going directly costs less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlushSeen {
    pub(crate) bytes: u64,
    /// Bytes that it saves.
    pub(crate) saved: u64,
    /// Bytes that the levels hold.
    pub(crate) upper: u64,
    /// Bytes written to empty the levels now.
    pub(crate) emptying: u64,
}

/// State of the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DirectFlushes {
    /// The last flush costs less in levels.
    #[default]
    Off,
    /// Recent flushes would have cost less directly, but not yet by this much: the cost of emptying the
    /// levels.
    Worth(u64),
    /// Flushes are direct once the levels are empty.
    On {
        /// The next flush waits until the levels hold at most this many bytes.
        upper_max: u64,
        /// The last flush costs less in levels.
        is_doubtful: bool,
    },
}

impl DirectFlushes {
    /// Returns the state after a flush for which going directly costs less.
    pub(crate) fn after_dense(self, flush: FlushSeen) -> Self {
        let FlushSeen { bytes, saved, upper, emptying } = flush;
        let on = |upper_max| Self::On { upper_max, is_doubtful: false };
        // While the levels are being emptied, flushes continue to fill them, but a little less each time.
        let begun = on(upper + bytes * 2);
        match self {
            Self::On { upper_max, .. } => on(upper_max.saturating_sub(bytes / 2)),
            Self::Off if emptying <= saved => begun,
            Self::Off => Self::Worth(emptying - saved),
            Self::Worth(left) if left <= saved => begun,
            Self::Worth(left) => Self::Worth(left - saved),
        }
    }

    /// Returns the state after a flush of `bytes` that costs less in levels. The second one in a row ends
    /// direct flushes.
    pub(crate) fn after_sparse(self, bytes: u64) -> Self {
        match self {
            Self::On { upper_max, is_doubtful: false } => {
                Self::On { upper_max: upper_max + bytes, is_doubtful: true }
            }
            _ => Self::Off,
        }
    }

    /// Bytes that the levels may hold when the next flush comes, if flushes are to be direct.
    pub(crate) fn upper_max(self) -> Option<u64> {
        if let Self::On { upper_max, .. } = self { Some(upper_max) } else { None }
    }
}

#[cfg(test)]
mod tests;
