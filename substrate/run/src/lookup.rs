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
    /// Reads them, one by one, and records the effort in the current source.
    Counting(&'a Cell<Effort>),
}

/// Progress of a point query before it missed a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupProgress {
    /// Number of leading sources, newest first, that do not have the key.
    pub passed: u32,
    /// Progress in the next source.
    pub reached: Reached,
    /// Effort in the next source.
    pub effort: Effort,
}

impl LookupProgress {
    /// Progress after `passed` sources.
    pub fn after(passed: u32) -> Self {
        Self { passed, ..Self::default() }
    }
}

/// Effort of the search of one source that goes beyond a filter in memory: twice the pages that were not
/// cached, plus one if the filter did not exclude the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort(u32);

impl Effort {
    /// Number of pages that were not cached.
    pub fn reads(self) -> u32 {
        self.0 / 2
    }

    fn with_search(self) -> Self {
        Self(self.0 | 1)
    }

    fn with_read(self) -> Self {
        Self(self.0.saturating_add(2))
    }

    fn is_any(self) -> bool {
        self.0 > 0
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
    /// Returns the access that also records the effort, in `effort` unless it does so elsewhere.
    #[inline]
    pub fn counted<'a>(self, effort: &'a Cell<Effort>) -> Access<'a>
    where
        'p: 'a,
    {
        match self {
            Self::Blocking => Access::Counting(effort),
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
        if let Self::Collecting(_, progress) = self {
            progress.set(LookupProgress::after(passed));
        }
    }

    /// Records the progress in the current source.
    #[inline]
    pub fn set_reached(&self, reached: Reached) {
        match self {
            Self::Blocking => {}
            Self::Collecting(_, progress) => {
                let before = progress.get();
                progress.set(LookupProgress { reached, effort: before.effort.with_search(), ..before });
            }
            Self::Counting(effort) => effort.set(effort.get().with_search()),
        }
    }

    /// Records that a page of the current source is not cached.
    #[cold]
    pub(crate) fn note_read(&self) {
        match self {
            Self::Blocking => {}
            Self::Collecting(_, progress) => {
                let before = progress.get();
                progress.set(LookupProgress { effort: before.effort.with_read(), ..before });
            }
            Self::Counting(effort) => effort.set(effort.get().with_read()),
        }
    }

    /// Returns the effort in the current source, which does not have the key, and begins with the next one;
    /// `None` if a filter in memory excluded the key, or if the effort is not recorded.
    #[inline]
    pub fn take_effort(&self) -> Option<Effort> {
        match self {
            Self::Blocking => None,
            Self::Collecting(_, progress) => Some(progress.get().effort).filter(|effort| effort.is_any()),
            Self::Counting(effort) => effort.get().is_any().then(|| effort.take()),
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
