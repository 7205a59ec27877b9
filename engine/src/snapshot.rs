//! Snapshots: the state of the store at one seqno, for as long as it is held.
//!
//! A snapshot pins a seqno (memtables keep what it may need) and, per keyspace, a view (whose tree it keeps alive). It
//! costs no I/O; held long, it costs disk space and the memory of the memtables that it pins.
//!
//! **Invariants**
//! - It is registered under the commit lock, where its views are pinned too: no later commit has chosen its buffers yet.
//! - Before it is handed out, every commit up to its seqno has reached the memtables.

use std::{collections::BTreeMap, ops::RangeBounds, sync::Arc};

use testudo_base::{Error, KeyspaceId, Result, Seqno, planted};

use crate::{
    Db, Iter, Keyspace, Read, Slice,
    db::Open,
    iter::{bounds_of, bounds_of_prefix},
    read,
    view::View,
};

/// A registered seqno; its drop releases it.
#[derive(Debug)]
struct Registered {
    open: Arc<Open>,
    seqno: Seqno,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.open.store.snapshots.release(self.seqno);
    }
}

/// One keyspace at one seqno.
#[derive(Debug)]
pub(crate) struct Pinned {
    // Dropped before the registration that protects it.
    pub(crate) view: Arc<View>,
    pub(crate) seqno: Seqno,
    _registered: Arc<Registered>,
}

impl Pinned {
    /// Pins the present state of one keyspace.
    pub(crate) fn now(keyspace: &Keyspace) -> Arc<Self> {
        let store = keyspace.db.store();
        let commit = store.commit.lock();
        let seqno = store.last_seqno();
        store.snapshots.register(seqno);
        let view = keyspace.core.view.load_full();
        drop(commit);
        let registered = Registered { open: Arc::clone(&keyspace.db.open), seqno };
        store.in_flight.wait_for(seqno);
        Arc::new(Self { view, seqno, _registered: Arc::new(registered) })
    }
}

/// The state of a store at one moment. Clones are cheap; it may be sent to other threads and outlive every other handle.
#[derive(Clone, Debug)]
pub struct Snapshot {
    views: Arc<BTreeMap<KeyspaceId, Arc<View>>>,
    registered: Arc<Registered>,
}

impl Snapshot {
    pub(crate) fn take(db: &Db) -> Result<Self> {
        let store = db.store();
        let commit = store.commit.lock();
        let seqno = store.last_seqno();
        if !planted!("snapshot-registered-late") {
            store.snapshots.register(seqno);
        }
        let catalogue = store.catalogue.read();
        let views = catalogue.by_id.iter().map(|(&id, core)| (id, core.view.load_full())).collect();
        drop(catalogue);
        drop(commit);
        if planted!("snapshot-registered-late") {
            store.snapshots.register(seqno);
        }
        let registered = Arc::new(Registered { open: Arc::clone(&db.open), seqno });
        store.in_flight.wait_for(seqno);
        Ok(Self { views: Arc::new(views), registered })
    }

    /// Every keyspace of that moment.
    pub(crate) fn views(&self) -> impl Iterator<Item = (KeyspaceId, &Arc<View>)> {
        self.views.iter().map(|(&id, view)| (id, view))
    }

    /// Number of the last commit that it shows.
    pub fn seqno(&self) -> u64 {
        self.registered.seqno.0
    }

    /// One keyspace of the snapshot.
    ///
    /// Errors: `Invalid` if the keyspace did not exist then, or is of another store.
    pub fn of(&self, keyspace: &Keyspace) -> Result<SnapshotKeyspace> {
        let is_ours = Arc::ptr_eq(&keyspace.db.open, &self.registered.open);
        let view = self.views.get(&keyspace.core.id).filter(|_| is_ours).ok_or_else(|| {
            Error::invalid(format!("the snapshot has no keyspace {:?}", keyspace.core.name))
        })?;
        let pinned = Pinned {
            view: Arc::clone(view),
            seqno: self.registered.seqno,
            _registered: Arc::clone(&self.registered),
        };
        Ok(SnapshotKeyspace(Arc::new(pinned)))
    }

    /// As [`Read::get`], as of the snapshot.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.of(keyspace)?.get(key)
    }

    /// As [`Read::multi_get`], as of the snapshot.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.of(keyspace)?.multi_get(keys)
    }

    /// As [`Read::range`], as of the snapshot.
    pub fn range<K: AsRef<[u8]>, R: RangeBounds<K>>(&self, keyspace: &Keyspace, range: R) -> Result<Iter> {
        self.of(keyspace)?.range(range)
    }

    /// As [`Read::prefix`], as of the snapshot.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.of(keyspace)?.prefix(prefix)
    }

    /// As [`Read::iter`], as of the snapshot.
    pub fn iter(&self, keyspace: &Keyspace) -> Result<Iter> {
        self.of(keyspace)?.iter()
    }
}

/// One keyspace as a snapshot shows it.
#[derive(Clone, Debug)]
pub struct SnapshotKeyspace(Arc<Pinned>);

impl Read for SnapshotKeyspace {
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let later = u64::from(planted!("snapshot-sees-later-commit"));
        read::get(&self.0.view, key.as_ref(), Seqno(self.0.seqno.0 + later))
    }

    fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        read::multi_get(&self.0.view, keys, self.0.seqno)
    }

    fn range<K: AsRef<[u8]>, R: RangeBounds<K>>(&self, range: R) -> Result<Iter> {
        Ok(Iter::new(Arc::clone(&self.0), bounds_of(&range)))
    }

    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        Ok(Iter::new(Arc::clone(&self.0), bounds_of_prefix(prefix.as_ref())))
    }
}
