//! Changes to the settings of an open keyspace.
//!
//! **Invariants**
//! - Settings change between flushes, and their edit is durable before they become visible.

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

use crate::{
    govern::moving_price::price_of_moving,
    jobs::run_job_of,
    manifest_edit::{commit_edit, references_of},
};

/// Cost changes below this fraction of the price of moving are not persisted.
const PARTS_OF_PRICE: u64 = 64;

/// Polling interval while other threads move the rest of a keyspace.
const PAUSE: Duration = Duration::from_millis(1);

/// Whether a keyspace is being rewritten for its values, which prevents a change to `tree`.
fn is_rewritten(options: &StoredOptions, tree: Tree) -> bool {
    let present = options.tree();
    options.moving_from().is_some_and(|left| is_of_family(left, present)) && !is_of_family(present, tree)
}

/// The object that a change puts, if any.
fn put_object(change: &Change) -> Option<(ObjectId, Arc<[u8]>)> {
    match change {
        Change::PutObject(_, object, bytes) => Some((*object, Arc::from(bytes.as_slice()))),
        _ => None,
    }
}

/// The options with the current cost difference.
fn options_now(core: &KeyspaceCore) -> StoredOptions {
    let view = core.view.load();
    // A small tree counts no costs.
    let known = view.options.value_excess();
    let excess = view.tree.value_costs().map_or(known, |costs| costs.excess(view.options.large_values()));
    view.options.with_value_excess(excess)
}

/// Moves a keyspace to a tree of another kind, and its values to the preset's placement, if it has one. A
/// keyspace that is being rewritten for its values cannot move to a third tree. The caller then helps to
/// finish that rewrite, without moving more values; the move to the new tree brings them inline.
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

/// Changes the value placement of a keyspace for later writes.
pub fn set_placement(store: &Store, core: &KeyspaceCore, placement: Placement) -> Result<()> {
    set_options(store, core, |present, _| Ok((present.with_placement(placement), None)))
}

/// Changes where a keyspace with adaptive thresholds stores large values. Separated values move inline as the
/// keyspace is rewritten portion by portion.
pub fn set_large_values(store: &Store, core: &KeyspaceCore, large_values: LargeValues) -> Result<()> {
    set_options(store, core, |present, objects| {
        let next = present.with_large_values(large_values);
        if !present.placement().moves() || present.moving_from().is_some() {
            return Ok((present, None));
        }
        match large_values {
            LargeValues::Separated => Ok((next, None)),
            LargeValues::WithKeys => rewritten_tree(&next, core.id, objects),
        }
    })
}

/// Reopens the tree of a keyspace with other options and a change to its objects.
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
    // Between rounds, the durable objects are those of the published tree.
    let mut objects = store.manifest.with_state(|state| state.objects_of(core.id));
    let (options, border) = next(present, &objects)?;
    debug_assert!(options != present || border.is_none(), "objects change only with the settings");
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

/// Persists the cost difference of keyspaces with adaptive thresholds if it has changed significantly. Called
/// on close.
pub fn keep_value_costs(store: &Store) -> Result<()> {
    // On a device short of space, skip it: log and trees need the space more.
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
    debug_assert!(edit.len() <= store.keyspaces().len(), "one change of each keyspace");
    if edit.is_empty() || store.has_failed() { Ok(()) } else { commit_catalogue(store, &edit) }
}

/// Commits a catalogue change. The log records it, so that any later commit proves it.
pub fn commit_catalogue(store: &Store, edit: &[Change]) -> Result<()> {
    after_catalogue_edit(store, commit_edit(store, edit))
}

/// Same for an edit that only creates keyspaces: it refers to no pages, so it may be committed while a flush
/// or job writes. REQUIRES: `catalogue_lock` is held.
pub fn commit_creation(store: &Store, edit: &[Change]) -> Result<()> {
    debug_assert!(references_of(edit).next().is_none(), "a creation refers to no pages");
    let outcome = store.beginning.begin().and_then(|()| store.manifest.commit(edit));
    after_catalogue_edit(store, outcome)
}

fn after_catalogue_edit(store: &Store, outcome: Result<()>) -> Result<()> {
    let outcome = outcome.and_then(|()| store.wal()?.record_edit());
    if let Err(error) = &outcome {
        store.poison(error);
    }
    outcome
}
