//! Values in pieces: where they lie, and which of them are being written (decision 0050).
//!
//! They are entries of a keyspace of their own, which users do not see: a head that says whose value it is,
//! and pieces. The entry of the user's key refers to them. Values to which nothing refers any more are found
//! by their heads.
//!
//! **Invariants**
//! - The entry that refers to a value is committed after all of its pieces.
//! - A number is given to one value only, and a value belongs to one key. Once its key has something newer
//!   nothing will ever refer to it again, but for snapshots, which see its pieces.
//! - Who takes pieces away has seen that the value is not being written, and after that, under the stripe of
//!   its key, that this does not refer to it.

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

/// Name of the keyspace. Users cannot have one of this name.
pub const PIECES_KEYSPACE: &str = "\u{0}values in pieces";
/// Longest name of a keyspace.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 1024;

/// Whether users may give a keyspace this name.
///
/// Errors: `Invalid` if they may not.
pub fn check_keyspace_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > KEYSPACE_NAME_BYTES_MAX {
        return Err(Error::invalid("a keyspace needs a name of 1 to 1,024 bytes"));
    }
    if name == PIECES_KEYSPACE {
        return Err(Error::invalid("the store keeps values in a keyspace of this name"));
    }
    Ok(())
}

/// What is known of all values in pieces, once their heads were read.
#[derive(Debug)]
pub struct KnownPieces {
    /// The next value gets this number, or a greater one.
    pub next: u64,
    /// Names of keyspaces that may have such values.
    pub owners: BTreeSet<String>,
}

/// The values in pieces of a store.
#[derive(Debug, Default)]
pub struct Pieces {
    keyspace: OnceLock<Arc<KeyspaceCore>>,
    /// Held while the head of a value is committed: so numbers ascend with seqnos. Taken before stripes.
    pub beginning: Mutex<()>,
    /// Nobody locks anything while it is held, but to read.
    pub known: Mutex<Option<KnownPieces>>,
    /// Those that are being written.
    underway: Mutex<BTreeSet<u64>>,
    /// Somebody looks for values to which nothing refers.
    is_sweeping: AtomicBool,
    /// There may be some.
    is_sweep_due: AtomicBool,
    /// Flushes, and values written, since the last sweep …
    since_sweep: AtomicU64,
    /// … which has seen so many heads.
    swept_heads: AtomicU64,
}

/// A sweep is overdue after so many flushes and values, and one for so many heads.
const OVERDUE: u64 = 64;
const HEADS_FOR_EACH: u64 = 4;

impl Pieces {
    /// Where they lie; `None` in a store that never had any.
    #[inline]
    pub fn keyspace(&self) -> Option<&Arc<KeyspaceCore>> {
        self.keyspace.get()
    }

    /// What that keyspace shows at this moment.
    #[inline]
    pub fn view(&self) -> Option<Arc<View>> {
        self.keyspace.get().map(|keyspace| keyspace.view.load_full())
    }

    /// The same for who holds that moment.
    pub fn held_view(&self) -> Option<Arc<HeldView>> {
        self.keyspace.get().map(|keyspace| keyspace.view.load().held())
    }

    /// Takes the keyspace that they lie in, if it is this one.
    pub fn adopt(&self, core: &Arc<KeyspaceCore>) {
        if &*core.name == PIECES_KEYSPACE {
            let _ = self.keyspace.set(Arc::clone(core));
            self.expect_sweep();
        }
    }

    /// Values may have died.
    pub fn expect_sweep(&self) {
        if self.keyspace.get().is_some() {
            self.is_sweep_due.store(true, Relaxed);
            self.since_sweep.fetch_add(1, Relaxed);
        }
    }

    /// Whether a sweep should not wait any longer for the store to be idle.
    pub fn is_sweep_overdue(&self) -> bool {
        let heads = self.swept_heads.load(Relaxed);
        self.is_sweep_due() && self.since_sweep.load(Relaxed) >= OVERDUE.max(heads / HEADS_FOR_EACH)
    }

    /// What a sweep has seen.
    pub fn note_swept(&self, heads: u64) {
        self.swept_heads.store(heads, Relaxed);
    }

    /// Whether a sweep is worth while.
    pub fn is_sweep_due(&self) -> bool {
        self.is_sweep_due.load(Relaxed)
    }

    /// A sweep begins, until what this returns is dropped; `None` if one is under way.
    pub fn begin_sweep(&self) -> Option<Sweeping<'_>> {
        if self.is_sweeping.swap(true, AcqRel) {
            return None;
        }
        self.is_sweep_due.store(false, Relaxed);
        self.since_sweep.store(0, Relaxed);
        Some(Sweeping(self))
    }

    /// A value is being written until what this returns is dropped.
    pub fn enter(&self, value: u64) -> UnderwayPieces<'_> {
        self.underway.lock().insert(value);
        UnderwayPieces { pieces: self, value }
    }

    pub fn is_underway(&self, value: u64) -> bool {
        self.underway.lock().contains(&value)
    }
}

/// A sweep that is under way.
pub struct Sweeping<'p>(&'p Pieces);

impl Drop for Sweeping<'_> {
    fn drop(&mut self) {
        self.0.is_sweeping.store(false, Release);
    }
}

/// A value that is being written.
pub struct UnderwayPieces<'p> {
    pieces: &'p Pieces,
    pub value: u64,
}

impl Drop for UnderwayPieces<'_> {
    fn drop(&mut self) {
        self.pieces.underway.lock().remove(&self.value);
    }
}
