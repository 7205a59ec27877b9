//! The value logs that an opening has found, and the values in them to which the log refers.
//!
//! **Invariants**
//! - A record of the log counts only if every value is there that it refers to.
//! - After a crash what was read may have stood in caches alone: it is written elsewhere before anything says
//!   that the log is durable as far as it was read.

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

/// Reads values of value logs.
#[derive(Debug, Default)]
pub struct FoundValues {
    readers: BTreeMap<RunId, ValueLogReader>,
}

impl FoundValues {
    fn add(&mut self, file: &Arc<dyn File>, store: StoreId, record: ValueLogRecord) {
        let id = record.id;
        self.readers.insert(id, ValueLogReader::new(Arc::clone(file), store, record));
    }

    /// Those of an open store.
    pub fn of_store(store: &Store) -> Self {
        let mut found = Self::default();
        for keyspace in store.keyspaces() {
            for log in keyspace.found_value_logs.lock().iter() {
                found.add(&store.data.shared_file(), store.id, log.clone());
            }
        }
        found
    }

    /// Those that a state of the manifest names, as far as it can be read.
    pub fn of_state(file: &Arc<dyn File>, store: StoreId, state: &ManifestState) -> Self {
        let mut found = Self::default();
        for &id in state.keyspaces.keys() {
            let records = testudo_separated::value_logs(&state.objects_of(id)).unwrap_or_default();
            records.into_iter().for_each(|record| found.add(file, store, record));
        }
        found
    }

    /// The value that a reference in the log leads to, if it is there.
    ///
    /// Errors: `Io` if it may be there, but the device does not give it now.
    pub fn read(&mut self, reference: &ValueReference) -> Result<Option<Vec<u8>>> {
        self.readers.get_mut(&reference.segment).map_or(Ok(None), |reader| reader.read(reference))
    }
}

/// Tells a keyspace of the value logs that its objects name.
///
/// Errors: `Corruption` if they contradict themselves or the live extents.
pub fn find_value_logs(store: &Store, keyspace: &KeyspaceCore, id: KeyspaceId) -> Result<()> {
    let objects = store.manifest.with_state(|state| state.objects_of(id));
    let damaged = |why| Error::new(ErrorKind::Corruption, format!("manifest: keyspace {id}: {why}"));
    let records = testudo_separated::value_logs(&objects).map_err(|Damage(why)| damaged(why))?;
    let mut spans = records.iter().flat_map(|record| &record.spans);
    if !spans.all(|span| store.data.extents().hold(*span).is_some()) {
        return Err(damaged("the space of a value log is not live"));
    }
    *keyspace.found_value_logs.lock() = records;
    Ok(())
}

/// Brings everything that came from value logs into the trees, so that it stands elsewhere, and is durable
/// there, and gives the value logs up. On a full device it stays in memory, and they stay.
pub fn settle_found_values(store: &Store) -> Result<()> {
    if !has_found_value_logs(store) {
        return Ok(());
    }
    match flush_recovered(store) {
        Err(error) if error.kind() == ErrorKind::OutOfSpace => return store.data.sync(),
        outcome => outcome?,
    }
    let found = |keyspace: Arc<KeyspaceCore>| std::mem::take(&mut *keyspace.found_value_logs.lock());
    let found: Vec<ValueLogRecord> = store.keyspaces().into_iter().flat_map(found).collect();
    store.beginning.begin()?;
    let edit: Vec<_> = found.iter().flat_map(release_value_log).collect();
    commit_edit(store, &edit)
}

/// Flushes everything that recovery has read so far. All keyspaces take part in one round, as far
/// as there is space.
pub fn flush_recovered(store: &Store) -> Result<()> {
    lock_and_hold_space(store)?;
    seal_all(store);
    while flush_sealed(store)? {}
    Ok(())
}
