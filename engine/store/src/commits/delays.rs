//! Delays of writers, by cause.
//!
//! **Invariants**
//! - Each delay has one cause. The longest delay and its cause are read together.

use std::time::Duration;

use testudo_base::{
    num::low64,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Reason for which a writer was delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum StallCause {
    /// No writer was delayed.
    #[default]
    Nothing,
    /// Write memory filled faster than a flush, or the spilling of buffers that snapshots hold, emptied it.
    Flush,
    /// Write memory was exhausted: the writer waited for the end of a flush.
    Memory,
    /// Its keyspace exceeded its own share of the write memory, or the capacity of a write buffer.
    OwnShare,
    /// A flush of its keyspace waited for background jobs of that keyspace.
    Jobs,
    /// The device wrote the log more slowly than commits filled its buffers.
    Log,
}

impl StallCause {
    const ALL: [Self; 6] = [Self::Nothing, Self::Flush, Self::Memory, Self::OwnShare, Self::Jobs, Self::Log];

    /// The number in the file `status`.
    pub fn code(self) -> u64 {
        self as u64
    }

    /// The name that `testudo stat` shows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Flush => "flush",
            Self::Memory => "memory",
            Self::OwnShare => "own share",
            Self::Jobs => "jobs",
            Self::Log => "log",
        }
    }

    /// The cause with this [`StallCause::code`]; `Nothing` for an unknown code.
    pub fn from_code(code: u64) -> Self {
        Self::ALL.into_iter().find(|cause| cause.code() == code).unwrap_or_default()
    }
}

/// Bits of the code in [`Delays::longest`].
const CODE_BITS: u32 = 8;

/// Delays since the store was opened, except for waits for the log, which counts them itself.
#[derive(Debug, Default)]
pub struct Delays {
    micros: [AtomicU64; StallCause::ALL.len()],
    /// Microseconds of the longest delay, then the code of its cause.
    longest: AtomicU64,
}

impl Delays {
    pub fn record(&self, delay: Duration, cause: StallCause) {
        debug_assert!(cause != StallCause::Nothing, "a delay has a cause");
        let micros = low64(delay.as_micros());
        self.micros[cause as usize].fetch_add(micros, Relaxed);
        self.longest.fetch_max(micros << CODE_BITS | cause.code(), Relaxed);
    }

    /// Microseconds for which writers were delayed by `cause`.
    pub fn micros(&self, cause: StallCause) -> u64 {
        self.micros[cause as usize].load(Relaxed)
    }

    /// Microseconds of all delays.
    pub fn total_micros(&self) -> u64 {
        StallCause::ALL.into_iter().map(|cause| self.micros(cause)).sum()
    }

    /// Microseconds and cause of the longest delay.
    pub fn longest(&self) -> (u64, StallCause) {
        let longest = self.longest.load(Relaxed);
        (longest >> CODE_BITS, StallCause::from_code(longest % (1 << CODE_BITS)))
    }
}

const _: () = assert!(StallCause::ALL.len() < 1 << CODE_BITS, "codes fit");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_delay_names_its_cause() {
        let delays = Delays::default();
        assert_eq!(delays.longest(), (0, StallCause::Nothing));
        delays.record(Duration::from_millis(2), StallCause::Jobs);
        delays.record(Duration::from_millis(7), StallCause::OwnShare);
        delays.record(Duration::from_millis(3), StallCause::Jobs);
        assert_eq!(delays.longest(), (7_000, StallCause::OwnShare));
        assert_eq!((delays.micros(StallCause::Jobs), delays.total_micros()), (5_000, 12_000));
        for cause in StallCause::ALL {
            assert_eq!(StallCause::from_code(cause.code()), cause);
        }
    }
}
