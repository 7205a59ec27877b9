//! Work that a tree would like to do by itself, beside flushes (decision 0044).
//!
//! A job is *prepared* on the state that it was picked from, without a lock, and *installed* on the state as
//! it is by then. What it is about only the tree knows.

use std::{any::Any, fmt};

use crate::Opaque;

/// A piece of work that a tree would like to do.
#[derive(Clone, Debug)]
pub struct Job {
    /// What it is, in words.
    pub what: &'static str,
    /// About how many bytes of entries have waited for it: of several jobs the one with most is first.
    pub debt_bytes: u64,
    /// What it is about.
    pub target: Opaque,
}

/// What a job has written, in the terms of the tree that did it. Dropping it gives the space back.
pub struct Prepared {
    what: &'static str,
    outcome: Box<dyn Any + Send>,
}

impl Prepared {
    /// For the tree that understands `outcome`.
    pub fn new<T: Any + Send>(what: &'static str, outcome: T) -> Self {
        Self { what, outcome: Box::new(outcome) }
    }

    /// The outcome, if it is in terms of `T`.
    pub fn into<T: Any>(self) -> Option<T> {
        self.outcome.downcast().ok().map(|outcome| *outcome)
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Prepared({})", self.what)
    }
}
