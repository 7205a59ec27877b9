//! The tree families: the only place of the engine that names one, and calls the crate of it.
//!
//! A family is what one crate of `trees/` understands: its settings, its objects in the manifest, which runs
//! those name. [`Tree`] is what users choose; `options_format.rs` has its bytes.
//!
//! **Invariants**
//! - Objects are read by the family of the keyspace's options, never by another.
//! - A store with a family that is not known here is refused before anything is written.

use std::collections::BTreeMap;

use testudo_base::{Error, ErrorKind, KeyspaceId, ObjectId, Result, codec::Damage, sync::Arc};
use testudo_betree::{BeTree, BeTreeOptions, Policy};
use testudo_contract::{PartUse, Tree as TreeState};
use testudo_lsm::{LsmOptions, LsmTree};
use testudo_separated::{SeparatedTree, split_objects};
use testudo_storage::{DataFile, KeyspaceRecord};

use crate::{
    handles::options::{KeyspaceOptions, Tree},
    open::options_format::Unreadable,
    store::{Store, view::KeyspaceCore},
};

/// Where the options of keyspaces stand.
const CATALOGUE: &str = "manifest";

/// Runs of its tree that a value segment is as large as, and the bounds of that.
const RUNS_OF_A_SEGMENT: u64 = 4;
const SEGMENT_BYTES_MIN: u64 = 16 << 10;
const SEGMENT_BYTES_MAX: u64 = 8 << 20;

/// A tree in the terms of its family.
#[derive(Clone, Copy, Debug)]
enum Settings {
    BeTree(BeTreeOptions),
    Lsm(LsmOptions),
}

impl From<Tree> for Settings {
    fn from(tree: Tree) -> Self {
        let of_betree = |policy, leaf_bytes, max_pivots| {
            Self::BeTree(BeTreeOptions { leaf_bytes, max_pivots, ..BeTreeOptions::new(policy) })
        };
        match tree {
            Tree::Turtle { leaf_bytes, max_pivots } => of_betree(Policy::Turtle, leaf_bytes, max_pivots),
            Tree::Splinter { leaf_bytes, max_pivots } => of_betree(Policy::Splinter, leaf_bytes, max_pivots),
            Tree::Leveled { run_bytes, growth_factor, level1_flushes } => {
                Self::Lsm(LsmOptions { run_bytes, growth_factor, level1_flushes, ..LsmOptions::new() })
            }
        }
    }
}

impl From<BeTreeOptions> for Tree {
    fn from(options: BeTreeOptions) -> Self {
        let BeTreeOptions { policy, leaf_bytes, max_pivots, .. } = options;
        match policy {
            Policy::Turtle => Self::Turtle { leaf_bytes, max_pivots },
            Policy::Splinter => Self::Splinter { leaf_bytes, max_pivots },
        }
    }
}

/// The TurtleTree with its default settings.
pub(crate) fn turtle() -> Tree {
    Tree::from(BeTreeOptions::new(Policy::Turtle))
}

/// The STBε-tree with its default settings.
pub(crate) fn splinter() -> Tree {
    Tree::from(BeTreeOptions::new(Policy::Splinter))
}

/// The leveled LSM-tree with its default settings.
pub(crate) fn leveled() -> Tree {
    let LsmOptions { run_bytes, growth_factor, level1_flushes, .. } = LsmOptions::new();
    Tree::Leveled { run_bytes, growth_factor, level1_flushes }
}

/// Checks that the settings of a tree are within their limits.
pub(crate) fn validate(tree: Tree) -> Result<()> {
    match Settings::from(tree) {
        Settings::BeTree(BeTreeOptions { leaf_bytes, max_pivots, .. }) => {
            if !(4096..=1 << 30).contains(&leaf_bytes) || !(4..=1024).contains(&max_pivots) {
                return Err(Error::invalid(format!(
                    "a {tree} tree needs leaves of 4 KiB to 1 GiB and 4 to 1,024 pivots"
                )));
            }
            Ok(())
        }
        Settings::Lsm(settings) => {
            settings.validate().map_err(|why| Error::invalid(format!("settings of a {tree} tree: {why}")))
        }
    }
}

/// What a keyspace in the tree `present` is stored in once it was set to `wanted`: within a family sizes
/// stay, for other ones would mean to write most of it anew.
///
/// Errors: `Unsupported` for a tree of another family, which cannot read the objects of this one.
pub(crate) fn next_tree(present: Tree, wanted: Tree) -> Result<Tree> {
    match (Settings::from(present), Settings::from(wanted)) {
        (Settings::BeTree(of_present), Settings::BeTree(of_wanted)) => {
            Ok(Tree::from(BeTreeOptions { policy: of_wanted.policy, ..of_present }))
        }
        (Settings::Lsm(_), Settings::Lsm(_)) => Ok(present),
        (Settings::BeTree(_), Settings::Lsm(_)) | (Settings::Lsm(_), Settings::BeTree(_)) => {
            let message = format!(
                "a keyspace in a {present} tree cannot be converted to a {wanted} tree: load it anew"
            );
            Err(Error::new(ErrorKind::Unsupported, message))
        }
    }
}

/// Refuses a catalogue with options that a newer version wrote. Damage is for whoever reads them.
///
/// Errors: `Unsupported`.
pub(crate) fn check_known(keyspaces: &BTreeMap<KeyspaceId, KeyspaceRecord>) -> Result<()> {
    for (&id, record) in keyspaces {
        if let Err(newer @ Unreadable::Newer(_)) = KeyspaceOptions::decode(&record.options) {
            return Err(newer.into_error(CATALOGUE, id));
        }
    }
    Ok(())
}

/// Opens the trees of all keyspaces of the catalogue.
pub(crate) fn load_keyspaces(store: &Store) -> Result<()> {
    let ids: Vec<KeyspaceId> = store.manifest.with_state(|state| state.keyspaces.keys().copied().collect());
    let mut catalogue = store.catalogue.write();
    for id in ids {
        // One at a time: there may be thousands.
        let (record, objects) =
            store.manifest.with_state(|state| (state.keyspaces[&id].clone(), state.objects_of(id)));
        let options =
            KeyspaceOptions::decode(&record.options).map_err(|why| why.into_error(CATALOGUE, id))?;
        let tree = stored_tree(&store.data, &options, id, objects)?;
        let core = KeyspaceCore::new(store, id, &record.name, options, tree);
        if catalogue.by_name.insert(Arc::clone(&core.name), Arc::clone(&core)).is_some() {
            return Err(Error::corruption(CATALOGUE, 0, "two keyspaces have the same name"));
        }
        catalogue.by_id.insert(id, core);
    }
    drop(catalogue);
    store.fit_caches();
    Ok(())
}

/// An empty tree for a new keyspace.
pub(crate) fn empty_tree(store: &Store, options: &KeyspaceOptions, id: KeyspaceId) -> Arc<dyn TreeState> {
    let tree: Arc<dyn TreeState> = match settings_for(options, id) {
        Settings::BeTree(settings) => BeTree::empty(settings, &store.data),
        Settings::Lsm(settings) => LsmTree::empty(settings, &store.data),
    };
    if options.chosen_placement().is_inline() {
        return tree;
    }
    SeparatedTree::empty(tree, separation_of(options))
}

/// The tree of a keyspace as its objects describe it.
pub(crate) fn stored_tree(
    data: &Arc<DataFile>,
    options: &KeyspaceOptions,
    id: KeyspaceId,
    objects: BTreeMap<ObjectId, Arc<[u8]>>,
) -> Result<Arc<dyn TreeState>> {
    let (objects, segments) = split_objects(objects);
    let tree: Arc<dyn TreeState> = match settings_for(options, id) {
        Settings::BeTree(settings) => BeTree::open(settings, data, id, objects)?,
        Settings::Lsm(settings) => LsmTree::open(settings, data, id, objects)?,
    };
    // Values that lie outside stay there until they are written anew, whatever the placement is by now.
    if options.chosen_placement().is_inline() && segments.is_empty() {
        return Ok(tree);
    }
    Ok(SeparatedTree::open(tree, separation_of(options), data, id, &segments)?)
}

/// How a keyspace separates its values. A segment holds what a few runs of the tree do.
fn separation_of(options: &KeyspaceOptions) -> testudo_separated::Settings {
    let segment_bytes = options.chosen_tree().run_bytes().saturating_mul(RUNS_OF_A_SEGMENT);
    testudo_separated::Settings {
        placement: options.chosen_placement(),
        segment_bytes: segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
    }
}

/// Which parts the objects of a tree name, and for which keys each of them counts; reads none. For salvage.
///
/// Errors: [`Damage`] if the objects contradict each other.
pub(crate) fn stored_layout(
    tree: Tree,
    objects: BTreeMap<ObjectId, Arc<[u8]>>,
) -> std::result::Result<Vec<PartUse>, Damage> {
    let (objects, segments) = split_objects(objects);
    let mut layout = match Settings::from(tree) {
        Settings::BeTree(_) => testudo_betree::read_layout(objects),
        Settings::Lsm(_) => testudo_lsm::read_layout(objects),
    }?;
    layout.extend(testudo_separated::read_layout(&segments)?);
    Ok(layout)
}

/// The settings of a keyspace's tree. Equal keyspaces merge in different rounds, each of which would
/// otherwise be many.
fn settings_for(options: &KeyspaceOptions, id: KeyspaceId) -> Settings {
    let stagger = u64::from(id.0);
    match Settings::from(options.chosen_tree()) {
        Settings::BeTree(settings) => Settings::BeTree(BeTreeOptions { stagger, ..settings }),
        Settings::Lsm(settings) => Settings::Lsm(LsmOptions { stagger, ..settings }),
    }
}

#[cfg(test)]
mod tests;
