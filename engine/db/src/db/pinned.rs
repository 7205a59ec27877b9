//! One keyspace pinned at one seqno, for reads.
//!
//! **Invariants**
//! - It is registered and its view is pinned under the commit lock: no later commit has chosen its buffers
//!   yet.
//! - Before it is returned, every commit up to its seqno has reached the memtables.

use std::{
    mem,
    sync::{Arc, Weak},
};

use testudo_base::{Result, Seqno, ValueReference, planted};
use testudo_store::{
    Store,
    gaps::Gaps,
    keyspace::KeyspaceCore,
    read::{
        long_value::read_whole,
        look_up::{self, Found, Value},
        slice::Slice,
    },
    snapshots::held_view::HeldView,
};

use crate::db::Open;

/// A registered seqno, released on drop.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) open: Arc<Open>,
    pub(crate) seqno: Seqno,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if !self.open.store.is_forked() {
            self.open.store.snapshots.release(self.seqno);
        }
    }
}

/// One keyspace at one seqno.
#[derive(Debug)]
pub(crate) struct Pinned {
    // Dropped before the registration that protects it.
    pub(crate) view: Arc<HeldView>,
    /// The keyspace of long values, if there is one.
    pub(crate) long_values: Option<Arc<HeldView>>,
    pub(crate) seqno: Seqno,
    /// Name of the keyspace.
    pub(crate) keyspace: Arc<str>,
    pub(crate) gaps: Arc<Gaps>,
    /// Weak, because it refers to the current write buffers, which a snapshot must not keep in memory.
    pub(crate) core: Weak<KeyspaceCore>,
    pub(crate) registered: Arc<Registered>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.store().is_forked() {
            mem::forget((Arc::clone(&self.view), self.long_values.clone()));
        }
    }
}

impl Pinned {
    /// Pins the current state of one keyspace.
    ///
    /// Errors: `Closed`.
    pub(crate) fn now(open: &Arc<Open>, core: &Arc<KeyspaceCore>) -> Result<Arc<Self>> {
        let store = &open.store;
        store.check_open()?;
        let commit = store.commits.lock();
        let seqno = store.last_seqno();
        store.snapshots.register(seqno);
        let (view, long_values) = (core.view.load().held(), store.long_values.held_view());
        drop(commit);
        let registered = Registered { open: Arc::clone(open), seqno };
        store.commits.wait_for(seqno);
        let (name, gaps) = (Arc::clone(&core.name), core.gaps(&store.gap_bytes));
        let (core, registered) = (Arc::downgrade(core), Arc::new(registered));
        Ok(Arc::new(Self { view, long_values, seqno, keyspace: name, gaps, core, registered }))
    }

    /// The store of the keyspace.
    pub(crate) fn store(&self) -> &Store {
        &self.registered.open.store
    }

    /// Runs a read of the keyspace.
    pub(crate) fn read<R>(&self, read: impl FnOnce() -> Result<R>) -> Result<R> {
        self.store().read_of(&self.keyspace, read)
    }

    /// Looks up `key`.
    pub(crate) fn find(&self, key: &[u8]) -> Result<Found> {
        let later = u64::from(planted!("snapshot-sees-later-commit"));
        look_up::find::<Value>(&*self.view, key, Seqno(self.seqno.0 + later))
    }

    /// Returns the value of `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        self.read(|| self.whole(self.find(key)?))
    }

    /// Reads the value that a look-up has found, if it is a long one.
    fn whole(&self, found: Found) -> Result<Option<Slice>> {
        match found {
            Found::Whole(value) => Ok(value),
            Found::Long(reference) => self.read_whole(&reference).map(Some),
        }
    }

    /// Returns the whole value that a reference points to.
    pub(crate) fn read_whole(&self, reference: &ValueReference) -> Result<Slice> {
        let limit = self.store().memory.max_value_bytes();
        read_whole(self.long_values.as_deref(), self.seqno, reference, limit)
    }

    /// Returns the values of `keys`.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.read(|| {
            let found = look_up::multi_get(&*self.view, keys, self.seqno)?;
            found.into_iter().map(|found| self.whole(found)).collect()
        })
    }

    /// The handle that keeps the store open.
    pub(crate) fn open(&self) -> &Arc<Open> {
        &self.registered.open
    }
}
