//! The write buffers that a commit writes into.
//!
//! **Invariants**
//! - They are chosen in the section that assigns the commit's seqnos.

use std::ops::Deref;

use testudo_base::{Error, KeyspaceId, Result, sync::Arc};

use crate::store::view::{KeyspaceCore, View, WriteBuffer};

/// The buffers of a commit, one for each of its keyspaces.
pub(crate) enum ChosenBuffers<V> {
    /// Whoever keeps the view keeps its active buffer, without a counter that all writers would change.
    One(V),
    Many(Vec<(KeyspaceId, Arc<WriteBuffer>)>),
}

/// The active buffers of these keyspaces. REQUIRES: the commit lock is held.
///
/// Errors: `Invalid` if one of them was dropped.
pub(crate) fn choose_buffers(
    keyspaces: &[Arc<KeyspaceCore>],
) -> Result<ChosenBuffers<impl Deref<Target = Arc<View>> + use<>>> {
    if let [keyspace] = keyspaces {
        return Ok(ChosenBuffers::One(choose_view(keyspace)?));
    }
    let mut buffers = Vec::with_capacity(keyspaces.len());
    for keyspace in keyspaces {
        buffers.push((keyspace.id, Arc::clone(&choose_view(keyspace)?.active)));
    }
    Ok(ChosenBuffers::Many(buffers))
}

impl<V: Deref<Target = Arc<View>>> ChosenBuffers<V> {
    /// The buffer of a keyspace. REQUIRES: it is one of the commit's.
    #[inline]
    pub(crate) fn of(&self, keyspace: KeyspaceId) -> &WriteBuffer {
        match self {
            Self::One(view) => &view.active,
            Self::Many(buffers) => {
                let found = buffers.iter().find(|(id, _)| *id == keyspace);
                &found.expect("every keyspace of a batch is listed").1
            }
        }
    }

    /// Visits every buffer with the place of its keyspace among those of the commit.
    #[inline]
    pub(crate) fn each(&self, mut visit: impl FnMut(usize, &WriteBuffer)) {
        match self {
            Self::One(view) => visit(0, &view.active),
            Self::Many(buffers) => {
                buffers.iter().enumerate().for_each(|(at, (_, buffer))| visit(at, buffer));
            }
        }
    }
}

/// The view whose active buffer a commit writes into.
fn choose_view(keyspace: &KeyspaceCore) -> Result<impl Deref<Target = Arc<View>> + use<>> {
    if keyspace.is_dropped() {
        return Err(Error::invalid(format!("the keyspace {:?} was dropped", keyspace.name)));
    }
    keyspace.record_write();
    Ok(keyspace.view.load())
}
