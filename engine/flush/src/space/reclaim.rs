//! Behavior of a store on a nearly full device, which ensures that removals free space eventually (decision
//! 0032).
//!
//! With plenty of space, nothing changes. Otherwise free space of the data file is held (`hold_space.rs`). If
//! a flush by the tree's rules needs more than there is, buffers go on top. While less is held than required,
//! only removals are accepted, and space is reclaimed in steps that fit into the remaining space.
//!
//! **Invariants**
//! - Held space is used only under `flush_lock`, to put buffers on top or to reclaim.
//! - Removals are refused only if nothing more can be reclaimed according to a fresh query of the device.

use testudo_base::{
    ErrorKind, Result, planted,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_contract::{LeastGain, Progress, Reclaim, ReclaimLimits};
use testudo_store::{
    Store, keyspace::KeyspaceCore, poison_on_panic::PoisonOnPanic, space::space_guard::Intent,
};

use crate::{
    jobs::install::{commit_job, install_prepared},
    round::flush_sealed::flush_sealed,
    seal::seal_buffers::seal_all,
    space::hold_space::{ask_for_space, available_bytes, hold_space, lock_and_hold_space, with_held_space},
};

/// No step is taken while readers hold more than one part in this many of the space that a step needs: its
/// space would be held too.
const HELD_PARTS: u64 = 2;

pub fn is_full<T>(outcome: &Result<T>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace)
}

/// Runs one reclaim step if space is short; `false` if no step gains enough.
pub fn reclaim_round(store: &Store, least_gain: LeastGain) -> Result<bool> {
    if !store.nearly_full.is_short() || planted!("space-not-reclaimed") {
        return Ok(false);
    }
    let _flush = store.flush_lock.lock();
    store.check_writable()?;
    install_prepared(store)?;
    hold_space(store)?;
    if !store.nearly_full.is_short() {
        return Ok(true);
    }
    let step_bytes = store.nearly_full.step_bytes.load(Relaxed);
    // Space that a reader still holds would not be reclaimed.
    if store.data.space_stats().held_bytes > step_bytes / HELD_PARTS {
        // Space held by a job is freed as soon as it ends; it waits for this lock.
        return Ok(store.background.jobs.is_any_in_progress());
    }
    let usable = available_bytes(store);
    let mut best: Option<(Arc<KeyspaceCore>, Reclaim)> = None;
    for keyspace in store.keyspaces() {
        let but = store.nearly_full.tried_of(keyspace.id, usable);
        let limits = ReclaimLimits { space_bytes: usable, least_gain, but: &but };
        let Some(reclaim) = keyspace.view.load().tree.pick_reclaim(&limits)? else { continue };
        if best.as_ref().is_none_or(|(_, best)| reclaim.gain_bytes > best.gain_bytes) {
            best = Some((keyspace, reclaim));
        }
    }
    let Some((keyspace, reclaim)) = best else {
        store.nearly_full.is_exhausted.store(least_gain > LeastGain::Worthwhile, Relaxed);
        return Ok(false);
    };
    debug_assert!(store.nearly_full.is_on(), "space is short only on a device that is nearly full");
    let _guard = PoisonOnPanic::new(store);
    let outcome = with_held_space(store, 0, || {
        store.beginning.begin().inspect_err(|error| store.poison(error))?;
        let tree = Arc::clone(&keyspace.view.load().tree);
        let progress = Arc::new(Progress::default());
        let edit = tree.reclaim(&store.work(&keyspace, Arc::clone(&progress)), &reclaim)?;
        drop(tree);
        if !reclaim.is_progress(&edit, store.data.extents()) {
            return Ok(false);
        }
        let drops = progress.take_drops();
        let is_durable = store.data.sync().and_then(|()| commit_job(store, &keyspace, edit, drops));
        is_durable.inspect_err(|error| store.poison(error)).map(|()| true)
    });
    if is_full(&outcome) && !store.has_failed() || matches!(outcome, Ok(false)) {
        store.nearly_full.note_tried(keyspace.id, reclaim, usable);
    } else {
        outcome.inspect_err(|error| store.poison(error))?;
    }
    hold_space(store)?;
    Ok(true)
}

/// Runs a round of flushing, or a reclaim step if space is too short for it; `false` if nothing waits.
///
/// Errors: as of [`flush_sealed`], `OutOfSpace` only if nothing can be reclaimed.
pub fn flush_or_reclaim(store: &Store) -> Result<bool> {
    match flush_sealed(store) {
        outcome if is_full(&outcome) && !store.has_failed() => {
            if reclaim_round(store, LeastGain::None)? {
                Ok(true)
            } else {
                outcome
            }
        }
        outcome => outcome,
    }
}

/// Takes a step to free space for writes; `false` if none helps. Buffered removals free no space before they
/// reach the trees, so a refused write flushes them, however few they are.
pub fn win_space(store: &Store) -> Result<bool> {
    if reclaim_round(store, LeastGain::Worthwhile)? {
        return Ok(true);
    }
    let state = &store.nearly_full;
    let is_wanted = state.is_short() && store.backpressure.used() > 0;
    if !is_wanted || !state.has_refused.swap(false, Relaxed) {
        return Ok(false);
    }
    seal_all(store);
    flush_sealed(store)
}

/// Refuses a commit for which space is too short; frees space for one that removes.
#[cold]
pub fn admit_nearly_full(store: &Store, bytes: u64, intent: Intent) -> Result<()> {
    let mut is_asked = false;
    loop {
        let Err(refusal) = check_space(store, bytes, intent, Reclaiming::Possible) else { return Ok(()) };
        let is_going_on = match intent {
            Intent::Remove => make_space_for(store, bytes)?,
            // A large one may only have to wait for the buffered writes.
            Intent::Write if is_limited_by_buffers(store) => flush_buffers(store)?,
            Intent::Write => {
                store.nearly_full.checks.is_due(&*store.env) && lock_and_hold_space(store).map(|()| false)?
            }
        };
        if is_going_on {
            continue;
        }
        store.nearly_full.has_refused.store(true, Relaxed);
        if check_space(store, bytes, intent, Reclaiming::Exhausted).is_ok() {
            return Ok(());
        }
        if intent == Intent::Write {
            return Err(refusal);
        }
        if !reclaim_round(store, LeastGain::None)? {
            // The known free space of the device may be stale.
            if is_asked {
                return Err(refusal);
            }
            is_asked = true;
            ask_for_space(store)?;
        }
    }
}

fn is_limited_by_buffers(store: &Store) -> bool {
    let is_refusing = store.nearly_full.is_short() || store.space.is_short();
    store.nearly_full.is_on() && !is_refusing && store.backpressure.used() > 0
}

/// Whether space for a removal may still be reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reclaiming {
    Possible,
    /// Removals may then use the space that a step would need.
    Exhausted,
}

fn check_space(store: &Store, bytes: u64, intent: Intent, reclaiming: Reclaiming) -> Result<()> {
    let state = &store.nearly_full;
    store.space.check(&*store.env, intent)?;
    if !state.is_on() {
        return Ok(());
    }
    let buffered = store.backpressure.used() + bytes;
    let is_enough = match intent {
        Intent::Write => !state.is_short() && buffered <= state.buffered_max.load(Relaxed),
        Intent::Remove if reclaiming == Reclaiming::Exhausted => buffered <= state.removed_max.load(Relaxed),
        Intent::Remove => buffered <= state.buffered_max.load(Relaxed),
    };
    if is_enough { Ok(()) } else { Err(intent.refusal()) }
}

/// Takes a step to free space for a removal; `false` if there is none, or none is needed.
fn make_space_for(store: &Store, bytes: u64) -> Result<bool> {
    if !store.nearly_full.is_exhausted.load(Relaxed) && reclaim_round(store, LeastGain::Any)? {
        return Ok(true);
    }
    // Each flush on top of the trees takes pages: batch many removals into one.
    if check_space(store, bytes, Intent::Remove, Reclaiming::Exhausted).is_ok() {
        return Ok(false);
    }
    flush_buffers(store)
}

/// Flushes buffered writes wherever they fit; `false` if there are none, or none fit.
fn flush_buffers(store: &Store) -> Result<bool> {
    if store.backpressure.used() > 0 {
        seal_all(store);
        match flush_sealed(store) {
            Ok(true) => return Ok(true),
            outcome if is_full(&outcome) => {}
            outcome => drop(outcome?),
        }
    }
    Ok(false)
}
