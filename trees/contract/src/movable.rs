//! What is asked of a tree that a keyspace leaves for one of another family, or goes to (decision 0042).
//!
//! While a keyspace moves, each of its two trees has a range of the keys, and the ranges meet at a border.
//! The rest of the contract is about all keys; here a tree takes a piece in beside its own keys, and gives up
//! what lies outside a range.
//!
//! **Invariants**
//! - Nobody asks a tree for keys outside its range.
//! - What a tree writes has no entry outside [`crate::Work::keys`], and states nothing of keys there.

use std::sync::Arc;

use testudo_base::{Cursor, Result};
use testudo_run::{KeyBounds, Run, RunLayout};
use testudo_storage::Change;

use crate::{Job, Tree, TreeEdit, Work};

/// Which way a border goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heading {
    /// To greater keys.
    Up,
    /// To lesser keys.
    Down,
}

impl Heading {
    /// The other way.
    #[must_use]
    pub fn reversed(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

/// All that there is of a range of keys, as runs of the bottom.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The range. The runs state that they cover it.
    pub bounds: KeyBounds,
    /// In key order, at least one. With each the fence before it, which is where its covered range begins.
    pub runs: Vec<(Vec<u8>, Arc<Run>)>,
}

/// A tree that keyspaces can move from and to.
pub trait Movable: Tree {
    /// Bytes of entries of a full run at the bottom.
    fn run_bytes(&self) -> u64;
    /// How the pages of runs at the bottom are laid out whose entries have about so many bytes.
    fn bottom_layout(&self, entry_bytes: u64) -> RunLayout;
    /// Of the jobs of [`Tree::pick_job`] one that is worth while even as the tree is being left, because
    /// flushes still come in. Pure.
    fn job_while_left(&self) -> Option<Job>;
    /// Where a piece of about so many bytes ends, which begins at the lower end of `rest` and goes up, or at
    /// the upper end and goes down. `rest` is the range of this tree; `None` if all of it is one piece.
    /// [`Movable::without_outside`] can be asked to end the tree there. Reads index pages only.
    fn next_border(&self, rest: &KeyBounds, heading: Heading, bytes: u64) -> Result<Option<Vec<u8>>>;
    /// As [`Tree::cursor`], for one way through a range that is written elsewhere: tells the progress of
    /// `work` of all entries of that range which it does not return.
    fn merging_cursor(&self, work: &Work) -> Box<dyn Cursor + Send>;
    /// The state with a piece at the bottom, where it has no key yet. Writes no run.
    fn with_piece(&self, work: &Work, piece: &Piece) -> Result<TreeEdit>;
    /// The state without runs, nodes and shares that lie wholly outside `keep`, which ends where
    /// [`Movable::next_border`] said. Writes no run: runs that reach over the border may stay.
    fn without_outside(&self, work: &Work, keep: &KeyBounds) -> Result<TreeEdit>;
    /// The state in which nothing outside `keep` counts any more, so that pieces can be put there. May write
    /// runs that reached over the border anew.
    fn cut_to(&self, work: &Work, keep: &KeyBounds) -> Result<TreeEdit> {
        self.without_outside(work, keep)
    }
    /// The changes that give back and delete all that the manifest has of it.
    fn clear(&self, work: &Work) -> Vec<Change>;
}
