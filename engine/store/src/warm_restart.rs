//! What an open store knows of its warm restart.
//!
//! **Invariants**
//! - Who was woken once never sleeps again: the store is being closed.

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

/// What an open store knows of its warm restart.
#[derive(Debug)]
pub struct WarmRestart {
    pub is_on: bool,
    /// What is yet to be read; taken before the locks of caches and pool.
    pub reader: Mutex<Option<HotSetReader>>,
    state: AtomicU64,
    /// Bytes read of the file.
    pub file_bytes_read: AtomicU64,
    /// Bytes of pages read because of it.
    pub page_bytes_read: AtomicU64,
    /// Bytes written to it, or to what was to become it.
    pub bytes_written: AtomicU64,
    /// Length of the file `hot-set`, 0 if there is none.
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

    /// Bytes read of the file, and of the pages that it names.
    pub fn bytes_read(&self) -> u64 {
        self.file_bytes_read() + self.page_bytes_read.load(Relaxed)
    }

    pub fn file_bytes_read(&self) -> u64 {
        self.file_bytes_read.load(Relaxed)
    }

    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Relaxed)
    }

    /// Length of the file that says what was hot.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Relaxed)
    }

    /// Wakes the warm thread, for good.
    pub fn wake(&self) {
        *self.is_woken.lock() = true;
        self.woken.notify_all();
    }

    /// Waits so long, unless it is woken.
    pub fn wait(&self, time: Duration) {
        let mut is_woken = self.is_woken.lock();
        if !*is_woken {
            self.woken.wait_for(&mut is_woken, time);
        }
    }
}

/// What the caches took in until the file was written last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub page_reads: u64,
    pub inserted: u64,
    pub flushes: u64,
}

impl Written {
    /// How much was taken in since `earlier`, in pages and records.
    pub fn since(&self, earlier: &Self) -> u64 {
        self.page_reads - earlier.page_reads + (self.inserted - earlier.inserted)
    }
}
