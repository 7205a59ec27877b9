//! Long values, which are stored in pieces: their keyspace, and the set of those being written (decision
//! 0050).
//!
//! They are entries of a keyspace of their own, hidden from users: a head that names the owner of the value,
//! and pieces. The entry of the user's key refers to them. Unreferenced values are found by their heads.
//!
//! **Invariants**
//! - The entry that refers to a value is committed after all of its pieces.
//! - A number is assigned to one value only, and a value belongs to one key. Once its key has a newer entry,
//!   no new reference to it can arise; snapshots still see its pieces.
//! - Pieces are removed only after two checks in this order: the value is not being written, and, under the
//!   stripe of its key, the key does not refer to it.

use std::collections::BTreeSet;

use testudo_base::{
    Error, Result,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Relaxed, Release},
        },
    },
};

use crate::{
    keyspace::{KeyspaceCore, View},
    snapshots::held_view::HeldView,
};

/// Name of the keyspace; reserved for the store.
pub const LONG_VALUES_KEYSPACE: &str = "\u{0}values in pieces";
/// Maximum length of a keyspace name.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 1024;

/// Checks that users may give a keyspace this name.
///
/// Errors: `Invalid` if they may not.
pub fn check_keyspace_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > KEYSPACE_NAME_BYTES_MAX {
        return Err(Error::invalid("a keyspace needs a name of 1 to 1,024 bytes"));
    }
    if name == LONG_VALUES_KEYSPACE {
        return Err(Error::invalid("this keyspace name is reserved for the store"));
    }
    Ok(())
}

/// State of all long values, read from their heads.
#[derive(Debug)]
pub struct KnownValues {
    /// Lower bound of the number of the next value.
    pub next: u64,
    /// Names of keyspaces that may have such values.
    pub owners: BTreeSet<String>,
}

/// The long values of a store.
#[derive(Debug, Default)]
pub struct LongValues {
    keyspace: OnceLock<Arc<KeyspaceCore>>,
    /// Held while the head of a value is committed, so that numbers ascend with seqnos. Taken before stripes.
    pub beginning: Mutex<()>,
    /// No other lock is taken while it is held, except to read.
    pub known: Mutex<Option<KnownValues>>,
    /// Numbers of the values being written.
    underway: Mutex<BTreeSet<u64>>,
    /// A sweep for unreferenced values is running.
    is_sweeping: AtomicBool,
    /// There may be unreferenced values.
    is_sweep_due: AtomicBool,
    /// Flushes, and values written, since the last sweep …
    since_sweep: AtomicU64,
    /// … and the number of heads that it visited.
    swept_heads: AtomicU64,
}

/// Flushes and values after which a sweep is overdue: this many, or one per `HEADS_FOR_EACH` heads if more.
const OVERDUE: u64 = 64;
const HEADS_FOR_EACH: u64 = 4;

impl LongValues {
    /// The keyspace of pieces; `None` in a store that never had any.
    #[inline]
    pub fn keyspace(&self) -> Option<&Arc<KeyspaceCore>> {
        self.keyspace.get()
    }

    /// The current view of that keyspace.
    #[inline]
    pub fn view(&self) -> Option<Arc<View>> {
        self.keyspace.get().map(|keyspace| keyspace.view.load_full())
    }

    /// The same view for holders.
    pub fn held_view(&self) -> Option<Arc<HeldView>> {
        self.keyspace.get().map(|keyspace| keyspace.view.load().held())
    }

    /// Adopts `core` as the keyspace of pieces, if it has that name.
    pub fn adopt(&self, core: &Arc<KeyspaceCore>) {
        if &*core.name == LONG_VALUES_KEYSPACE {
            let adopted = self.keyspace.get_or_init(|| Arc::clone(core));
            debug_assert!(Arc::ptr_eq(adopted, core), "a store has one keyspace of long values");
            self.expect_sweep();
        }
    }

    /// Records that values may have become unreferenced.
    pub fn expect_sweep(&self) {
        if self.keyspace.get().is_some() {
            self.is_sweep_due.store(true, Relaxed);
            self.since_sweep.fetch_add(1, Relaxed);
        }
    }

    /// Whether a sweep should no longer wait for the store to be idle.
    pub fn is_sweep_overdue(&self) -> bool {
        let heads = self.swept_heads.load(Relaxed);
        self.is_sweep_due() && self.since_sweep.load(Relaxed) >= OVERDUE.max(heads / HEADS_FOR_EACH)
    }

    /// Records the number of heads that a sweep visited.
    pub fn note_swept(&self, heads: u64) {
        self.swept_heads.store(heads, Relaxed);
    }

    /// Whether a sweep may find unreferenced values.
    pub fn is_sweep_due(&self) -> bool {
        self.is_sweep_due.load(Relaxed)
    }

    /// Begins a sweep, which lasts until the returned guard is dropped; `None` if one is running.
    pub fn begin_sweep(&self) -> Option<Sweeping<'_>> {
        if self.is_sweeping.swap(true, AcqRel) {
            return None;
        }
        self.is_sweep_due.store(false, Relaxed);
        self.since_sweep.store(0, Relaxed);
        Some(Sweeping(self))
    }

    /// Marks a value as being written until the returned guard is dropped.
    pub fn enter(&self, value: u64) -> ValueUnderway<'_> {
        let is_new = self.underway.lock().insert(value);
        debug_assert!(is_new, "a number is assigned to one value only");
        ValueUnderway { values: self, value }
    }

    pub fn is_underway(&self, value: u64) -> bool {
        self.underway.lock().contains(&value)
    }
}

/// A running sweep.
pub struct Sweeping<'p>(&'p LongValues);

impl Drop for Sweeping<'_> {
    fn drop(&mut self) {
        self.0.is_sweeping.store(false, Release);
    }
}

/// A value being written.
pub struct ValueUnderway<'p> {
    values: &'p LongValues,
    pub value: u64,
}

impl Drop for ValueUnderway<'_> {
    fn drop(&mut self) {
        self.values.underway.lock().remove(&self.value);
    }
}
