//! The interface between the engine and a tree, independent of the tree's structure.
//!
//! A tree is an immutable state behind an `Arc`: readers pin it and never block a writer. It changes when the
//! engine hands it sorted updates ([`Update::apply`]) or lets it do a job of its own ([`Compact::prepare`],
//! [`Compact::install`]); both return a [`TreeEdit`], the next state together with the manifest changes that
//! make it durable.
//!
//! [`Tree`] is the sum of the traits that its users need: [`Read`] for queries, [`Update`] for flushes,
//! [`Compact`] for background work, [`Inspect`] for statistics and checks. Its vtable has all of their
//! methods, so a call through `dyn Tree` is one indirect call.
//!
//! Targets and outcomes of background work are [`Opaque`] to the engine, which compares only debts, gains and
//! space. An associated type cannot replace them: keyspaces hold `Arc<dyn Tree>`, and a trait object would
//! have to name the type. An enum would name all families here, and a tree that is made of other trees wraps
//! their targets in its own.
//!
//! **Invariants**
//! - Trees never log, acknowledge a write, start a thread or sleep.
//! - The answer to any query has at most one entry per key. Merges drop older ones, except those that
//!   operands apply to.
//! - Nothing that an edit refers to is written after [`Update::apply`] or [`Compact::prepare`] returned; the
//!   engine syncs the data file, commits the edit and only then publishes the state.

mod compact;
mod inspect;
mod job;
mod movable;
mod opaque;
mod part;
mod read;
mod reclaim;
mod update;
mod updates;
mod work;

use std::fmt;

use testudo_storage::Change;

pub use compact::Compact;
pub use inspect::{Inspect, Moving, OutlineLine, PageUpdateStats, TreeStats};
pub use job::{JOB_BYTES, Job, JobRequest, Prepared, RangeJob, Scope};
pub use movable::{Heading, Movable, Portion};
pub use opaque::Opaque;
pub use part::{Part, PartUse, RunUse};
pub use read::Read;
pub use reclaim::{LeastGain, Reclaim, ReclaimLimits};
pub use update::{TreeEdit, Update};
pub use updates::Updates;
pub use work::{
    Executor, Height, InlineExecutor, PlaceValues, Progress, RecordedDrops, RunIds, SeparatedValues, Task,
    Work,
};

/// A tree's state, as a keyspace has it.
pub trait Tree: Read + Update + Compact + Inspect + Send + Sync + fmt::Debug {
    /// Returns the changes that release all extents of the tree, for dropping its keyspace.
    fn release(&self) -> Vec<Change> {
        self.references().into_iter().map(|span| Change::References(span, -1)).collect()
    }
    /// Returns the tree as a migration source or destination; `None` if it is made of other trees.
    fn as_movable(&self) -> Option<&dyn Movable> {
        None
    }
}
