//! Keys of an open store whose operands, when last merged, produced a long value or failed to merge.
//!
//! Operands are written without reading the value they change, so only later work learns the result. It
//! records the key here; the next operand for the key is checked, at the cost of a read, before it is
//! written. A value counts as long if it exceeds half the maximum length, because operands of the same total
//! length may be waiting in write buffers.
//!
//! The length of an entry, a key's operands and the value they change, is bounded here, too. Beyond the bound
//! the next operand is also checked by a read.
//!
//! **Invariants**
//! - A false positive costs a read, nothing else: keys are identified by hash, across all keyspaces.
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

/// Maximum number of keys to distinguish; beyond it, every key counts.
const KEYS_MAX: usize = 4096;

/// Maximum bytes of unread operands and the value they change. A full merge may double it; the entry can
/// still be written.
const UNREAD_BYTES_MAX: u64 = MAX_VALUE_BYTES / 2;

/// The recorded keys, and the limits.
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
    /// Sets the maximum value length, from now on.
    pub fn set_value_bytes_max(&self, bytes: u64) {
        self.long_bytes.store(bytes / 2, Relaxed);
    }

    /// Maximum bytes of a key's operands and the value they change before they must be read.
    pub fn unread_bytes_max(&self) -> u64 {
        self.unread_bytes_max.load(Relaxed)
    }

    /// Sets that maximum for a test, which cannot write gigabytes.
    #[doc(hidden)]
    pub fn set_unread_bytes_max(&self, bytes: u64) {
        self.unread_bytes_max.store(bytes, Relaxed);
    }

    /// Whether a full merge may turn an entry of `before` bytes into one of `after`: it must not use up the
    /// room left for operands still being written.
    pub(crate) fn may_become(&self, before: usize, after: usize) -> bool {
        after <= before || u64_of(after) <= self.unread_bytes_max()
    }

    /// Records that the operands of `key` made a value of `bytes`, or wait as an entry of `bytes`.
    pub fn check(&self, key: &[u8], bytes: usize) {
        if u64_of(bytes) > self.long_bytes.load(Relaxed) {
            self.note(key);
        }
    }

    /// Records that the operands of `key` make a long value, or none.
    #[cold]
    pub(crate) fn note(&self, key: &[u8]) {
        let mut hashes = self.hashes.lock();
        if hashes.len() < KEYS_MAX {
            hashes.insert(hash_key(key));
        }
        debug_assert!(hashes.len() <= KEYS_MAX, "the recorded keys are bounded");
        self.any.store(true, Relaxed);
    }

    /// Whether `key` is recorded, or may be.
    #[inline]
    pub fn may_have(&self, key: &[u8]) -> bool {
        self.any.load(Relaxed) && self.has(key)
    }

    #[cold]
    fn has(&self, key: &[u8]) -> bool {
        let hashes = self.hashes.lock();
        hashes.len() >= KEYS_MAX || hashes.contains(&hash_key(key))
    }

    /// Removes `key` after it was overwritten.
    pub fn forget(&self, key: &[u8]) {
        let mut hashes = self.hashes.lock();
        if hashes.len() < KEYS_MAX {
            hashes.remove(&hash_key(key));
            self.any.store(!hashes.is_empty(), Relaxed);
        }
    }
}
