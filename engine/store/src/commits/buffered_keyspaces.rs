//! The keyspaces with non-empty write buffers, and those with sealed ones. Among thousands of keyspaces both
//! are few: the log visits only the first, flushes only the second.
//!
//! **Invariants**
//! - A keyspace of the catalogue is listed if a commit has chosen one of its buffers that is not flushed yet.
//!   It is inserted and removed under the commit lock.
//! - A listed keyspace counts as sealed exactly while it has a sealed buffer, outside of the commit lock.

use std::collections::BTreeMap;

use testudo_base::{
    KeyspaceId,
    sync::{Arc, Mutex},
};

use crate::keyspace::KeyspaceCore;

type Keyspaces = BTreeMap<KeyspaceId, Arc<KeyspaceCore>>;

/// Keyspaces with non-empty write buffers.
#[derive(Debug, Default)]
pub struct BufferedKeyspaces {
    all: Mutex<Keyspaces>,
    sealed: Mutex<Keyspaces>,
}

impl BufferedKeyspaces {
    /// Adds a keyspace when a commit first chooses one of its buffers.
    pub fn insert(&self, keyspace: &Arc<KeyspaceCore>) {
        debug_assert!(!keyspace.is_dropped(), "no commit chooses a buffer of a dropped keyspace");
        self.all.lock().insert(keyspace.id, Arc::clone(keyspace));
    }

    /// Records that a buffer of a listed keyspace was sealed.
    pub fn note_sealed(&self, keyspace: &KeyspaceCore) {
        debug_assert!(!keyspace.view.load().sealed.is_empty(), "one of its buffers is sealed");
        // A keyspace that was dropped meanwhile is flushed no more.
        let listed = self.all.lock().get(&keyspace.id).cloned();
        if let Some(listed) = listed {
            self.sealed.lock().insert(listed.id, listed);
        }
    }

    /// Removes a keyspace that is no longer in the catalogue.
    pub fn remove(&self, keyspace: KeyspaceId) {
        self.sealed.lock().remove(&keyspace);
        self.all.lock().remove(&keyspace);
    }

    /// Records that a sealed buffer of a keyspace was flushed.
    pub fn note_flushed(&self, keyspace: &KeyspaceCore) {
        let view = keyspace.view.load();
        if view.sealed.is_empty() {
            self.sealed.lock().remove(&keyspace.id);
            if view.active.first_commit().is_none() {
                self.all.lock().remove(&keyspace.id);
            }
        }
    }

    /// All of them, in order of their ids.
    pub fn all(&self) -> Vec<Arc<KeyspaceCore>> {
        self.all.lock().values().cloned().collect()
    }

    /// Those with sealed buffers, in order of their ids.
    pub fn sealed(&self) -> Vec<Arc<KeyspaceCore>> {
        self.sealed.lock().values().cloned().collect()
    }

    /// Whether exactly the listed keyspaces with sealed buffers count as sealed. REQUIRES: the commit lock is
    /// held.
    pub fn is_consistent(&self) -> bool {
        let has_sealed = |keyspace: &Arc<KeyspaceCore>| !keyspace.view.load().sealed.is_empty();
        let all = self.all();
        let expected = all.iter().filter(|keyspace| has_sealed(keyspace)).map(|keyspace| keyspace.id);
        expected.eq(self.sealed().iter().map(|keyspace| keyspace.id))
    }

    /// Whether any buffer is sealed.
    pub fn has_sealed(&self) -> bool {
        !self.sealed.lock().is_empty()
    }
}
