//! Edits of the manifest by background work, and the end of work that failed.

use testudo_base::{Error, ErrorKind, ExtentSpan, Result};
use testudo_storage::Change;
use testudo_store::{Store, background::drop_totals::Dropped, keyspace::KeyspaceCore};

/// Counts the entries dropped in a published state.
pub fn count_dropped(store: &Store, keyspace: &KeyspaceCore, dropped: Dropped) {
    keyspace.drops.add(dropped);
    store.counters.drops.add(dropped);
}

/// Commits an edit and applies its reference changes.
pub fn commit_edit(store: &Store, edit: &[Change]) -> Result<()> {
    let is_alone = store.log.wal.is_none();
    debug_assert!(is_alone || store.is_flush_locked(), "edits are committed one at a time");
    debug_assert!(!edit.is_empty() || is_alone, "an edit changes something");
    store.beginning.begin()?;
    store.manifest.commit(edit)?;
    store.data.extents().apply_durable(references_of(edit));
    store.nearly_full.note_edit();
    Ok(())
}

/// The changes to extent reference counts in an edit.
pub fn references_of(edit: &[Change]) -> impl Iterator<Item = (ExtentSpan, i32)> + '_ {
    edit.iter().filter_map(|change| match change {
        Change::References(span, delta) => Some((*span, *delta)),
        _ => None,
    })
}

/// Poisons the store unless the error is `OutOfSpace`: a failure for lack of space before anything was
/// committed is retried.
pub fn poison_unless_full(store: &Store, error: &Error) {
    if !is_full(error) {
        store.poison(error);
    }
}

pub fn is_full(error: &Error) -> bool {
    error.kind() == ErrorKind::OutOfSpace
}
