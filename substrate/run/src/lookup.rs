//! How point queries treat pages that are not in the cache, and what they answer.
//!
//! **Invariants**
//! - A [`LookupProgress`] is good for one key in one state of a tree, and says only what later looks would
//!   find again.

use std::cell::{Cell, RefCell};

use testudo_base::Kind;
use testudo_storage::{Neighbours, PageAddress};

/// How a point query deals with pages that are not in the cache.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    /// Reads them, one after the other.
    Blocking,
    /// Collects them here and gives up; the caller loads them together and asks again, and the query goes on
    /// where it was.
    Collecting(&'a RefCell<Vec<PageAddress>>, &'a Cell<LookupProgress>),
}

/// How far a point query came before it missed a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupProgress {
    /// Sources, newest first, that know nothing of the key.
    pub passed: u32,
    /// What is known of the source after those.
    pub reached: Reached,
}

/// How far a point query came in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reached {
    /// Nothing is known.
    #[default]
    Start,
    /// Its filter does not exclude the key.
    Index,
    /// The key is in this block, or nowhere: the first page within the run, and how many.
    Block(u32, u32),
}

impl Access<'_> {
    /// How far the query came before.
    #[inline]
    pub fn progress(&self) -> LookupProgress {
        match self {
            Self::Blocking => LookupProgress::default(),
            Self::Collecting(_, progress) => progress.get(),
        }
    }

    /// The query is done with its first `passed` sources.
    #[inline]
    pub fn set_passed(&self, passed: u32) {
        if let Self::Collecting(_, progress) = self {
            progress.set(LookupProgress { passed, reached: Reached::Start });
        }
    }

    /// The query came this far in its source.
    #[inline]
    pub fn set_reached(&self, reached: Reached) {
        if let Self::Collecting(_, progress) = self {
            progress.set(LookupProgress { reached, ..progress.get() });
        }
    }
}

/// Answer of a point query to one source of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The source says nothing about the key.
    Absent,
    /// The source's newest entry for the key, and what else of its page is asked for.
    Found(Kind, Vec<u8>, Neighbours),
    /// A page was not in the cache and has been collected.
    Waiting,
}
