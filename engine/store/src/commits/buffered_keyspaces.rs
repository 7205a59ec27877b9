//! The keyspaces that have something in write buffers: among thousands they are few, and flushes, seals and
//! the log look at no others.
//!
//! **Invariants**
//! - A keyspace of the catalogue of which a commit has chosen a buffer that is not flushed is listed. It
//!   enters and leaves under the commit lock.

use std::collections::BTreeMap;

use testudo_base::{
    KeyspaceId,
    sync::{Arc, Mutex},
};

use crate::keyspace::KeyspaceCore;

/// Keyspaces with write buffers that are not empty.
#[derive(Debug, Default)]
pub struct BufferedKeyspaces(Mutex<BTreeMap<KeyspaceId, Arc<KeyspaceCore>>>);

impl BufferedKeyspaces {
    /// A commit has chosen a buffer of it that had none before.
    pub fn insert(&self, keyspace: &Arc<KeyspaceCore>) {
        self.0.lock().insert(keyspace.id, Arc::clone(keyspace));
    }

    /// It is not in the catalogue any more.
    pub fn remove(&self, keyspace: KeyspaceId) {
        self.0.lock().remove(&keyspace);
    }

    /// A buffer of it was flushed.
    pub fn remove_if_empty(&self, keyspace: &KeyspaceCore) {
        let view = keyspace.view.load();
        if view.sealed.is_empty() && view.active.first_commit().is_none() {
            self.remove(keyspace.id);
        }
    }

    /// All of them, in the order of their ids.
    pub fn all(&self) -> Vec<Arc<KeyspaceCore>> {
        self.0.lock().values().cloned().collect()
    }
}
