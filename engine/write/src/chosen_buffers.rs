//! The write buffers that a commit writes to.
//!
//! **Invariants**
//! - They are chosen in the section that assigns the commit's seqnos.

use std::ops::Deref;

use testudo_base::{Error, KeyspaceId, Kind, Result, Seqno, sync::Arc};
use testudo_store::{
    commits::batch_format::Operation,
    keyspace::{KeyspaceCore, View, WriteBuffer},
};

/// The buffers of a commit, one for each of its keyspaces.
pub enum ChosenBuffers<V> {
    /// The view pins its active buffer, without a reference count that all writers would change.
    One(V),
    Many(Vec<(KeyspaceId, Arc<WriteBuffer>)>),
}

/// Amount that a commit has inserted into its buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Bytes of keys and values.
    pub user_bytes: usize,
    /// Bytes by which the buffers grew.
    pub memory_bytes: usize,
}

/// The active buffers of these keyspaces. REQUIRES: the commit lock is held.
///
/// Errors: `Invalid` if one of them was dropped.
pub fn choose_buffers(
    keyspaces: &[Arc<KeyspaceCore>],
) -> Result<ChosenBuffers<impl Deref<Target = Arc<View>> + use<>>> {
    debug_assert!(!keyspaces.is_empty(), "a commit writes to a keyspace");
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
    /// Inserts the operations; the first has seqno `first`. Versions at or before `keep_from`, the newest
    /// snapshot, are kept. `is_buffered`: large values may go to value logs.
    #[inline]
    pub fn insert(
        &self,
        first: Seqno,
        operations: &[Operation<'_>],
        keep_from: Option<Seqno>,
        is_buffered: bool,
    ) -> Inserted {
        debug_assert!(first > Seqno(0), "seqnos begin at 1");
        debug_assert!(
            keep_from.is_none_or(|snapshot| snapshot < first),
            "a snapshot sees earlier commits only"
        );
        let mut inserted = Inserted::default();
        for (seqno, operation) in (first.0..).zip(operations) {
            let Operation { keyspace, kind, key, value } = *operation;
            let buffer = self.of(keyspace);
            let outcome = buffer.table.insert(Seqno(seqno), kind, key, value, keep_from);
            buffer.record_value(outcome.stacked_bytes.max(value.len()));
            if kind == Kind::Value && is_buffered {
                buffer.record_loggable(value);
            }
            inserted.memory_bytes += outcome.memory_bytes_added;
            inserted.user_bytes += key.len() + value.len();
        }
        inserted
    }

    /// The buffer of a keyspace. REQUIRES: the keyspace is one of the commit's.
    #[inline]
    pub fn of(&self, keyspace: KeyspaceId) -> &WriteBuffer {
        match self {
            Self::One(view) => &view.active,
            Self::Many(buffers) => {
                debug_assert!(buffers.len() > 1, "a commit to one keyspace pins its view");
                let found = buffers.iter().find(|(id, _)| *id == keyspace);
                &found.expect("every keyspace of a batch is listed").1
            }
        }
    }

    /// Visits every buffer with the index of its keyspace among those of the commit.
    #[inline]
    pub fn each(&self, mut visit: impl FnMut(usize, &WriteBuffer)) {
        match self {
            Self::One(view) => visit(0, &view.active),
            Self::Many(buffers) => {
                buffers.iter().enumerate().for_each(|(at, (_, buffer))| visit(at, buffer));
            }
        }
    }
}

/// The view whose active buffer a commit writes to.
fn choose_view(keyspace: &KeyspaceCore) -> Result<impl Deref<Target = Arc<View>> + use<>> {
    if keyspace.is_dropped() {
        return Err(Error::invalid(format!("the keyspace {:?} was dropped", keyspace.name)));
    }
    keyspace.record_write();
    Ok(keyspace.view.load())
}
