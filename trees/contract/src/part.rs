//! The parts that make up a tree's data, for code that must visit all of it (checks, copies, salvage).
//!
//! **Invariants**
//! - A tree refers only to the spans of its parts.
//! - No `match` on these enums has a wildcard: a new kind of part compiles only after every walk over parts
//!   handles it.

use std::sync::Arc;

use testudo_base::ExtentSpan;
use testudo_run::{KeyBounds, Run, RunRef};

/// A chunk of a tree's data in the data file.
#[derive(Clone, Debug)]
pub enum Part {
    /// A sorted run: entries, or the values that entries refer to.
    Run(Arc<Run>),
}

impl Part {
    /// Spans of the part in the data file.
    pub fn spans(&self) -> &[ExtentSpan] {
        match self {
            Self::Run(run) => &run.reference().spans,
        }
    }
}

/// A part of a tree as named in the tree's manifest objects: for salvage, which opens no tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartUse {
    /// A sorted run.
    Run(RunUse),
}

/// A run, and the keys for which it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunUse {
    /// The run.
    pub reference: RunRef,
    /// The keys for which its entries count; everything else in it was superseded.
    pub counts_in: Vec<KeyBounds>,
}
