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
    /// Reads them, one by one, and records the progress: the effort in each source.
    Counting(&'a Cell<LookupProgress>),
}

/// Progress of a point query before it missed a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupProgress {
    /// Number of leading sources, newest first, that do not have the key.
    pub passed: u32,
    /// Progress in the next source.
    pub reached: Reached,
    /// Pages of the next source that were not cached.
    pub reads: u32,
}

impl LookupProgress {
    /// Progress after `passed` sources.
    pub fn after(passed: u32) -> Self {
        Self { passed, ..Self::default() }
    }

    /// Whether the search of the next source went beyond a filter in memory.
    pub fn took_effort(&self) -> bool {
        self.reads > 0 || self.reached != Reached::Start
    }
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

impl<'p> Access<'p> {
    /// Returns the access that also records progress, in `progress` unless it does so elsewhere.
    #[inline]
    pub fn counted<'a>(self, progress: &'a Cell<LookupProgress>) -> Access<'a>
    where
        'p: 'a,
    {
        match self {
            Self::Blocking => Access::Counting(progress),
            counted => counted,
        }
    }

    /// Returns the progress of earlier attempts.
    #[inline]
    pub fn progress(&self) -> LookupProgress {
        match self {
            Self::Blocking | Self::Counting(_) => LookupProgress::default(),
            Self::Collecting(_, progress) => progress.get(),
        }
    }

    /// Records that the first `passed` sources are done.
    #[inline]
    pub fn set_passed(&self, passed: u32) {
        if let Self::Collecting(_, progress) | Self::Counting(progress) = self {
            progress.set(LookupProgress::after(passed));
        }
    }

    /// Records the progress in the current source.
    #[inline]
    pub fn set_reached(&self, reached: Reached) {
        if let Self::Collecting(_, progress) | Self::Counting(progress) = self {
            progress.set(LookupProgress { reached, ..progress.get() });
        }
    }

    /// Records that a page of the current source is not cached.
    #[cold]
    pub(crate) fn note_read(&self) {
        if let Self::Collecting(_, progress) | Self::Counting(progress) = self {
            let before = progress.get();
            progress.set(LookupProgress { reads: before.reads + 1, ..before });
        }
    }

    /// Returns the effort in the current source if it went beyond a filter in memory; `None` if that is not
    /// recorded.
    #[inline]
    pub fn effort(&self) -> Option<LookupProgress> {
        match self {
            Self::Blocking => None,
            Self::Collecting(_, progress) | Self::Counting(progress) => {
                Some(progress.get()).filter(LookupProgress::took_effort)
            }
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
