//! Warm restart: restores the caches after an open to their content at the last close (decision 0038).
//!
//! ```text
//! close, or periodically ─▶ write     pages and records in the caches ─▶ file `hot-set`
//! open ─▶ restore (find)  is it the file of this store; which keyspaces' records are valid?
//! first read ─▶ background ─▶ restore (some)  block by block ─▶ page cache, record cache
//! ```
//!
//! **Invariants**
//! - Nothing depends on the file: it is never synced, and a failure to read or write it is not an error.
//! - A page is restored only from the data file, verified, as a page of a run that a tree refers to.
//! - A record is restored only if its block is intact and its keyspace's tree is in the exact state for which
//!   the record was cached: same store, newest opening and flushed seqno. Keyspaces with a merge operator are
//!   excluded: another program may merge differently.
//! - Restoring never evicts anything and never delays a write buffer.

pub mod restore;
pub mod write;

use testudo_base::{Incarnation, KeyspaceId, Seqno, sync::Arc};
use testudo_storage::ManifestState;
use testudo_store::{Store, keyspace::KeyspaceCore};

/// State of a keyspace's tree, as far as cached records depend on it.
fn stamp_of(state: &ManifestState, keyspace: KeyspaceId) -> Option<(Incarnation, Seqno)> {
    let record = state.keyspaces.get(&keyspace)?;
    Some((newest_opening(state), record.flushed))
}

fn newest_opening(state: &ManifestState) -> Incarnation {
    state.openings.last().map(|opening| opening.incarnation).unwrap_or_default()
}

/// Whether a keyspace's records mean the same to every program.
fn has_plain_records(keyspace: &KeyspaceCore) -> bool {
    keyspace.view.load().options.merge_operator_name().is_none()
}

/// Number of user lookups so far.
pub fn look_ups(store: &Store) -> u64 {
    let cache = store.data.cache_stats();
    store.records.reads() + cache.hits + cache.misses
}

/// Keyspaces whose records may be saved.
pub fn plain_keyspaces(store: &Store) -> impl Iterator<Item = Arc<KeyspaceCore>> {
    store.keyspaces().into_iter().filter(|keyspace| has_plain_records(keyspace))
}
