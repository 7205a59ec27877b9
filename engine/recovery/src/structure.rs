//! Checks the structure of an open store in memory: its trees, and their reference counts.
//!
//! **Invariants**
//! - Background work is blocked only while references are counted.

use std::collections::BTreeMap;

use testudo_base::{Error, ErrorKind, ExtentSpan, Result, sync::Arc};
use testudo_store::Store;

/// Checks every tree and the reference counts; fails with the first finding.
pub fn check_structure(store: &Store, deep: bool) -> Result<()> {
    for keyspace in store.keyspaces() {
        let tree = Arc::clone(&keyspace.view.load().tree);
        tree.check_invariants(deep).map_err(|error| error.in_keyspace(&keyspace.name))?;
    }
    check_references(store)
}

/// Counts the references of all trees and compares them with the manifest and the extent table.
pub fn check_references(store: &Store) -> Result<()> {
    let _flush = store.flush_lock.lock();
    if store.has_failed() {
        return Ok(());
    }
    let mut counted: BTreeMap<ExtentSpan, u32> = BTreeMap::new();
    for keyspace in store.keyspaces() {
        for span in keyspace.view.load().tree.references() {
            *counted.entry(span).or_default() += 1;
        }
        let commit = store.commits.lock();
        let value_logs = keyspace.value_logs();
        drop(commit);
        for span in value_logs.into_iter().flat_map(|log| log.spans) {
            *counted.entry(span).or_default() += 1;
        }
    }
    let stated: BTreeMap<ExtentSpan, u32> = store.manifest.with_state(|state| state.live_spans().collect());
    let live: BTreeMap<ExtentSpan, u32> = store.data.extents().references().into_iter().collect();
    if counted != stated {
        return Err(Error::new(ErrorKind::Corruption, "manifest: references do not match the trees"));
    }
    if stated != live {
        return Err(Error::new(ErrorKind::Corruption, "the extent table does not match the manifest"));
    }
    Ok(())
}
