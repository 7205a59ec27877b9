//! Flushing: sealed buffers are applied to their trees in rounds. Up to 512 buffers share one sync and one
//! manifest edit.
//!
//! | step | file |
//! |---|---|
//! | seal | `seal/seal_buffers.rs` |
//! | wait for in-flight commits, sync the log | here |
//! | freeze, apply to the trees | `apply.rs` |
//! | sync the data, commit the edit, publish | `commit_flush.rs` |
//! | release the log | `log_release.rs`; a job thread removes the files |
//! | spill flushed buffers that are still held | `spill.rs` |
//!
//! **Invariants**
//! - One round at a time (`flush_lock`); a round takes only the oldest sealed buffer of each keyspace.
//! - The log is synced before a run is written: no run on disk holds a write that the log could still lose.
//! - A failure before the edit is committed leaves its buffers unchanged; a failed commit poisons the store.

use testudo_base::{
    Result, Seqno, planted,
    sync::{Arc, atomic::Ordering::Relaxed, scaled},
};
use testudo_contract::Progress;
use testudo_store::{
    Store,
    background::stages::{Stage, StageClock},
    commits::backpressure::Part,
    poison_on_panic::PoisonOnPanic,
};

use crate::{
    govern::govern_memory::govern_memory,
    jobs::{
        catch_up::{behind_bytes, catch_up, look_at_sealed},
        install::install_prepared,
    },
    manifest_edit::{is_full, poison_unless_full},
    round::{
        apply::{Placement, Waiting, apply_all},
        commit_flush::commit_flushed,
        spill::{end_relief, spill_held_buffers},
    },
    seal::seal_buffers::seal_if_full,
    space::{
        give_back::give_back_what_failed,
        hold_space::{available_bytes, hold_space, lock_and_hold_space, note_failed_flush, with_held_space},
    },
};

/// Maximum keyspaces flushed with one edit. For each, the new nodes, the edit and its encoding take a few KiB
/// until the edit is durable.
const GROUP_KEYSPACES: usize = scaled(512, 2);

/// Frees write memory in stepped execution: seals buffers and flushes them.
pub fn flush_for_memory(store: &Store) -> Result<()> {
    lock_and_hold_space(store)?;
    govern_memory(store);
    seal_if_full(store);
    flush_sealed(store).map(|_| ())
}

/// As [`flush_for_memory`], but on open: leaves the space of the device unchanged unless there is something
/// to flush.
pub fn flush_if_full(store: &Store) -> Result<()> {
    govern_memory(store);
    seal_if_full(store);
    if oldest_sealed(store).is_empty() {
        return Ok(());
    }
    lock_and_hold_space(store)?;
    flush_sealed(store).map(|_| ())
}

/// Flushes the oldest sealed buffer of every keyspace that has one and whose tree keeps up; `false` if there
/// was none. If no tree keeps up, first runs jobs.
///
/// Errors: also poisons the store, except for a shortage (of space, for example) before anything was changed.
pub fn flush_sealed(store: &Store) -> Result<bool> {
    catch_up(store)?;
    let _flush = store.flush_lock.lock();
    store.check_writable()?;
    // In stepped execution, other steps come between the halves of jobs.
    if !store.background.is_stepped {
        install_prepared(store)?;
    }
    let waiting = due_for_round(store);
    if waiting.is_empty() {
        return Ok(false);
    }
    let outcome = flush_round(store, waiting);
    let outcome = after_round(store, outcome);
    if outcome.is_ok() {
        spill_held_buffers(store);
    }
    end_relief(store);
    if store.backpressure.behind.is_any() {
        look_at_sealed(store);
    }
    outcome.map(|()| true)
}

fn after_round(store: &Store, outcome: Result<()>) -> Result<()> {
    debug_assert!(store.is_flush_locked(), "one round at a time");
    give_back_what_failed(store, &outcome)?;
    if !store.has_failed() {
        hold_space(store)?;
    }
    outcome?;
    end_round(store)
}

/// The oldest sealed buffers of keyspaces whose trees keep up; of all keyspaces if none does.
fn due_for_round(store: &Store) -> Vec<Waiting> {
    let mut waiting = oldest_sealed(store);
    let keeps_up = |(keyspace, _): &Waiting| behind_bytes(store, keyspace) == 0;
    if waiting.iter().any(keeps_up) {
        waiting.retain(keeps_up);
    }
    waiting
}

/// The oldest sealed buffer of every keyspace that has one.
pub fn oldest_sealed(store: &Store) -> Vec<Waiting> {
    let mut waiting = Vec::new();
    for keyspace in store.buffered.sealed() {
        let oldest = keyspace.view.load().sealed.last().cloned();
        waiting.extend(oldest.map(|buffer| (keyspace, buffer)));
    }
    waiting
}

/// Flushes the given buffers and reports the progress to throttled writers.
pub fn flush_round(store: &Store, waiting: Vec<Waiting>) -> Result<()> {
    debug_assert!(store.is_flush_locked(), "one round at a time");
    debug_assert!(!waiting.is_empty(), "a round has buffers");
    let _guard = PoisonOnPanic::new(store);
    let part = |(_, buffer): &Waiting| (buffer.table.memory_bytes(), Arc::new(Progress::default()));
    let parts: Vec<Part> = waiting.iter().map(part).collect();
    let started = store.env.monotonic();
    store.backpressure.flush_started(&*store.env, parts.clone());
    let outcome = flush_in_groups(store, &waiting, &parts);
    match &outcome {
        Ok(()) => store.health.set_stall(None),
        // Writers stall until the shortage ends, not permanently.
        Err(error) if error.is_shortage() => store.health.set_stall(Some(error.clone())),
        Err(_) => {}
    }
    let bytes = parts.iter().map(|(bytes, _)| bytes).sum();
    store.counters.stages.record_round(bytes, store.env.monotonic().saturating_sub(started));
    store.backpressure.flush_ended(&*store.env);
    outcome
}

/// Flushes the given buffers, up to [`GROUP_KEYSPACES`] keyspaces per edit. On a nearly full device it stops
/// after the first edit; the next round continues.
///
/// Recovered writes may exist only in volatile caches, so recovery uses a single edit
/// (`engine/recovery/src/replay.rs`): no commit becomes durable in some of its keyspaces and is lost in
/// others.
fn flush_in_groups(store: &Store, waiting: &[Waiting], parts: &[Part]) -> Result<()> {
    let is_recovery = store.log.wal.is_none();
    let most = if is_recovery { waiting.len() } else { GROUP_KEYSPACES };
    debug_assert_eq!(waiting.len(), parts.len(), "a part for each buffer");
    for (waiting, parts) in waiting.chunks(most).zip(parts.chunks(most)) {
        flush_where_it_fits(store, waiting.to_vec(), parts)?;
        if store.nearly_full.is_short() {
            break;
        }
    }
    Ok(())
}

/// Releases the space that a successful round over-allocated in the data file.
fn end_round(store: &Store) -> Result<()> {
    if store.has_failed() {
        return Ok(());
    }
    match store.data.end_round() {
        // On a full device, space that cannot be released stays free.
        Err(error) if !error.is_shortage() => {
            store.poison(&error);
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Flushes into the trees by their own rules, or on top of them if space is short. In that case it flushes
/// only as many buffers as fit, but at least one.
///
/// The space of a flush by a tree's rules is unbounded. So a device also counts as nearly full if it was too
/// small for one, however much is free after that space was released.
fn flush_where_it_fits(store: &Store, mut waiting: Vec<Waiting>, parts: &[Part]) -> Result<()> {
    if !store.nearly_full.is_short() {
        let outcome = flush_waiting(store, waiting.clone(), parts, Placement::InTree);
        if store.has_failed() || !outcome.as_ref().is_err_and(is_full) {
            if outcome.is_ok() {
                store.nearly_full.failed_bytes.store(0, Relaxed);
            }
            return outcome;
        }
        store.data.give_back_space()?;
        note_failed_flush(store);
        hold_space(store)?;
        if planted!("failed-flush-forgotten") && !store.nearly_full.is_on() {
            return outcome;
        }
    }
    let mut left = available_bytes(store);
    let mut fits = |(keyspace, buffer): &Waiting| {
        let bytes = keyspace.view.load().tree.on_top_bytes(buffer.table.memory_bytes());
        left.checked_sub(bytes).inspect(|&rest| left = rest).is_some()
    };
    let count = waiting.iter().take_while(|waiting| fits(waiting)).count();
    debug_assert!(!waiting.is_empty(), "a group has buffers");
    waiting.truncate(count.max(1));
    with_held_space(store, 0, || flush_waiting(store, waiting, parts, Placement::OnTop))
}

/// Runs the steps of a round.
fn flush_waiting(store: &Store, waiting: Vec<Waiting>, parts: &[Part], placement: Placement) -> Result<()> {
    let mut clock = StageClock::start(&*store.env, &store.counters.stages);
    let newest = waiting.iter().map(|(_, buffer)| buffer.sealed_at()).max().unwrap_or_default();
    if !planted!("sealed-buffer-not-awaited") {
        store.commits.wait_for(newest);
    }
    // During recovery there is no log yet. The writes it replays were synced before, or this round flushes
    // them (values found in value logs).
    if let Some(wal) = store.log.wal.as_ref().filter(|_| !planted!("log-unsynced-at-flush")) {
        wal.sync_to(newest).inspect_err(|error| store.poison(error))?;
    }
    debug_assert!(newest > Seqno(0), "buffers are sealed before they are flushed");
    debug_assert!(newest <= store.last_seqno(), "sealed buffers hold assigned seqnos");
    clock.end(Stage::Log);
    store.beginning.begin().inspect_err(|error| store.poison(error))?;
    let applied = apply_all(store, waiting, parts, placement);
    clock.end(Stage::Apply);
    let flushed = applied.inspect_err(|error| poison_unless_full(store, error))?;
    commit_flushed(store, flushed, &mut clock).inspect_err(|error| store.poison(error))
}
