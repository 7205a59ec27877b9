//! What a tree's data lies in, so that whoever looks at all of it (checks, copies, salvage) misses nothing.
//!
//! **Invariants**
//! - A tree refers to nothing but the spans of its parts.
//! - Nobody matches these enums with a wildcard: a new kind of part does not compile before each of those who
//!   walk over parts has an answer for it.

use std::sync::Arc;

use testudo_base::ExtentSpan;
use testudo_run::{KeyBounds, Run, RunRef};

/// A piece of a tree's data in the data file.
#[derive(Clone, Debug)]
pub enum Part {
    /// A sorted run: entries, or the values that entries refer to.
    Run(Arc<Run>),
}

impl Part {
    /// Where it lies.
    pub fn spans(&self) -> &[ExtentSpan] {
        match self {
            Self::Run(run) => &run.reference().spans,
        }
    }
}

/// A part of a tree, as the tree's objects in the manifest name it: for salvage, which opens no tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartUse {
    /// A sorted run.
    Run(RunUse),
}

/// A run, and what of it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunUse {
    /// The run.
    pub reference: RunRef,
    /// The keys for which its entries count; everything else in it was superseded.
    pub counts_in: Vec<KeyBounds>,
}
