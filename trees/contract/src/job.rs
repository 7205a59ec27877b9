//! Background work that a tree proposes, independent of flushes (decision 0044).
//!
//! A job is *prepared*, without a lock, on the state it was picked from. It is then *installed* on the state
//! current at that time. Only the tree understands its target.
//!
//! **Invariants**
//! - Jobs of one tree that are in progress have scopes that do not overlap.
//! - A job reads and writes at most [`Compact::job_bytes_max`](crate::Compact::job_bytes_max) bytes each.

use std::{any::Any, fmt, ops::RangeInclusive};

use testudo_run::KeyBounds;

use crate::Opaque;

/// Default limit on the bytes that a job reads, and on those that it writes.
pub const JOB_BYTES: u64 = 32 << 20;

/// The part of a tree that a job reads and replaces. The engine only compares scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Keys.
    pub keys: KeyBounds,
    /// Layers of the tree, in the tree's own numbering, which does not change while a job is in progress.
    pub layers: RangeInclusive<u32>,
}

impl Scope {
    /// Layer of separated values. Trees number their own layers below it.
    pub const VALUES: u32 = u32::MAX;

    /// Returns the scope of a job that excludes all others of its tree.
    pub fn all() -> Self {
        Self { keys: KeyBounds::default(), layers: 0..=u32::MAX }
    }

    /// Returns a scope of some layers, in the whole range of keys.
    pub fn of_layers(layers: RangeInclusive<u32>) -> Self {
        debug_assert!(!layers.is_empty(), "a job has a layer");
        Self { layers, ..Self::all() }
    }

    /// Whether two jobs with these scopes exclude each other.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.layers.start() <= other.layers.end()
            && other.layers.start() <= self.layers.end()
            && !self.keys.intersection(&other.keys).is_empty()
    }
}

/// A request for a job.
#[derive(Clone, Copy, Debug)]
pub struct JobRequest<'a> {
    /// There were no recent writes, so postponed work is allowed too.
    pub is_idle: bool,
    /// Scopes of this tree's jobs in progress.
    pub busy: &'a [Scope],
    /// Limit on the bytes that the job reads, and on those that it writes. A tree exceeds it only where its
    /// smallest unit of work is larger, see [`Compact::job_bytes_max`](crate::Compact::job_bytes_max).
    pub bytes_max: u64,
}

impl JobRequest<'_> {
    /// Returns a request for the only job of a tree, with the default limit.
    pub const fn only(is_idle: bool) -> Self {
        Self { is_idle, busy: &[], bytes_max: JOB_BYTES }
    }

    /// Whether a job of this scope may begin.
    pub fn allows(&self, scope: &Scope) -> bool {
        self.busy.iter().all(|busy| !busy.overlaps(scope))
    }
}

/// A unit of background work that a tree proposes.
#[derive(Clone, Debug)]
pub struct Job {
    /// Description of the job.
    pub what: &'static str,
    /// Approximate bytes of entries that wait for it; the job with the largest debt runs first.
    pub debt_bytes: u64,
    /// Part of the tree that it reads and replaces.
    pub scope: Scope,
    /// Input of the job, opaque to the engine.
    pub target: Opaque,
}

/// A job that compacts the beginning of a range of keys.
#[derive(Clone, Debug)]
pub struct RangeJob {
    /// The job.
    pub job: Job,
    /// Once the job is installed, keys of the range before this one need no more work; `None`: all keys.
    pub done_below: Option<Vec<u8>>,
}

/// Output of a job, in the terms of the tree that did it. Dropping it releases the space.
pub struct Prepared {
    what: &'static str,
    outcome: Box<dyn Any + Send>,
}

impl Prepared {
    /// Wraps `outcome` for the tree that understands it.
    pub fn new<T: Any + Send>(what: &'static str, outcome: T) -> Self {
        Self { what, outcome: Box::new(outcome) }
    }

    /// Returns the outcome if it is a `T`.
    pub fn into<T: Any>(self) -> Option<T> {
        self.outcome.downcast().ok().map(|outcome| *outcome)
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Prepared({})", self.what)
    }
}
