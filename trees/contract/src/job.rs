//! Background work that a tree proposes, independent of flushes (decision 0044).
//!
//! A job is *prepared*, without a lock, on the state it was picked from. It is then *installed* on the state
//! current at that time. Only the tree understands its target.

use std::{any::Any, fmt};

use crate::Opaque;

/// A unit of background work that a tree proposes.
#[derive(Clone, Debug)]
pub struct Job {
    /// Description of the job.
    pub what: &'static str,
    /// Approximate bytes of entries that wait for it; the job with the largest debt runs first.
    pub debt_bytes: u64,
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
