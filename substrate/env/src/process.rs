//! The process that owns an environment, an open file, a lock or a store.
//!
//! A forked child has copies of all handles of its parent, but none of its threads, and shares its
//! descriptors and locks. The parent's resources must not be used in the child, so they check their owner
//! with this type (decision 0057).
//!
//! **Invariants**
//! - A check is a relaxed load and a comparison where the kernel can wipe a page in forked children;
//!   elsewhere it queries the process id.
//! - A process and its descendants never count as the same one.

use std::sync::{
    Arc,
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
};

use testudo_base::{Error, ErrorKind, planted};

use crate::real::fork_page;

/// Numbers assigned so far to processes of this line of descent.
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Identity of a process.
#[derive(Clone, Debug)]
pub struct Process {
    mark: Mark,
    id: u32,
}

/// Distinguishes that process from its children.
#[derive(Clone, Debug)]
enum Mark {
    /// A word that a fork zeroes in the child, and its value in this process.
    Page { word: &'static AtomicU64, number: u64 },
    /// The system's process id.
    Id,
    /// Number of the running process of a simulated machine, and of this one.
    Simulated { present: Arc<AtomicU64>, number: u64 },
}

impl Process {
    /// Returns the current process.
    pub fn current() -> Self {
        let mark = fork_page::word().map_or(Mark::Id, |word| Mark::Page { word, number: number_in(word) });
        Self { mark, id: std::process::id() }
    }

    /// Like [`Process::current`], without a page that is wiped.
    #[cfg(test)]
    fn current_by_id() -> Self {
        Self { mark: Mark::Id, id: std::process::id() }
    }

    /// Returns the current process of a simulated machine, as stated by `present`.
    pub(crate) fn simulated(present: &Arc<AtomicU64>) -> Self {
        let (present, number) = (Arc::clone(present), present.load(Relaxed));
        Self { mark: Mark::Simulated { present, number }, id: std::process::id() }
    }

    /// Whether it is the current process; `false` in its forked children.
    #[inline]
    pub fn is_current(&self) -> bool {
        let is_same = match &self.mark {
            Mark::Page { word, number } => word.load(Relaxed) == *number,
            Mark::Simulated { present, number } => present.load(Relaxed) == *number,
            Mark::Id => self.has_own_id(),
        };
        is_same || planted!("fork-unnoticed")
    }

    #[cold]
    fn has_own_id(&self) -> bool {
        self.id == std::process::id()
    }

    /// Fails in a forked child.
    ///
    /// Errors: `Closed`.
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        if self.is_current() { Ok(()) } else { Err(self.forked()) }
    }

    /// The error for a forked child that uses a resource of this process.
    #[cold]
    pub fn forked(&self) -> Error {
        let message = format!(
            "opened by process {}, and this process is a fork of it: handles do not survive a fork, open the \
             store in this process",
            self.id
        );
        Error::new(ErrorKind::Closed, message)
    }
}

/// Returns the number of this process, assigning it on first use.
fn number_in(word: &AtomicU64) -> u64 {
    let known = word.load(Acquire);
    if known != 0 {
        return known;
    }
    let fresh = LAST_NUMBER.fetch_add(1, Relaxed) + 1;
    word.compare_exchange(0, fresh, AcqRel, Acquire).map_or_else(|given| given, |_| fresh)
}

#[cfg(test)]
mod tests;
