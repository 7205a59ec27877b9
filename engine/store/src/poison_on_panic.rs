//! Poisons the store if a panic unwinds through work on its state.
//!
//! A background thread that panics ends, and poisons the store. But flushes, jobs and reclaim steps also run
//! on threads of users (`Db::compact`, `Db::flush`, stepped execution), which may catch the panic and go on.
//!
//! **Invariants**
//! - A panic that had begun before the guard was created does not count: handles are dropped during panics.

use std::thread;

use testudo_base::{Error, ErrorKind};

use crate::Store;

/// Poisons the store when it is dropped by a panic.
#[must_use = "the guard must live as long as the work"]
pub struct PoisonOnPanic<'a> {
    store: &'a Store,
    was_panicking: bool,
}

impl<'a> PoisonOnPanic<'a> {
    /// Guards work that leaves nothing usable behind if it panics.
    pub fn new(store: &'a Store) -> Self {
        Self { store, was_panicking: thread::panicking() }
    }
}

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() && !self.was_panicking {
            self.store.poison(&Error::new(ErrorKind::Poisoned, "a flush or a background job panicked"));
        }
    }
}
