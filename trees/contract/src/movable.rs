//! The contract of a tree that a keyspace migrates from or to (decision 0042).
//!
//! During a migration each of the two trees has a range of the keys; the ranges meet at a border. The rest of
//! the contract is about all keys. Here a tree accepts a portion outside its own range, and drops all data
//! outside a range.
//!
//! **Invariants**
//! - A tree is never queried for keys outside its range.
//! - A tree writes no entry outside [`crate::Work::keys`], and claims no coverage there.

use std::sync::Arc;

use testudo_base::{Cursor, Result};
use testudo_run::{KeyBounds, Run, RunLayout};
use testudo_storage::Change;

use crate::{Job, JobRequest, Tree, TreeEdit, Work};

/// Direction in which a border moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heading {
    /// Towards greater keys.
    Up,
    /// Towards lesser keys.
    Down,
}

impl Heading {
    /// Returns the opposite direction.
    #[must_use]
    pub fn reversed(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

/// All data of a range of keys, as runs of the bottom.
#[derive(Clone, Debug)]
pub struct Portion {
    /// The range. The runs' covered ranges fill it.
    pub bounds: KeyBounds,
    /// In key order, at least one. Each has the fence before it, at which its covered range begins.
    pub runs: Vec<(Vec<u8>, Arc<Run>)>,
}

/// A tree that keyspaces can move from and to.
pub trait Movable: Tree {
    /// Bytes of entries of a full run at the bottom.
    fn run_bytes(&self) -> u64;
    /// Page layout of runs at the bottom with entries of about `entry_bytes`.
    fn bottom_layout(&self, entry_bytes: u64) -> RunLayout;
    /// Picks a job of [`Compact::pick_job`](crate::Compact::pick_job) that is worthwhile even while the
    /// keyspace migrates away, because flushes continue. Pure.
    fn job_while_left(&self, request: &JobRequest<'_>) -> Option<Job>;
    /// Returns the end of a portion of about `bytes`. It begins at the lower end of `rest` and goes up, or at
    /// the upper end and goes down. `rest` is the range of this tree; `None` if all of it is one portion.
    /// [`Movable::without_outside`] can end the tree there. Reads index pages only.
    fn next_border(&self, rest: &KeyBounds, heading: Heading, bytes: u64) -> Result<Option<Vec<u8>>>;
    /// Like [`Read::cursor`](crate::Read::cursor), for one pass over a range that is being rewritten. Reports
    /// every entry of that range that it does not return to the progress of `work`.
    fn merging_cursor(&self, work: &Work) -> Box<dyn Cursor + Send>;
    /// Returns the state with a portion at the bottom, in a range where it has no key. Writes no run.
    fn with_portion(&self, work: &Work, portion: &Portion) -> Result<TreeEdit>;
    /// Returns the state without runs, nodes and shares that are entirely outside `keep`, whose end comes
    /// from [`Movable::next_border`]. Writes no run: runs that cross the border may stay.
    fn without_outside(&self, work: &Work, keep: &KeyBounds) -> Result<TreeEdit>;
    /// Returns the state in which nothing outside `keep` counts any more, so that portions can be added
    /// there. May rewrite runs that crossed the border.
    fn cut_to(&self, work: &Work, keep: &KeyBounds) -> Result<TreeEdit> {
        self.without_outside(work, keep)
    }
    /// Returns the changes that release and delete everything of the tree in the manifest.
    fn clear(&self, work: &Work) -> Vec<Change>;
}
