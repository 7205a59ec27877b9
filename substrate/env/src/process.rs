//! The process that something belongs to: an environment, an open file, a lock, a store.
//!
//! A forked child has copies of all handles of its parent, but none of its threads, and shares its
//! descriptors and locks. Whatever belongs to the parent must not be used there, and asks this type
//! (decision 0057).
//!
//! **Invariants**
//! - A look is a relaxed load and a comparison, where the kernel can wipe a page in forked children;
//!   elsewhere it asks for the number of the process.
//! - Two processes of which one descends from the other never count as the same one.

use std::sync::{
    Arc,
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
};

use testudo_base::{Error, ErrorKind, planted};

use crate::real::fork_page;

/// Processes of this line of descent that have asked for a number.
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// A process, as something remembers it.
#[derive(Clone, Debug)]
pub struct Process {
    mark: Mark,
    id: u32,
}

/// What tells that process from its children.
#[derive(Clone, Debug)]
enum Mark {
    /// A word that a fork zeroes in the child, and what it holds in this process.
    Page { word: &'static AtomicU64, number: u64 },
    /// The number that the system gives to processes.
    Id,
    /// The present process of a simulated machine, and this one.
    Simulated { present: Arc<AtomicU64>, number: u64 },
}

impl Process {
    /// The process that runs this.
    pub fn current() -> Self {
        let mark = fork_page::word().map_or(Mark::Id, |word| Mark::Page { word, number: number_in(word) });
        Self { mark, id: std::process::id() }
    }

    /// The same without a page that is wiped.
    #[cfg(test)]
    fn current_by_id() -> Self {
        Self { mark: Mark::Id, id: std::process::id() }
    }

    /// The process that a simulated machine is in now, as `present` says.
    pub(crate) fn simulated(present: &Arc<AtomicU64>) -> Self {
        let (present, number) = (Arc::clone(present), present.load(Relaxed));
        Self { mark: Mark::Simulated { present, number }, id: std::process::id() }
    }

    /// Whether it is the process that runs this; `false` in its forked children.
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

    /// What is said to a forked child that uses something of this process.
    #[cold]
    pub fn forked(&self) -> Error {
        let message = format!(
            "opened by process {}, of which this one is a fork: handles do not survive a fork, open the \
             store in this process",
            self.id
        );
        Error::new(ErrorKind::Closed, message)
    }
}

/// The number of this process; the first who asks gives it one.
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
