//! Synchronization primitives of the operating system: re-exports, so that code is the same as without this
//! module.
//!
//! **Invariants**
//! - Nothing is defined here.

mod sharded_lock;

pub use std::{hint::spin_loop, sync::atomic, thread::yield_now, thread_local};

pub use arc_swap::ArcSwap;
pub use crossbeam_utils::Backoff;
pub use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};
pub use sharded_lock::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
