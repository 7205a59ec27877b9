//! What a store does while its device is nearly full, so that removals always make room in the end (decision
//! 0032).
//!
//! As long as there is plenty of space, nothing. Otherwise free space of the data file is held
//! (`hold_space.rs`). Where the tree's own way of a flush would need more than there is, the buffers go on
//! top. While what is held is not whole, only removals are taken, and space is reclaimed in steps, each of
//! which fits into what is left.
//!
//! **Invariants**
//! - Held space is taken only under `flush_lock`, by what puts buffers on top or reclaims.
//! - Removals are refused only if nothing more can be reclaimed, and the device was asked just now.

use testudo_base::{
    ErrorKind, Result, planted,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_contract::{LeastGain, Progress, Reclaim, ReclaimLimits};
use testudo_store::{Store, keyspace::KeyspaceCore, space::space_guard::Intent};

use crate::{
    jobs::commit_job,
    round::flush_sealed::flush_sealed,
    seal::seal_buffers::seal_all,
    space::hold_space::{ask_for_space, available_bytes, hold_space, lock_and_hold_space, with_held_space},
};

pub fn is_full<T>(outcome: &Result<T>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace)
}

/// Does one step of reclaiming if space is short; `false` if there is none that wins enough.
pub fn reclaim_round(store: &Store, least_gain: LeastGain) -> Result<bool> {
    if !store.nearly_full.is_short() || planted!("space-not-reclaimed") {
        return Ok(false);
    }
    let _flush = store.flush_lock.lock();
    store.check_writable()?;
    hold_space(store)?;
    if !store.nearly_full.is_short() {
        return Ok(true);
    }
    let step_bytes = store.nearly_full.step_bytes.load(Relaxed);
    // What a reader still holds would not be won.
    if store.data.space_stats().held_bytes > step_bytes / 2 {
        // What a job still holds is free as soon as that has ended, which waits for this lock.
        return Ok(store.background.jobs.is_any_underway());
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

/// Does a round of flushing, or, if there is no space for it, a step that wins some; `false` if nothing
/// waits.
///
/// Errors: as of [`flush_sealed`], `OutOfSpace` only if nothing can be won.
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

/// Takes a step towards space for writes; `false` if none can be won. What write buffers remove is worth
/// nothing before it is in the trees: if a write was refused they go there, however little they hold.
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

/// Refuses a commit that the space would not be enough for; makes room for one that removes.
#[cold]
pub fn admit_nearly_full(store: &Store, bytes: u64, intent: Intent) -> Result<()> {
    let mut is_asked = false;
    loop {
        let Err(refusal) = check_space(store, bytes, intent, false) else { return Ok(()) };
        let is_going_on = match intent {
            Intent::Remove => make_space_for(store, bytes)?,
            // A long one may only have to wait for what is buffered.
            Intent::Write if is_limited_by_buffers(store) => flush_buffers(store)?,
            Intent::Write => {
                store.nearly_full.checks.is_due(&*store.env) && lock_and_hold_space(store).map(|()| false)?
            }
        };
        if is_going_on {
            continue;
        }
        store.nearly_full.has_refused.store(true, Relaxed);
        if check_space(store, bytes, intent, true).is_ok() {
            return Ok(());
        }
        if intent == Intent::Write {
            return Err(refusal);
        }
        if !reclaim_round(store, LeastGain::None)? {
            // What is known of the device may be old.
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

/// `is_last`: nothing can be reclaimed.
fn check_space(store: &Store, bytes: u64, intent: Intent, is_last: bool) -> Result<()> {
    let state = &store.nearly_full;
    store.space.check(&*store.env, intent)?;
    if !state.is_on() {
        return Ok(());
    }
    let buffered = store.backpressure.used() + bytes;
    let is_enough = match intent {
        Intent::Write => !state.is_short() && buffered <= state.buffered_max.load(Relaxed),
        Intent::Remove if is_last => buffered <= state.removed_max.load(Relaxed),
        Intent::Remove => buffered <= state.buffered_max.load(Relaxed),
    };
    if is_enough { Ok(()) } else { Err(intent.refusal()) }
}

/// Takes a step towards space for a removal; `false` if there is none to be taken, or none is needed.
fn make_space_for(store: &Store, bytes: u64) -> Result<bool> {
    if !store.nearly_full.is_exhausted.load(Relaxed) && reclaim_round(store, LeastGain::Any)? {
        return Ok(true);
    }
    // Each time that buffers are put on top that takes pages: better many removals at once.
    if check_space(store, bytes, Intent::Remove, true).is_ok() {
        return Ok(false);
    }
    flush_buffers(store)
}

/// Puts what is buffered into the trees, wherever it fits; `false` if that is nothing, or not possible.
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
