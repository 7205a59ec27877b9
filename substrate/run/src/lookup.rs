//! Page access modes and results of point queries.
//!
//! **Invariants**
//! - A [`LookupProgress`] is valid for one key in one state of a tree; it only skips work that later attempts
//!   would repeat.

use std::cell::{Cell, RefCell};

use testudo_base::Kind;
use testudo_storage::{Neighbours, PageAddress};

/// How a point query handles pages that are not cached.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    /// Reads them, one by one.
    Blocking,
    /// Collects them here and stops. The caller loads them in one batch and repeats the query, which resumes
    /// from its progress.
    Collecting(&'a RefCell<Vec<PageAddress>>, &'a Cell<LookupProgress>),
}

/// Progress of a point query before it missed a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupProgress {
    /// Number of leading sources, newest first, that do not have the key.
    pub passed: u32,
    /// Progress in the next source.
    pub reached: Reached,
}

/// Progress of a point query in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reached {
    /// Not started.
    #[default]
    Start,
    /// The filter does not exclude the key.
    Index,
    /// The key can only be in this block: its first page within the run, and its number of pages.
    Block(u32, u32),
}

impl Access<'_> {
    /// Returns the progress of earlier attempts.
    #[inline]
    pub fn progress(&self) -> LookupProgress {
        match self {
            Self::Blocking => LookupProgress::default(),
            Self::Collecting(_, progress) => progress.get(),
        }
    }

    /// Records that the first `passed` sources are done.
    #[inline]
    pub fn set_passed(&self, passed: u32) {
        if let Self::Collecting(_, progress) = self {
            progress.set(LookupProgress { passed, reached: Reached::Start });
        }
    }

    /// Records the progress in the current source.
    #[inline]
    pub fn set_reached(&self, reached: Reached) {
        if let Self::Collecting(_, progress) = self {
            progress.set(LookupProgress { reached, ..progress.get() });
        }
    }
}

/// Result of a point query to one source of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The source has no entry for the key.
    Absent,
    /// The source's newest entry for the key, and how many other records of its page were requested.
    Found(Kind, Vec<u8>, Neighbours),
    /// A page was not cached and has been collected.
    Waiting,
}
