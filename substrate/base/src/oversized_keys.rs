//! Which keys of an open store have operands that made a long value, or none, when somebody last merged them.
//!
//! Operands are written without reading what they change, so that only later work finds out what they come
//! to. It notes the key here; the next operand for it is then checked by reading, before it is written. Long
//! is what is longer than half the longest value: as much again may wait in write buffers.
//!
//! The longest entry that there can be at all has a bound here, too: what a key may have in operands, and
//! what they change, before the next one is checked by reading.
//!
//! **Invariants**
//! - A key too many costs a read, nothing else: keys go by hash, and are those of all keyspaces.
//! - Nothing here is kept when the store is closed.

use std::collections::BTreeSet;

use crate::{
    MAX_VALUE_BYTES,
    checksum::hash_key,
    num::u64_of,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

/// Keys that are told apart; when there are more, every key counts.
const KEYS_MAX: usize = 4096;

/// What operands and all that they change may come to unread: with as much again that a full merge may make
/// of them, it is an entry that can be written.
const UNREAD_BYTES_MAX: u64 = MAX_VALUE_BYTES / 2;

/// The keys, and what is long.
#[derive(Debug)]
pub struct OversizedKeys {
    long_bytes: AtomicU64,
    unread_bytes_max: AtomicU64,
    any: AtomicBool,
    hashes: Mutex<BTreeSet<u64>>,
}

impl Default for OversizedKeys {
    /// No value is long.
    fn default() -> Self {
        let (long_bytes, unread_bytes_max) = (u64::MAX.into(), UNREAD_BYTES_MAX.into());
        Self { long_bytes, unread_bytes_max, any: false.into(), hashes: Mutex::default() }
    }
}

impl OversizedKeys {
    /// Sets the longest value, from now on.
    pub fn set_value_bytes_max(&self, bytes: u64) {
        self.long_bytes.store(bytes / 2, Relaxed);
    }

    /// What operands of a key and all that they change may come to before somebody has to read it.
    pub fn unread_bytes_max(&self) -> u64 {
        self.unread_bytes_max.load(Relaxed)
    }

    /// The same for a test, which cannot write gigabytes.
    #[doc(hidden)]
    pub fn set_unread_bytes_max(&self, bytes: u64) {
        self.unread_bytes_max.store(bytes, Relaxed);
    }

    /// Whether a full merge may turn an entry of `before` bytes into one of `after`: it must not use up what
    /// was left for operands that are on their way.
    pub(crate) fn may_become(&self, before: usize, after: usize) -> bool {
        after <= before || u64_of(after) <= self.unread_bytes_max()
    }

    /// Operands of `key` made a value of so many bytes, or wait as so many.
    pub fn check(&self, key: &[u8], bytes: usize) {
        if u64_of(bytes) > self.long_bytes.load(Relaxed) {
            self.note(key);
        }
    }

    /// Operands of `key` make a value that is long, or none.
    #[cold]
    pub(crate) fn note(&self, key: &[u8]) {
        let mut hashes = self.hashes.lock();
        if hashes.len() < KEYS_MAX {
            hashes.insert(hash_key(key));
        }
        self.any.store(true, Relaxed);
    }

    /// Whether `key` is one of them, or may be.
    #[inline]
    pub fn may_have(&self, key: &[u8]) -> bool {
        self.any.load(Relaxed) && self.has(key)
    }

    #[cold]
    fn has(&self, key: &[u8]) -> bool {
        let hashes = self.hashes.lock();
        hashes.len() >= KEYS_MAX || hashes.contains(&hash_key(key))
    }

    /// What was noted of `key` holds no longer: it was written anew.
    pub fn forget(&self, key: &[u8]) {
        let mut hashes = self.hashes.lock();
        if hashes.len() < KEYS_MAX {
            hashes.remove(&hash_key(key));
            self.any.store(!hashes.is_empty(), Relaxed);
        }
    }
}
