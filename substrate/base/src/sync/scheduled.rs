//! Synchronization primitives of the seeded scheduler, under the names and signatures of the real ones.
//!
//! Threads here are coroutines of one operating-system thread: between two scheduling points nothing else
//! runs. Each operation below is one scheduling point or several.
//!
//! **Invariants**
//! - A wait with a timeout can always end; one without cannot, so that a lost wake-up becomes a visible
//!   deadlock.
//! - Reads of a lock may be nested, as with the real one while no writer waits.

mod condvar;
mod mutex;
mod rw_lock;
mod swap;

pub use shuttle::{hint::spin_loop, sync::atomic, thread::yield_now, thread_local};

pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use rw_lock::{
    RwLock as ShardedLock, RwLockReadGuard as ShardedLockReadGuard, RwLockWriteGuard as ShardedLockWriteGuard,
};
pub use swap::ArcSwap;

/// Lets the scheduler choose which thread continues.
fn meet() {
    // Time is not simulated: this is only a scheduling step.
    shuttle::thread::sleep(std::time::Duration::ZERO);
}

/// Counts turns of spinning until a thread should sleep instead.
#[derive(Debug, Default)]
pub struct Backoff(std::cell::Cell<u32>);

impl Backoff {
    /// A backoff with no turns yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Spins for one turn.
    pub fn snooze(&self) {
        self.0.set(self.0.get() + 1);
        yield_now();
    }

    /// Whether the thread should sleep now.
    pub fn is_completed(&self) -> bool {
        self.0.get() > 2
    }
}
