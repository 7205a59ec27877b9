//! The tree families: the only place of the engine that names one, and calls the crate of it.
//!
//! A family is what one crate of `trees/` understands: its settings, its objects in the manifest, which runs
//! those name. [`Tree`] is what users choose; `options_format.rs` has its bytes.
//!
//! **Invariants**
//! - Objects are read by the family of the keyspace's options, never by another; of a keyspace that moves
//!   those of each slot by its own.
//! - A store with a family that is not known here is refused before anything is written.

use std::collections::BTreeMap;

use testudo_base::{Error, ErrorKind, KeyspaceId, ObjectId, Result, codec::Damage, sync::Arc};
use testudo_betree::{BeTree, BeTreeOptions, Policy};
use testudo_contract::{PartUse, Tree as TreeState};
use testudo_lsm::{LsmOptions, LsmTree};
pub(crate) use testudo_migrating::Objects;
use testudo_migrating::{Course, Migrating, Slot};
use testudo_separated::{SeparatedTree, Watched, is_too_small_for_segments, split_objects};
use testudo_storage::{Change, DataFile, KeyspaceRecord};
use testudo_values::ValueCosts;

use crate::{
    handles::options::{KeyspaceOptions, Passage, Tree},
    open::{found_values::find_value_logs, options_format::Unreadable},
    store::{Store, view::KeyspaceCore},
};

/// Where the options of keyspaces stand.
const CATALOGUE: &str = "manifest";

/// What an LSbM-tree retains at most, in hundredths of its bytes (LSbM §6.5).
const RETAINED_PERCENT: u32 = 10;
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
            Tree::Lsbm { run_bytes, growth_factor, level1_flushes, retained_percent } => {
                let sizes = LsmOptions { run_bytes, growth_factor, level1_flushes, ..LsmOptions::new() };
                Self::Lsm(LsmOptions { retained_percent, ..sizes })
            }
            Tree::Treeline { run_bytes, growth_factor, level1_flushes } => {
                let sizes = LsmOptions { run_bytes, growth_factor, level1_flushes, ..LsmOptions::new() };
                Self::Lsm(LsmOptions { updates_pages: true, ..sizes })
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

impl From<LsmOptions> for Tree {
    fn from(options: LsmOptions) -> Self {
        let LsmOptions { run_bytes, growth_factor, level1_flushes, .. } = options;
        let LsmOptions { retained_percent, updates_pages, .. } = options;
        match retained_percent {
            0 if updates_pages => Self::Treeline { run_bytes, growth_factor, level1_flushes },
            0 => Self::Leveled { run_bytes, growth_factor, level1_flushes },
            _ => Self::Lsbm { run_bytes, growth_factor, level1_flushes, retained_percent },
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
    Tree::from(LsmOptions::new())
}

/// The LSbM-tree with its default settings.
pub(crate) fn lsbm() -> Tree {
    Tree::from(LsmOptions { retained_percent: RETAINED_PERCENT, ..LsmOptions::new() })
}

/// TreeLine's pages with their default settings.
pub(crate) fn treeline() -> Tree {
    Tree::from(LsmOptions { updates_pages: true, ..LsmOptions::new() })
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
        Settings::Lsm(LsmOptions { retained_percent: 0, .. }) if matches!(tree, Tree::Lsbm { .. }) => {
            Err(Error::invalid("an lsbm tree needs a retained_percent of 1 to 100"))
        }
        Settings::Lsm(settings) => {
            settings.validate().map_err(|why| Error::invalid(format!("settings of a {tree} tree: {why}")))
        }
    }
}

/// What a keyspace in the tree `present` is stored in once it was set to `wanted` of the same family: sizes
/// stay, for other ones would mean to write most of it anew. `None` for another family, which cannot read the
/// objects of this one.
fn within_family(present: Tree, wanted: Tree) -> Option<Tree> {
    match (Settings::from(present), Settings::from(wanted)) {
        (Settings::BeTree(of_present), Settings::BeTree(of_wanted)) => {
            Some(Tree::from(BeTreeOptions { policy: of_wanted.policy, ..of_present }))
        }
        (Settings::Lsm(of_present), Settings::Lsm(LsmOptions { retained_percent, updates_pages, .. })) => {
            Some(Tree::from(LsmOptions { retained_percent, updates_pages, ..of_present }))
        }
        (Settings::BeTree(_), Settings::Lsm(_)) | (Settings::Lsm(_), Settings::BeTree(_)) => None,
    }
}

/// Whether two trees are of the same family.
pub(crate) fn is_of_family(tree: Tree, other: Tree) -> bool {
    within_family(tree, other).is_some()
}

/// What it takes to set a keyspace with these options and objects to another tree: its next options, and what
/// changes in its objects. Between families that is the border, which jobs then move.
///
/// Errors: `Unsupported` for a third family while the keyspace moves; `Corruption`.
pub(crate) fn next_tree(
    present: &KeyspaceOptions,
    wanted: Tree,
    id: KeyspaceId,
    objects: &Objects,
) -> Result<(KeyspaceOptions, Option<Change>)> {
    let tree = present.chosen_tree();
    if let Some(next) = within_family(tree, wanted) {
        return Ok((present.tree(next), None));
    }
    let damaged = |why| damaged_objects(id, why);
    // Values outside the runs stay where they are.
    let (objects, _) = split_objects(objects.clone());
    let Some(left) = present.moving_from() else {
        if objects.is_empty() {
            return Ok((present.tree(wanted), None));
        }
        let (slot, _) = Slot::at_rest(objects).map_err(damaged)?;
        let options = present.tree(wanted).with_passage(Passage::from_tree(tree));
        return Ok((options, Some(Course::beginning(slot).put(id))));
    };
    let Some(back) = within_family(left, wanted) else {
        let message = format!(
            "a keyspace on its way from a {left} tree to a {tree} tree cannot go to a {wanted} tree before \
             it has arrived or gone back"
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    };
    let (course, ..) = Course::divide(objects).map_err(damaged)?;
    let options = present.tree(back).with_passage(Passage::from_tree(tree));
    Ok((options, Some(course.turned().put(id))))
}

/// The options and the change with which a keyspace is written anew, whole, as a keyspace moves from one tree
/// to another: here to one of the same kind.
///
/// Errors: `Corruption` if the objects contradict each other.
pub(crate) fn rewritten_tree(
    options: &KeyspaceOptions,
    id: KeyspaceId,
    objects: &Objects,
) -> Result<(KeyspaceOptions, Option<Change>)> {
    let (objects, segments) = split_objects(objects.clone());
    if objects.is_empty() || segments.is_empty() {
        return Ok((*options, None));
    }
    let (slot, _) = Slot::at_rest(objects).map_err(|why| damaged_objects(id, why))?;
    let options = options.with_passage(Passage::from_tree(options.chosen_tree()));
    Ok((options, Some(Course::beginning(slot).put(id))))
}

/// The options of a keyspace that has just arrived where it went, if `tree`, its next one, says so.
pub(crate) fn options_on_arrival(options: &KeyspaceOptions, tree: &dyn TreeState) -> Option<KeyspaceOptions> {
    options.moving_from().filter(|_| !tree.is_moving()).map(|_| options.with_passage(Passage::Ended))
}

/// The object that a change puts, if it puts one.
pub(crate) fn put_object(change: &Change) -> Option<(ObjectId, Arc<[u8]>)> {
    match change {
        Change::PutObject(_, object, bytes) => Some((*object, Arc::from(bytes.as_slice()))),
        _ => None,
    }
}

fn damaged_objects(id: KeyspaceId, Damage(why): Damage) -> Error {
    Error::corruption(CATALOGUE, 0, format!("keyspace {id}: {why}"))
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
        let tree = stored_tree(&store.data, &options, id, objects);
        let tree = tree.map_err(|error| error.in_keyspace(&record.name))?;
        store.note_tree(&*tree);
        let core = KeyspaceCore::new(store, id, &record.name, options, tree);
        if catalogue.by_name.insert(Arc::clone(&core.name), Arc::clone(&core)).is_some() {
            return Err(Error::corruption(CATALOGUE, 0, "two keyspaces have the same name"));
        }
        find_value_logs(store, &core, id)?;
        store.pieces.adopt(&core);
        catalogue.by_id.insert(id, core);
    }
    drop(catalogue);
    store.fit_caches();
    Ok(())
}

/// An empty tree for a new keyspace.
pub(crate) fn empty_tree(store: &Store, options: &KeyspaceOptions, id: KeyspaceId) -> Arc<dyn TreeState> {
    let tree: Arc<dyn TreeState> = match settings_for(options.chosen_tree(), id) {
        Settings::BeTree(settings) => BeTree::empty(settings, &store.data),
        Settings::Lsm(settings) => LsmTree::empty(settings, &store.data),
    };
    with_placement(tree, options, 0)
}

/// A tree that puts values outside its runs, if that is worth it once it has `more_bytes` more.
pub(crate) fn with_placement(
    tree: Arc<dyn TreeState>,
    options: &KeyspaceOptions,
    more_bytes: u64,
) -> Arc<dyn TreeState> {
    if options.chosen_placement().is_inline() || tree.value_segments().is_some() {
        return tree;
    }
    let is_small = options.chosen_placement().moves()
        && is_too_small_for_segments(segment_bytes(options), tree.stats().stored_bytes + more_bytes);
    if is_small { tree } else { SeparatedTree::empty(tree, separation_of(options)) }
}

/// The tree of a keyspace as its objects describe it.
pub(crate) fn stored_tree(
    data: &Arc<DataFile>,
    options: &KeyspaceOptions,
    id: KeyspaceId,
    objects: Objects,
) -> Result<Arc<dyn TreeState>> {
    let (objects, segments) = split_objects(objects);
    let tree = tree_of_runs(data, options, id, objects)?;
    if segments.is_empty() {
        return Ok(with_placement(tree, options, 0));
    }
    // Values that lie outside stay there until they are written anew, whatever the placement is by now.
    Ok(SeparatedTree::open(tree, separation_of(options), data, id, &segments)?)
}

/// The same without the values outside its runs.
fn tree_of_runs(
    data: &Arc<DataFile>,
    options: &KeyspaceOptions,
    id: KeyspaceId,
    objects: Objects,
) -> Result<Arc<dyn TreeState>> {
    let damaged = |why| damaged_objects(id, why);
    let Some(left) = options.moving_from() else {
        let (slot, objects) = Slot::at_rest(objects).map_err(damaged)?;
        return Ok(slot.with(tree_at_rest(data, options.chosen_tree(), id, objects)?));
    };
    let (course, from, to) = Course::divide(objects).map_err(damaged)?;
    let slots = course.slots();
    let from = slots.0.with(tree_at_rest(data, left, id, from)?);
    let to = slots.1.with(tree_at_rest(data, options.chosen_tree(), id, to)?);
    Ok(Migrating::new(course, from, to))
}

fn tree_at_rest(
    data: &Arc<DataFile>,
    tree: Tree,
    id: KeyspaceId,
    objects: Objects,
) -> Result<Arc<dyn TreeState>> {
    match settings_for(tree, id) {
        Settings::BeTree(settings) => Ok(BeTree::open(settings, data, id, objects)?),
        Settings::Lsm(settings) => Ok(LsmTree::open(settings, data, id, objects)?),
    }
}

/// Bytes of values of a full segment: as many as a few runs of the tree have.
fn segment_bytes(options: &KeyspaceOptions) -> u64 {
    let bytes = options.chosen_tree().run_bytes().saturating_mul(RUNS_OF_A_SEGMENT);
    bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
}

/// How a keyspace separates its values.
fn separation_of(options: &KeyspaceOptions) -> testudo_separated::Settings {
    let chosen = options.chosen_placement();
    testudo_separated::Settings {
        placement: options.placement_in_force(),
        segment_bytes: segment_bytes(options),
        watched: chosen.moves().then(|| Watched {
            placement: chosen,
            large_values: options.large_values(),
            costs: Arc::new(ValueCosts::beginning_at(options.large_values(), options.value_excess())),
        }),
    }
}

/// Which parts the objects of a keyspace name, and for which keys each of them counts; reads none. For
/// salvage.
///
/// Errors: [`Damage`] if the objects contradict each other.
pub(crate) fn stored_layout(
    options: &KeyspaceOptions,
    objects: Objects,
) -> std::result::Result<Vec<PartUse>, Damage> {
    let (objects, segments) = split_objects(objects);
    let mut layout = layout_of_runs(options, objects)?;
    layout.extend(testudo_separated::read_layout(&segments)?);
    Ok(layout)
}

/// The same without the values outside its runs.
fn layout_of_runs(options: &KeyspaceOptions, objects: Objects) -> std::result::Result<Vec<PartUse>, Damage> {
    let at_rest = |tree: Tree, objects| match Settings::from(tree) {
        Settings::BeTree(_) => testudo_betree::read_layout(objects),
        Settings::Lsm(_) => testudo_lsm::read_layout(objects),
    };
    let Some(left) = options.moving_from() else {
        return at_rest(options.chosen_tree(), Slot::at_rest(objects)?.1);
    };
    let (course, from, to) = Course::divide(objects)?;
    Ok(course.layout(at_rest(left, from)?, at_rest(options.chosen_tree(), to)?))
}

/// The settings of a keyspace's tree. Equal keyspaces merge in different rounds, each of which would
/// otherwise be many.
fn settings_for(tree: Tree, id: KeyspaceId) -> Settings {
    let stagger = u64::from(id.0);
    match Settings::from(tree) {
        Settings::BeTree(settings) => Settings::BeTree(BeTreeOptions { stagger, ..settings }),
        Settings::Lsm(settings) => Settings::Lsm(LsmOptions { stagger, ..settings }),
    }
}

#[cfg(test)]
mod tests;
