//! Work of one thread, and the latency of each of its steps.
//!
//! **Invariants**
//! - `operations` counts operations; a histogram counts steps, and a batch is one step.

use std::time::Duration;

use testudo::Error;

use crate::report::histogram::Histogram;

/// Kinds of operations that are measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Read,
    Write,
    Scan,
    ReadModifyWrite,
}

impl Class {
    pub(crate) const ALL: [(Self, &str); 4] = [
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Scan, "scan"),
        (Self::ReadModifyWrite, "read_modify_write"),
    ];
}

/// Work of a thread.
pub(crate) struct Tally {
    /// With --rate, from the time at which an operation was due, or its thread woke up for it.
    pub(crate) latency: [Histogram; Class::ALL.len()],
    /// With --rate: latency of the calls alone.
    pub(crate) calls: Histogram,
    pub(crate) operations: u64,
    /// Keys looked up plus entries scanned.
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) longest_gap: Duration,
    pub(crate) ended: Duration,
    /// Entries of the first pass of a full scan, if it was completed.
    pub(crate) first_pass: Option<u64>,
    pub(crate) error: Option<Error>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            latency: std::array::from_fn(|_| Histogram::new()),
            calls: Histogram::new(),
            operations: 0,
            reads: 0,
            writes: 0,
            read_bytes: 0,
            written_bytes: 0,
            longest_gap: Duration::ZERO,
            ended: Duration::ZERO,
            first_pass: None,
            error: None,
        }
    }

    /// Records one step of `operations` operations that took `latency`.
    #[inline]
    pub(crate) fn record(&mut self, class: Class, operations: u64, latency: Duration) {
        self.latency[class as usize].record(latency);
        self.longest_gap = self.longest_gap.max(latency);
        self.operations += operations;
    }
}
