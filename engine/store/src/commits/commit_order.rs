//! The order of commits: the lock under which they get their seqnos, the stripes of their keys, and the
//! commits in flight.
//!
//! **Invariants**
//! - Stripes are locked before the commit lock.

use crossbeam_utils::CachePadded;
use testudo_base::sync::{Mutex, MutexGuard, is_held};

use crate::commits::{in_flight::InFlight, stripes::Stripes};

/// The order of commits.
#[derive(Debug)]
pub struct CommitOrder {
    /// On a cache line of its own, because every commit writes it.
    commit: CachePadded<Mutex<()>>,
    pub stripes: Stripes,
    pub in_flight: InFlight,
}

impl Default for CommitOrder {
    fn default() -> Self {
        Self {
            commit: CachePadded::new(Mutex::new(())),
            stripes: Stripes::default(),
            in_flight: InFlight::default(),
        }
    }
}

impl CommitOrder {
    /// Takes the commit lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.commit.lock()
    }

    /// Whether the commit lock is held, for assertions.
    pub fn is_locked(&self) -> bool {
        is_held(&self.commit)
    }
}
