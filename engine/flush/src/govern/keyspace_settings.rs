//! Other settings for a keyspace that is in use.
//!
//! **Invariants**
//! - Settings change between flushes, with an edit that is durable before anybody sees them.

use std::time::Duration;

use testudo_base::{Error, ObjectId, Result, planted, sync::Arc};
use testudo_options::{
    StoredOptions, Tree, TreePreset,
    families::is_of_family,
    stored_tree::{Objects, next_tree, rewritten_tree, stored_tree},
};
use testudo_storage::Change;
use testudo_store::{Store, keyspace::KeyspaceCore, space::space_guard::Intent};
use testudo_values::{LargeValues, Placement, ValueCosts};

use crate::{govern::moving_price::price_of_moving, jobs::run_job_of, manifest_edit::commit_edit};

/// Changes of less than such a part of what it costs to move are not written down.
const PARTS_OF_PRICE: u64 = 64;

/// Between looks whether others have moved the rest of a keyspace.
const PAUSE: Duration = Duration::from_millis(1);

/// Whether a keyspace is being written anew for its values, and so cannot go to `tree`.
fn is_rewritten(options: &StoredOptions, tree: Tree) -> bool {
    let present = options.chosen_tree();
    options.moving_from().is_some_and(|left| is_of_family(left, present)) && !is_of_family(present, tree)
}

/// The object that a change puts, if it puts one.
fn put_object(change: &Change) -> Option<(ObjectId, Arc<[u8]>)> {
    match change {
        Change::PutObject(_, object, bytes) => Some((*object, Arc::from(bytes.as_slice()))),
        _ => None,
    }
}

/// The settings with what the keyspace has paid by now.
fn options_now(core: &KeyspaceCore) -> StoredOptions {
    let view = core.view.load();
    // A small tree counts nothing.
    let known = view.options.value_excess();
    let excess = view.tree.value_costs().map_or(known, |costs| costs.excess(view.options.large_values()));
    view.options.with_value_excess(excess)
}

/// Stores a keyspace in a tree of another kind, with values where the preset says, if it does. While all
/// of it is written anew for its values it cannot go to a third tree: what has not moved yet then goes
/// without its values, and the caller takes part in it. Values come back on the way to the other tree.
pub fn set_tree(store: &Store, core: &Arc<KeyspaceCore>, preset: TreePreset) -> Result<()> {
    let tree = preset.tree();
    loop {
        let mut is_in_the_way = false;
        set_options(store, core, |present, objects| {
            is_in_the_way = is_rewritten(&present, tree);
            if is_in_the_way {
                return Ok((present, None));
            }
            let placed = preset.placement().map_or(present, |placement| present.with_placement(placement));
            next_tree(&placed, tree, core.id, objects)
        })?;
        if !is_in_the_way {
            return Ok(());
        }
        let _paused = core.view.load().tree.value_costs().map(ValueCosts::pause);
        if !run_job_of(store, core)? {
            store.check_open()?;
            store.env.sleep(PAUSE);
        }
    }
}

/// Puts the values of a keyspace somewhere else from now on.
pub fn set_placement(store: &Store, core: &KeyspaceCore, placement: Placement) -> Result<()> {
    set_options(store, core, |present, _| Ok((present.with_placement(placement), None)))
}

/// Moves the thresholds of a keyspace. Values that lie outside come back to their keys as all of it is
/// written anew, piece by piece.
pub fn set_large_values(store: &Store, core: &KeyspaceCore, large_values: LargeValues) -> Result<()> {
    set_options(store, core, |present, objects| {
        let next = present.with_large_values(large_values);
        if !present.chosen_placement().moves() || present.moving_from().is_some() {
            return Ok((present, None));
        }
        match large_values {
            LargeValues::Outside => Ok((next, None)),
            LargeValues::WithKeys => rewritten_tree(&next, core.id, objects),
        }
    })
}

/// Opens the tree of a keyspace with other options, and with a change of its objects.
fn set_options(
    store: &Store,
    core: &KeyspaceCore,
    next: impl FnOnce(StoredOptions, &Objects) -> Result<(StoredOptions, Option<Change>)>,
) -> Result<()> {
    store.health.check_process()?;
    store.wal()?;
    let _flush = Some(store.flush_lock.lock()).filter(|_| !planted!("tree-set-during-a-round"));
    if core.is_dropped() {
        return Err(Error::invalid("the keyspace was dropped"));
    }
    store.check_writable()?;
    let present = options_now(core);
    // Between rounds the durable objects are those of the published tree.
    let mut objects = store.manifest.with_state(|state| state.objects_of(core.id));
    let (options, border) = next(present, &objects)?;
    if options == present {
        return Ok(());
    }
    store.space.check(&*store.env, Intent::Write)?;
    objects.extend(border.iter().filter_map(put_object));
    let tree = stored_tree(&store.data, &options, core.id, objects)?;
    let edit = [Change::SetOptions(core.id, options.encode())].into_iter().chain(border);
    commit_catalogue(store, &edit.collect::<Vec<_>>())?;
    let commit = store.commits.lock();
    core.publish_options(tree, options);
    core.expect_jobs();
    drop(commit);
    store.background.wake_all();
    Ok(())
}

/// Writes down what keyspaces whose thresholds move have paid so far, if that has changed by much. When
/// the store is closed.
pub fn keep_value_costs(store: &Store) -> Result<()> {
    // Where space is short there are better uses for it.
    if store.log.wal.is_none() || store.nearly_full.is_on() || store.space.is_short() {
        return Ok(());
    }
    let _flush = store.flush_lock.lock();
    let changed = |core: &Arc<KeyspaceCore>| {
        let view = core.view.load();
        let now = options_now(core);
        let price = price_of_moving(&*view.tree, now.large_values());
        let least = price.unwrap_or(u64::MAX) / PARTS_OF_PRICE;
        let by = now.value_excess().abs_diff(view.options.value_excess());
        (!core.is_dropped() && by > least).then(|| Change::SetOptions(core.id, now.encode()))
    };
    let edit: Vec<Change> = store.keyspaces().iter().filter_map(changed).collect();
    if edit.is_empty() || store.has_failed() { Ok(()) } else { commit_catalogue(store, &edit) }
}

/// Commits a change of the catalogue. The log notes it, so that whatever is committed from now on
/// proves it.
pub fn commit_catalogue(store: &Store, edit: &[Change]) -> Result<()> {
    let outcome = commit_edit(store, edit).and_then(|()| store.wal()?.record_edit());
    if let Err(error) = &outcome {
        store.poison(error);
    }
    outcome
}
