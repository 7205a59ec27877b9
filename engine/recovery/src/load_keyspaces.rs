//! Opens the keyspaces of the catalogue.

use testudo_base::{Error, KeyspaceId, Result, sync::Arc};
use testudo_options::{
    StoredOptions,
    stored_tree::{CATALOGUE, stored_tree},
};
use testudo_store::{
    Store,
    memory::metadata::{fit_caches, note_tree},
};

use crate::found_values::find_value_logs;

/// Opens the trees of all keyspaces of the catalogue.
pub fn load_keyspaces(store: &Store) -> Result<()> {
    let ids: Vec<KeyspaceId> = store.manifest.with_state(|state| state.keyspaces.keys().copied().collect());
    let mut catalogue = store.catalogue.write();
    debug_assert!(catalogue.by_id.is_empty(), "keyspaces are loaded once");
    for id in ids {
        // Copies one keyspace at a time: there may be thousands.
        let (record, objects) =
            store.manifest.with_state(|state| (state.keyspaces[&id].clone(), state.objects_of(id)));
        let options = StoredOptions::decode(&record.options).map_err(|why| why.into_error(CATALOGUE, id))?;
        let tree = stored_tree(&store.data, &options, id, objects);
        let tree = tree.map_err(|error| error.in_keyspace(&record.name))?;
        note_tree(store, &*tree);
        let core = store.new_keyspace(id, &record.name, options, tree);
        if catalogue.by_name.insert(Arc::clone(&core.name), Arc::clone(&core)).is_some() {
            return Err(Error::corruption(CATALOGUE, 0, "two keyspaces have the same name"));
        }
        find_value_logs(store, &core, id)?;
        store.long_values.adopt(&core);
        catalogue.by_id.insert(id, core);
    }
    debug_assert_eq!(catalogue.by_name.len(), catalogue.by_id.len(), "each keyspace has a name and an id");
    drop(catalogue);
    fit_caches(store);
    Ok(())
}
