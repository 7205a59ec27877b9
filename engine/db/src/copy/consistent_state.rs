//! The whole store at one commit, in a form that can be copied: runs, objects, and writes that are in no tree
//! yet.
//!
//! Under `flush_lock` no tree changes, so the manifest's state and the views of a snapshot taken there
//! describe the same trees. The snapshot keeps their runs, and so their pages, while they are read. The
//! contents of its write buffers up to its seqno are the tail.
//!
//! **Invariants**
//! - State plus runs plus tail is exactly the snapshot.
//! - No lock is held after [`ConsistentState::take`] returns: writers and background work continue.

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
    /// Views of the trees of `state`, with the write buffers that hold the tail.
    views: Arc<Views>,
    /// Catalogue, objects and references of exactly the trees that the snapshot shows.
    pub state: ManifestState,
    /// Every run of those trees, by id.
    pub runs: Vec<Arc<Run>>,
}

impl ConsistentState {
    /// Captures the current state.
    ///
    /// Errors: `Closed`; `Poisoned` after a background failure, because the manifest may then be ahead of the
    /// trees.
    pub fn take(db: &Db) -> Result<Self> {
        let store = db.store();
        let (round, catalogue) = (store.flush_lock.lock(), store.catalogue_lock.lock());
        if store.has_failed() {
            let message = "a background failure stopped the writes of the store; reopen it first";
            return Err(Error::new(ErrorKind::Poisoned, message));
        }
        let snapshot = Snapshot::take(db)?;
        let views = Arc::clone(snapshot.views());
        let mut state = store.manifest.with_state(Clone::clone);
        // The contents of value logs are in the tail.
        for keyspace in store.keyspaces() {
            state.apply_all(&without_value_logs(store, &keyspace))?;
        }
        debug_assert!(
            state.keyspaces.values().all(|keyspace| keyspace.flushed.0 <= snapshot.seqno()),
            "the trees hold nothing after the snapshot"
        );
        debug_assert!(state.log_seqno.0 <= snapshot.seqno(), "the log begins before the snapshot");
        drop((round, catalogue));
        let runs: BTreeMap<RunId, Arc<Run>> = views
            .iter()
            .flat_map(|(_, view)| view.tree.parts())
            .map(|Part::Run(run)| (run.reference().id, run))
            .collect();
        Ok(Self { snapshot, views, state, runs: runs.into_values().collect() })
    }

    /// Returns the seqno of the last commit in the state.
    pub fn seqno(&self) -> Seqno {
        Seqno(self.snapshot.seqno())
    }

    /// Returns the bytes of all runs.
    pub fn run_bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.reference().stored_bytes()).sum()
    }

    /// Calls `act` with the newest operation on each key of the tail, tombstones included, keyspace by
    /// keyspace in key order.
    ///
    /// Errors: those of `act` and of reading spilled write buffers.
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
