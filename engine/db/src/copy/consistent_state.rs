//! The whole store at one commit, in the shape in which it can be copied: runs, objects, and what no tree
//! holds yet.
//!
//! Under `flush_lock` no tree changes, so that the manifest's state and the views of a snapshot taken there
//! are the same trees. The snapshot keeps their runs, and so their pages, for as long as they are read; what
//! its write buffers hold up to its seqno is the tail.
//!
//! **Invariants**
//! - State plus runs plus tail is exactly the snapshot.
//! - No lock is held after [`ConsistentState::take`] returned: writers and the background go on.

use std::collections::BTreeMap;

use testudo_base::{Cursor, Error, ErrorKind, Result, RunId, Seqno, sync::Arc};
use testudo_contract::Part;
use testudo_flush::seal::begin_value_log::without_value_logs;
use testudo_run::{MergeCursor, Run};
use testudo_storage::ManifestState;
use testudo_store::{commits::batch_format::Operation, snapshots::held_views::Views};

use crate::{Db, Snapshot};

/// A store at one commit.
#[derive(Debug)]
pub struct ConsistentState {
    /// Keeps the state readable.
    pub snapshot: Snapshot,
    /// Of the trees of `state`, and with the write buffers that hold the rest.
    views: Arc<Views>,
    /// Catalogue, objects and references of exactly the trees that the snapshot shows.
    pub state: ManifestState,
    /// Every run of those trees, by id.
    pub runs: Vec<Arc<Run>>,
}

impl ConsistentState {
    /// The state of this moment.
    ///
    /// Errors: `Poisoned` after a failure in the background, because the manifest may then be ahead of the
    /// trees.
    pub fn take(db: &Db) -> Result<Self> {
        let store = db.store();
        let round = store.flush_lock.lock();
        if store.has_failed() {
            let message = "the store must be reopened first: a failure in the background stopped its writes";
            return Err(Error::new(ErrorKind::Poisoned, message));
        }
        let snapshot = Snapshot::take(db)?;
        let views = Arc::clone(snapshot.views());
        let mut state = store.manifest.with_state(Clone::clone);
        // What they hold is in the tail.
        for keyspace in store.keyspaces() {
            state.apply_all(&without_value_logs(store, &keyspace))?;
        }
        drop(round);
        let runs: BTreeMap<RunId, Arc<Run>> = views
            .iter()
            .flat_map(|(_, view)| view.tree.parts())
            .map(|Part::Run(run)| (run.reference().id, run))
            .collect();
        Ok(Self { snapshot, views, state, runs: runs.into_values().collect() })
    }

    /// The last commit that it holds.
    pub fn seqno(&self) -> Seqno {
        Seqno(self.snapshot.seqno())
    }

    /// Bytes of all runs.
    pub fn run_bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.reference().stored_bytes()).sum()
    }

    /// The newest operation on each key that is in no tree, tombstones included, keyspace by keyspace in key
    /// order.
    pub fn for_each_tail(&self, mut act: impl FnMut(Operation<'_>) -> Result<()>) -> Result<()> {
        for (keyspace, view) in self.views.iter() {
            let buffers = view.buffers.iter().filter_map(|buffer| buffer.cursor(self.seqno()));
            let mut cursor = MergeCursor::new(buffers.collect());
            cursor.seek_first()?;
            while let Some(entry) = cursor.entry() {
                act(Operation { keyspace, kind: entry.kind, key: entry.key, value: entry.value })?;
                cursor.next()?;
            }
        }
        Ok(())
    }
}
