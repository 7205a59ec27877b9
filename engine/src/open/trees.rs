//! The tree families: which tree a keyspace's options ask for, made empty or from its stored objects, and
//! which runs those objects name.
//!
//! The only place of the engine that calls the crate of a family; `handles/options.rs` has the settings that
//! users give to each.

use std::collections::BTreeMap;

use testudo_base::{Error, KeyspaceId, ObjectId, Result, codec::Damage, sync::Arc};
use testudo_betree::{BeTree, BeTreeOptions, read_layout};
use testudo_contract::{RunUse, Tree as TreeState};
use testudo_storage::DataFile;

use crate::{
    handles::options::KeyspaceOptions,
    store::{Store, view::KeyspaceCore},
};

pub(crate) fn load_keyspaces(store: &Store) -> Result<()> {
    let ids: Vec<KeyspaceId> = store.manifest.with_state(|state| state.keyspaces.keys().copied().collect());
    let mut catalogue = store.catalogue.write();
    for id in ids {
        // One at a time: there may be thousands.
        let (record, objects) =
            store.manifest.with_state(|state| (state.keyspaces[&id].clone(), state.objects_of(id)));
        let options = KeyspaceOptions::decode(&record.options)
            .map_err(|Damage(why)| Error::corruption("manifest", 0, format!("keyspace {id}: {why}")))?;
        let tree = stored_tree(&store.data, &options, id, objects)?;
        let core = KeyspaceCore::new(store, id, &record.name, options, tree);
        if catalogue.by_name.insert(Arc::clone(&core.name), Arc::clone(&core)).is_some() {
            return Err(Error::corruption("manifest", 0, "two keyspaces have the same name"));
        }
        catalogue.by_id.insert(id, core);
    }
    drop(catalogue);
    store.fit_caches();
    Ok(())
}

/// An empty tree for a new keyspace.
pub(crate) fn empty_tree(store: &Store, options: &KeyspaceOptions, id: KeyspaceId) -> Arc<dyn TreeState> {
    BeTree::empty(tree_options(options, id), &store.data)
}

/// The tree of a keyspace as its objects describe it.
pub(crate) fn stored_tree(
    data: &Arc<DataFile>,
    options: &KeyspaceOptions,
    id: KeyspaceId,
    objects: BTreeMap<ObjectId, Arc<[u8]>>,
) -> Result<Arc<dyn TreeState>> {
    Ok(BeTree::open(tree_options(options, id), data, id, objects)?)
}

/// Which runs the objects of a tree name, and for which keys each of them counts; reads no run. For salvage.
///
/// Errors: [`Damage`] if the objects contradict each other.
pub(crate) fn stored_layout(
    objects: BTreeMap<ObjectId, Arc<[u8]>>,
) -> std::result::Result<Vec<RunUse>, Damage> {
    read_layout(objects)
}

/// The settings of a keyspace's tree. Equal keyspaces merge in different rounds, each of which would
/// otherwise be many.
fn tree_options(options: &KeyspaceOptions, id: KeyspaceId) -> BeTreeOptions {
    BeTreeOptions { stagger: u64::from(id.0), ..options.chosen_tree().betree_options() }
}
