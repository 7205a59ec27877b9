//! Warm restart: state of restoring and writing the hot set, which lists the contents of the caches.
//!
//! **Invariants**
//! - Once woken, the warm thread never waits again: the store is being closed.

pub mod hot_set_format;
pub mod hot_set_reader;
pub mod restore_state;

use std::time::Duration;

use testudo_base::sync::{
    Condvar, Mutex,
    atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use crate::warm_restart::{hot_set_reader::HotSetReader, restore_state::RestoreState};

/// Warm-restart state of an open store.
#[derive(Debug)]
pub struct WarmRestart {
    pub is_on: bool,
    /// The unread rest of the hot set; locked before the caches and the pool.
    pub reader: Mutex<Option<HotSetReader>>,
    state: AtomicU64,
    /// Bytes read of the file `hot-set`.
    pub file_bytes_read: AtomicU64,
    /// Bytes of pages read to restore the hot set.
    pub page_bytes_read: AtomicU64,
    /// Bytes written to the file, including to its temporary predecessor.
    pub bytes_written: AtomicU64,
    /// Length of the file `hot-set`, 0 if it does not exist.
    pub file_bytes: AtomicU64,
    pub written: Mutex<Written>,
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl WarmRestart {
    pub fn new(is_on: bool) -> Self {
        Self {
            is_on,
            reader: Mutex::default(),
            state: 0.into(),
            file_bytes_read: 0.into(),
            page_bytes_read: 0.into(),
            bytes_written: 0.into(),
            file_bytes: 0.into(),
            written: Mutex::default(),
            is_woken: Mutex::default(),
            woken: Condvar::default(),
        }
    }

    pub fn is_on(&self) -> bool {
        self.is_on
    }

    pub fn state(&self) -> RestoreState {
        RestoreState::from_code(self.state.load(Acquire))
    }

    pub fn set_state(&self, state: RestoreState) {
        self.state.store(state.code(), Release);
    }

    /// Bytes read of the file, and of the pages that it lists.
    pub fn bytes_read(&self) -> u64 {
        self.file_bytes_read() + self.page_bytes_read.load(Relaxed)
    }

    pub fn file_bytes_read(&self) -> u64 {
        self.file_bytes_read.load(Relaxed)
    }

    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Relaxed)
    }

    /// Length of the file `hot-set`.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Relaxed)
    }

    /// Wakes the warm thread, permanently.
    pub fn wake(&self) {
        *self.is_woken.lock() = true;
        self.woken.notify_all();
    }

    /// Waits for `time`, unless woken.
    pub fn wait(&self, time: Duration) {
        let mut is_woken = self.is_woken.lock();
        if !*is_woken {
            self.woken.wait_for(&mut is_woken, time);
        }
    }
}

/// Counters of the caches when the file was last written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub page_reads: u64,
    pub inserted: u64,
    pub flushes: u64,
}

impl Written {
    /// Pages and records that the caches accepted since `earlier`.
    pub fn since(&self, earlier: &Self) -> u64 {
        debug_assert!(self.page_reads >= earlier.page_reads, "counters only grow");
        debug_assert!(self.inserted >= earlier.inserted, "counters only grow");
        self.page_reads - earlier.page_reads + (self.inserted - earlier.inserted)
    }
}
