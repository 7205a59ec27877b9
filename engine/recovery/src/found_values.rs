//! Value logs found on open, and their values that the log refers to.
//!
//! **Invariants**
//! - A log record is valid only if every value that it refers to is present.
//! - After a crash the values read may exist only in volatile caches: they are written elsewhere before the
//!   log is stated as durable that far.

use std::collections::BTreeMap;

use testudo_base::{
    Error, ErrorKind, KeyspaceId, Result, RunId, StoreId, ValueReference, codec::Damage, sync::Arc,
};
use testudo_env::File;
use testudo_flush::{
    manifest_edit::commit_edit,
    round::flush_sealed::flush_sealed,
    seal::{begin_value_log::has_found_value_logs, seal_buffers::seal_all},
    space::hold_space::lock_and_hold_space,
};
use testudo_separated::release_value_log;
use testudo_storage::ManifestState;
use testudo_store::{Store, keyspace::KeyspaceCore};
use testudo_values::{ValueLogReader, ValueLogRecord};

/// Reads the values of value logs.
#[derive(Debug, Default)]
pub struct FoundValues {
    readers: BTreeMap<RunId, ValueLogReader>,
}

impl FoundValues {
    fn add(&mut self, file: &Arc<dyn File>, store: StoreId, record: ValueLogRecord) {
        let id = record.id;
        self.readers.insert(id, ValueLogReader::new(Arc::clone(file), store, record));
    }

    /// The value logs of an open store.
    pub fn of_store(store: &Store) -> Self {
        let mut found = Self::default();
        for keyspace in store.keyspaces() {
            for log in keyspace.found_value_logs.lock().iter() {
                found.add(&store.data.shared_file(), store.id, log.clone());
            }
        }
        found
    }

    /// The value logs named by a manifest state, as far as they are readable.
    pub fn of_state(file: &Arc<dyn File>, store: StoreId, state: &ManifestState) -> Self {
        let mut found = Self::default();
        for &id in state.keyspaces.keys() {
            let records = testudo_separated::value_logs(&state.objects_of(id)).unwrap_or_default();
            records.into_iter().for_each(|record| found.add(file, store, record));
        }
        found
    }

    /// Returns the value for a reference in the log, if it is present.
    ///
    /// Errors: `Io` if the value may be present but the device cannot read it now.
    pub fn read(&mut self, reference: &ValueReference) -> Result<Option<Vec<u8>>> {
        self.readers.get_mut(&reference.segment).map_or(Ok(None), |reader| reader.read(reference))
    }
}

/// Registers the value logs that a keyspace's objects name.
///
/// Errors: `Corruption` if they contradict each other or the live extents.
pub fn find_value_logs(store: &Store, keyspace: &KeyspaceCore, id: KeyspaceId) -> Result<()> {
    let objects = store.manifest.with_state(|state| state.objects_of(id));
    let damaged = |why| Error::new(ErrorKind::Corruption, format!("manifest: keyspace {id}: {why}"));
    let records = testudo_separated::value_logs(&objects).map_err(|Damage(why)| damaged(why))?;
    let mut spans = records.iter().flat_map(|record| &record.spans);
    if !spans.all(|span| store.data.extents().hold(*span).is_some()) {
        return Err(damaged("the extents of a value log are not live"));
    }
    *keyspace.found_value_logs.lock() = records;
    Ok(())
}

/// Flushes all values recovered from value logs into the trees, where they are durable, and releases the
/// value logs. On a full device the values stay in memory, and the value logs stay.
pub fn settle_found_values(store: &Store) -> Result<()> {
    if !has_found_value_logs(store) {
        return Ok(());
    }
    match flush_recovered(store) {
        Err(error) if error.kind() == ErrorKind::OutOfSpace => return store.data.sync(),
        outcome => outcome?,
    }
    debug_assert!(store.log.wal.is_none(), "recovered values are settled before the new log begins");
    let found = |keyspace: Arc<KeyspaceCore>| std::mem::take(&mut *keyspace.found_value_logs.lock());
    let found: Vec<ValueLogRecord> = store.keyspaces().into_iter().flat_map(found).collect();
    store.beginning.begin()?;
    let edit: Vec<_> = found.iter().flat_map(release_value_log).collect();
    commit_edit(store, &edit)
}

/// Flushes everything recovered so far. All keyspaces share one round, as far as there is space.
pub fn flush_recovered(store: &Store) -> Result<()> {
    lock_and_hold_space(store)?;
    seal_all(store);
    while flush_sealed(store)? {}
    Ok(())
}
