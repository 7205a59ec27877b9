//! Trees of keyspaces by their stored options: opened, created, moved, described. With `tree/families.rs`,
//! the only file of the engine that names a tree family or calls its crate.
//!
//! A family is a crate of `trees/` with its settings, its objects in the manifest, and the runs that these
//! refer to. Users choose a [`Tree`]; `options_format.rs` encodes it.
//!
//! **Invariants**
//! - Objects are read by the family of the keyspace's options, never by another. While a keyspace moves, the
//!   objects of each slot are read by the family of that slot.
//! - A store with an unknown family is refused before anything is written.

use std::collections::BTreeMap;

use testudo_base::{Error, ErrorKind, KeyspaceId, Result, codec::Damage, sync::Arc};
use testudo_betree::BeTree;
use testudo_contract::{PartUse, Tree as TreeState};
use testudo_lsm::LsmTree;

use crate::tree::families::{Settings, settings_for, within_family};
pub use testudo_migrating::Objects;
use testudo_migrating::{Course, Migrating, Slot};
use testudo_separated::{SeparatedTree, Watched, is_too_small_for_segments, split_objects};
use testudo_storage::{Change, DataFile, KeyspaceRecord};
use testudo_values::ValueCosts;

use crate::{options_format::Unreadable, passage::Passage, stored_options::StoredOptions, tree::Tree};

/// File with the options of all keyspaces.
pub const CATALOGUE: &str = "manifest";

/// Size of a value segment, in full runs of the tree, and its bounds.
const RUNS_OF_A_SEGMENT: u64 = 4;
const SEGMENT_BYTES_MIN: u64 = 16 << 10;
const SEGMENT_BYTES_MAX: u64 = 8 << 20;

/// Returns the next options of a keyspace that is set to another tree, and the change of its objects. Between
/// families that change is the border, which jobs then move.
///
/// Errors: `Unsupported` for a third family while the keyspace moves; `Corruption`.
pub fn next_tree(
    present: &StoredOptions,
    wanted: Tree,
    id: KeyspaceId,
    objects: &Objects,
) -> Result<(StoredOptions, Option<Change>)> {
    debug_assert!(present.validate().is_ok(), "settings in force are within their limits");
    let tree = present.tree();
    if let Some(next) = within_family(tree, wanted) {
        return Ok((present.with_tree(next), None));
    }
    let damaged = |why| damaged_objects(id, why);
    // Values outside the runs stay where they are.
    let (objects, _) = split_objects(objects.clone());
    let Some(left) = present.moving_from() else {
        if objects.is_empty() {
            return Ok((present.with_tree(wanted), None));
        }
        let (slot, _) = Slot::at_rest(objects).map_err(damaged)?;
        let options = present.with_tree(wanted).with_passage(Passage::from_tree(tree));
        return Ok((options, Some(Course::beginning(slot).put(id))));
    };
    let Some(back) = within_family(left, wanted) else {
        let message = format!(
            "a keyspace that moves from a {left} tree to a {tree} tree cannot move to a {wanted} tree before \
             that move has finished or is reversed"
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    };
    let (course, ..) = Course::divide(objects).map_err(damaged)?;
    let options = present.with_tree(back).with_passage(Passage::from_tree(tree));
    Ok((options, Some(course.turned().put(id))))
}

/// Returns the options and the change that rewrite a keyspace as a whole: a move from one tree to another of
/// the same kind.
///
/// Errors: `Corruption` if the objects contradict each other.
pub fn rewritten_tree(
    options: &StoredOptions,
    id: KeyspaceId,
    objects: &Objects,
) -> Result<(StoredOptions, Option<Change>)> {
    let (objects, segments) = split_objects(objects.clone());
    if objects.is_empty() || segments.is_empty() {
        return Ok((*options, None));
    }
    let (slot, _) = Slot::at_rest(objects).map_err(|why| damaged_objects(id, why))?;
    let options = options.with_passage(Passage::from_tree(options.tree()));
    Ok((options, Some(Course::beginning(slot).put(id))))
}

/// The options of a keyspace whose move has just ended, if `tree`, its next state, no longer has a border.
pub fn options_on_arrival(options: &StoredOptions, tree: &dyn TreeState) -> Option<StoredOptions> {
    options.moving_from().filter(|_| !tree.is_moving()).map(|_| options.with_passage(Passage::Ended))
}

fn damaged_objects(id: KeyspaceId, Damage(why): Damage) -> Error {
    Error::corruption(CATALOGUE, 0, format!("keyspace {id}: {why}"))
}

/// Rejects a catalogue with options that a newer version wrote. Damage is reported where they are read.
///
/// Errors: `Unsupported`.
pub fn check_known(keyspaces: &BTreeMap<KeyspaceId, KeyspaceRecord>) -> Result<()> {
    for (&id, record) in keyspaces {
        if let Err(newer @ Unreadable::Newer(_)) = StoredOptions::decode(&record.options) {
            return Err(newer.into_error(CATALOGUE, id));
        }
    }
    Ok(())
}

/// An empty tree for a new keyspace.
pub fn empty_tree(data: &Arc<DataFile>, options: &StoredOptions, id: KeyspaceId) -> Arc<dyn TreeState> {
    let tree: Arc<dyn TreeState> = match settings_for(options.tree(), id) {
        Settings::BeTree(settings) => BeTree::empty(settings, data),
        Settings::Lsm(settings) => LsmTree::empty(settings, data),
    };
    with_placement(tree, options, 0)
}

/// Separates the values of a tree from its runs if that pays once the tree has grown by `more_bytes`.
pub fn with_placement(
    tree: Arc<dyn TreeState>,
    options: &StoredOptions,
    more_bytes: u64,
) -> Arc<dyn TreeState> {
    if options.placement().is_inline() || tree.value_segments().is_some() {
        return tree;
    }
    let is_small = options.placement().moves()
        && is_too_small_for_segments(segment_bytes(options), tree.stats().stored_bytes + more_bytes);
    if is_small { tree } else { SeparatedTree::empty(tree, separation_of(options)) }
}

/// The tree of a keyspace, opened from its objects.
///
/// Errors: `Corruption` if the objects contradict each other; `Io`.
pub fn stored_tree(
    data: &Arc<DataFile>,
    options: &StoredOptions,
    id: KeyspaceId,
    objects: Objects,
) -> Result<Arc<dyn TreeState>> {
    let (objects, segments) = split_objects(objects);
    let tree = tree_of_runs(data, options, id, objects)?;
    if segments.is_empty() {
        return Ok(with_placement(tree, options, 0));
    }
    // Separated values stay separated until they are rewritten, even if the placement has changed.
    Ok(SeparatedTree::open(tree, separation_of(options), data, id, &segments)?)
}

/// As the function above, without values outside the runs.
fn tree_of_runs(
    data: &Arc<DataFile>,
    options: &StoredOptions,
    id: KeyspaceId,
    objects: Objects,
) -> Result<Arc<dyn TreeState>> {
    let damaged = |why| damaged_objects(id, why);
    let Some(left) = options.moving_from() else {
        let (slot, objects) = Slot::at_rest(objects).map_err(damaged)?;
        return Ok(slot.with(tree_at_rest(data, options.tree(), id, objects)?));
    };
    let (course, from, to) = Course::divide(objects).map_err(damaged)?;
    let slots = course.slots();
    let from = slots.0.with(tree_at_rest(data, left, id, from)?);
    let to = slots.1.with(tree_at_rest(data, options.tree(), id, to)?);
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

/// Bytes of values in a full segment: a few runs of the tree.
fn segment_bytes(options: &StoredOptions) -> u64 {
    let bytes = options.tree().run_bytes().saturating_mul(RUNS_OF_A_SEGMENT);
    bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
}

/// Separation of values in a keyspace.
fn separation_of(options: &StoredOptions) -> testudo_separated::Settings {
    let chosen = options.placement();
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

/// The parts that the objects of a keyspace refer to, each with its key range; reads no part. For salvage.
///
/// Errors: [`Damage`] if the objects contradict each other.
pub fn stored_layout(options: &StoredOptions, objects: Objects) -> std::result::Result<Vec<PartUse>, Damage> {
    let (objects, segments) = split_objects(objects);
    let mut layout = layout_of_runs(options, objects)?;
    layout.extend(testudo_separated::read_layout(&segments)?);
    Ok(layout)
}

/// As the function above, without values outside the runs.
fn layout_of_runs(options: &StoredOptions, objects: Objects) -> std::result::Result<Vec<PartUse>, Damage> {
    let at_rest = |tree: Tree, objects| match Settings::from(tree) {
        Settings::BeTree(_) => testudo_betree::read_layout(objects),
        Settings::Lsm(_) => testudo_lsm::read_layout(objects),
    };
    let Some(left) = options.moving_from() else {
        return at_rest(options.tree(), Slot::at_rest(objects)?.1);
    };
    let (course, from, to) = Course::divide(objects)?;
    Ok(course.layout(at_rest(left, from)?, at_rest(options.tree(), to)?))
}
