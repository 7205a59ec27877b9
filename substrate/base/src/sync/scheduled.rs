//! What threads of the seeded scheduler meet at, under the names and signatures of the real ones.
//!
//! Threads here are coroutines of one thread of the operating system: between two meeting points nothing else
//! runs. Each operation below is one meeting point or several.
//!
//! **Invariants**
//! - A wait that has a timeout can always end; one without can not, so that a lost wake-up is a deadlock that
//!   is seen.
//! - Reads of a lock may be nested, as with the real one while nobody waits to write.

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

/// Lets the scheduler choose who goes on.
fn meet() {
    // Time is not simulated: this is a step and nothing else.
    shuttle::thread::sleep(std::time::Duration::ZERO);
}

/// Turns of waiting before a thread should rather sleep.
#[derive(Debug, Default)]
pub struct Backoff(std::cell::Cell<u32>);

impl Backoff {
    /// No turn yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One turn.
    pub fn snooze(&self) {
        self.0.set(self.0.get() + 1);
        yield_now();
    }

    /// Whether to sleep now.
    pub fn is_completed(&self) -> bool {
        self.0.get() > 2
    }
}
