//! Snapshots: the state of the store at one seqno, readable for as long as it is held.
//!
//! A snapshot pins a seqno (memtables keep the versions it may read) and, per keyspace, a view (which keeps
//! its tree). Taking one costs no I/O. Held for long, it costs disk space, and a little memory for each
//! keyspace written since (`held_views.rs` of `testudo-store`). The flushed write buffers it sees are spilled
//! to disk when memory is needed, once for all snapshots and iterators.
//!
//! **Invariants**
//! - It is registered and its views are pinned under the commit lock: no later commit has chosen its buffers
//!   yet.
//! - Before it is returned, every commit up to its seqno has reached the memtables.

use std::{mem, sync::Arc};

use testudo_base::{Error, Result, planted};
use testudo_run::KeyBounds;
use testudo_store::{
    read::{
        look_up::{self, Existence},
        slice::Slice,
    },
    snapshots::held_views::Views,
};

use crate::{
    Db, Entry, Iter, KeyRange, Keyspace, ReadView,
    db::{
        pinned::{Pinned, Registered},
        read_view::read_methods,
        value_reader::ValueReader,
    },
};

/// A consistent, read-only view of all keyspaces at one seqno. Clones are cheap. It can be sent to other
/// threads and can outlive every other handle.
#[derive(Clone, Debug)]
pub struct Snapshot {
    views: Arc<Views>,
    registered: Arc<Registered>,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if self.registered.open.store.is_forked() {
            mem::forget(Arc::clone(&self.views));
        }
    }
}

impl Snapshot {
    pub(crate) fn take(db: &Db) -> Result<Self> {
        let store = db.store();
        store.check_open()?;
        let commit = store.commits.lock();
        let seqno = store.last_seqno();
        if !planted!("snapshot-registered-late") {
            store.snapshots.register(seqno);
        }
        let views = store.snapshots.holdings.hold(&store.catalogue.read());
        drop(commit);
        if planted!("snapshot-registered-late") {
            store.snapshots.register(seqno);
        }
        let registered = Arc::new(Registered { open: Arc::clone(&db.open), seqno });
        store.commits.wait_for(seqno);
        Ok(Self { views, registered })
    }

    /// The views of all keyspaces in the snapshot.
    pub(crate) fn views(&self) -> &Arc<Views> {
        &self.views
    }

    /// Returns the sequence number (seqno) of the last commit that the snapshot shows.
    pub fn seqno(&self) -> u64 {
        self.registered.seqno.0
    }

    /// Returns one keyspace as the snapshot shows it.
    ///
    /// Errors: `Invalid` if the keyspace did not exist at the time, or belongs to another store; `Closed` in
    /// a forked child.
    pub fn keyspace(&self, keyspace: &Keyspace) -> Result<SnapshotKeyspace> {
        self.registered.open.store.health.check_process()?;
        let is_ours = Arc::ptr_eq(&keyspace.db.open, &self.registered.open);
        let views = self.views();
        let view = views.get(keyspace.core.id).filter(|_| is_ours).ok_or_else(|| {
            Error::invalid(format!("the snapshot has no keyspace {:?}", keyspace.core.name))
        })?;
        let long_values = self.registered.open.store.long_values.keyspace();
        let pinned = Pinned {
            view: Arc::clone(view),
            long_values: long_values.and_then(|keyspace| views.get(keyspace.id)).cloned(),
            seqno: self.registered.seqno,
            keyspace: Arc::clone(&keyspace.core.name),
            gaps: keyspace.core.gaps(&keyspace.db.store().gap_bytes),
            core: Arc::downgrade(&keyspace.core),
            registered: Arc::clone(&self.registered),
        };
        Ok(SnapshotKeyspace(Arc::new(pinned)))
    }

    /// As [`ReadView::contains_key`](crate::ReadView::contains_key), as of the snapshot.
    ///
    /// Errors: as [`Snapshot::keyspace`] and [`ReadView::contains_key`](crate::ReadView::contains_key).
    pub fn contains_key(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        self.keyspace(keyspace)?.contains_key(key)
    }

    /// As [`ReadView::get`](crate::ReadView::get), as of the snapshot.
    ///
    /// Errors: as [`Snapshot::keyspace`] and [`ReadView::get`](crate::ReadView::get).
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.keyspace(keyspace)?.get(key)
    }

    /// As [`ReadView::multi_get`](crate::ReadView::multi_get), as of the snapshot.
    ///
    /// Errors: as [`Snapshot::keyspace`] and [`ReadView::multi_get`](crate::ReadView::multi_get).
    pub fn multi_get<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.keyspace(keyspace)?.multi_get(keys)
    }

    /// As [`ReadView::range`](crate::ReadView::range), as of the snapshot.
    ///
    /// Errors: as [`Snapshot::keyspace`] and [`ReadView::range`](crate::ReadView::range).
    pub fn range(&self, keyspace: &Keyspace, range: impl KeyRange) -> Result<Iter> {
        self.keyspace(keyspace)?.range(range)
    }

    /// As [`ReadView::prefix`](crate::ReadView::prefix), as of the snapshot.
    ///
    /// Errors: as [`Snapshot::keyspace`] and [`ReadView::prefix`](crate::ReadView::prefix).
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.keyspace(keyspace)?.prefix(prefix)
    }

    /// As [`ReadView::iter`](crate::ReadView::iter), as of the snapshot.
    ///
    /// Errors: as [`Snapshot::keyspace`] and [`ReadView::iter`](crate::ReadView::iter).
    pub fn iter(&self, keyspace: &Keyspace) -> Result<Iter> {
        self.keyspace(keyspace)?.iter()
    }
}

/// One keyspace as a snapshot shows it.
#[derive(Clone, Debug)]
pub struct SnapshotKeyspace(Arc<Pinned>);

impl SnapshotKeyspace {
    read_methods!();
}

impl ReadView for SnapshotKeyspace {
    fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        self.0.get(key)
    }

    fn get_reader(&self, key: &[u8]) -> Result<Option<ValueReader>> {
        ValueReader::of_key(&self.0, key)
    }

    fn contains_key(&self, key: &[u8]) -> Result<bool> {
        self.0.read(|| look_up::find::<Existence>(&*self.0.view, key, self.0.seqno))
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Slice>>> {
        self.0.multi_get(keys)
    }

    fn range(&self, range: KeyBounds) -> Result<Iter> {
        self.0.store().check_open()?;
        Ok(Iter::new(Arc::clone(&self.0), range))
    }
}
