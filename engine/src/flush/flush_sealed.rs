//! Flushing: sealed buffers go into their trees, in rounds. Up to 512 buffers share one sync and one manifest
//! edit.
//!
//! | step | file |
//! |---|---|
//! | seal | `seal_buffers.rs` |
//! | wait for commits under way, sync the log | here |
//! | freeze, apply to the trees | `apply.rs` |
//! | sync the data, commit the edit, publish | `commit_flush.rs` |
//! | release the log | `log_release.rs` |
//! | spill what was flushed and is held | `spill.rs` |
//!
//! **Invariants**
//! - One round at a time (`flush_lock`); of each keyspace only the oldest sealed buffer takes part.
//! - The log is synced before a run is written: no run on disk holds what the log could still lose.
//! - A failure before an edit is committed changes nothing of its buffers; a failed commit poisons the store.

use testudo_base::{
    Error, ErrorKind, Result, planted,
    sync::{Arc, atomic::Ordering::Relaxed, scaled},
};
use testudo_contract::Progress;

use crate::{
    flush::{
        apply::{Placement, Waiting},
        stages::{Stage, StageClock},
    },
    store::Store,
    write::backpressure::Part,
};

/// Keyspaces that are flushed with one edit. For each of them the new nodes, the edit and its encoding take
/// a few KiB until it is durable.
const GROUP_KEYSPACES: usize = scaled(512, 2);

fn is_full(error: &Error) -> bool {
    error.kind() == ErrorKind::OutOfSpace
}

impl Store {
    /// Frees write memory in stepped execution: seals, and flushes what is sealed.
    pub(crate) fn flush_for_memory(&self) -> Result<()> {
        self.lock_and_hold_space()?;
        self.govern_memory();
        self.seal_if_full();
        self.flush_sealed().map(|_| ())
    }

    /// The same during an opening, which leaves the space of the device as it is unless there is something to
    /// flush.
    pub(crate) fn flush_if_full(&self) -> Result<()> {
        self.govern_memory();
        self.seal_if_full();
        if self.oldest_sealed().is_empty() {
            return Ok(());
        }
        self.lock_and_hold_space()?;
        self.flush_sealed().map(|_| ())
    }

    /// Flushes the oldest sealed buffer of every keyspace that has one; `false` if there was none.
    ///
    /// Errors: also poisons the store, unless space or anything else is lacking and nothing was changed.
    pub(crate) fn flush_sealed(&self) -> Result<bool> {
        self.catch_up()?;
        let _flush = self.flush_lock.lock();
        self.check_writable()?;
        let waiting = self.oldest_sealed();
        if waiting.is_empty() {
            return Ok(false);
        }
        let outcome = self.flush_round(waiting);
        let outcome = self.after_round(outcome);
        if outcome.is_ok() {
            self.spill_held_buffers();
        }
        self.end_relief();
        outcome.map(|()| true)
    }

    fn after_round(&self, outcome: Result<()>) -> Result<()> {
        self.give_back_what_failed(&outcome)?;
        if !self.has_failed() {
            self.hold_space()?;
        }
        outcome?;
        self.end_round()
    }

    /// The oldest sealed buffer of every keyspace that has one.
    fn oldest_sealed(&self) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        for keyspace in self.buffered.all() {
            let oldest = keyspace.view.load().sealed.last().cloned();
            waiting.extend(oldest.map(|buffer| (keyspace, buffer)));
        }
        waiting
    }

    /// Flushes what waits, while writers are told how far it is.
    fn flush_round(&self, waiting: Vec<Waiting>) -> Result<()> {
        let part = |(_, buffer): &Waiting| (buffer.table.memory_bytes(), Arc::new(Progress::default()));
        let parts: Vec<Part> = waiting.iter().map(part).collect();
        let started = self.env.monotonic();
        self.data.begin_round();
        self.backpressure.flush_started(&*self.env, parts.clone());
        let outcome = self.flush_in_groups(&waiting, &parts);
        match &outcome {
            Ok(()) => self.health.set_stall(None),
            // Writers are stopped until what is lacking is there again, not for good.
            Err(error) if error.is_shortage() => self.health.set_stall(Some(error.clone())),
            Err(_) => {}
        }
        let bytes = parts.iter().map(|(bytes, _)| bytes).sum();
        self.counters.stages.record_round(bytes, self.env.monotonic().saturating_sub(started));
        self.backpressure.flush_ended(&*self.env);
        outcome
    }

    /// Flushes what waits, so many keyspaces with one edit. On a device that is nearly full it stops after
    /// the first edit: the next round goes on.
    ///
    /// What recovery has read may stand in caches only, so all of it has one edit (`replay.rs`): no commit
    /// becomes durable in some of its keyspaces and is lost in others.
    fn flush_in_groups(&self, waiting: &[Waiting], parts: &[Part]) -> Result<()> {
        let is_recovery = self.log.wal.is_none();
        let most = if is_recovery { waiting.len() } else { GROUP_KEYSPACES };
        for (waiting, parts) in waiting.chunks(most).zip(parts.chunks(most)) {
            self.flush_where_it_fits(waiting.to_vec(), parts)?;
            if self.nearly_full.is_short() {
                break;
            }
        }
        Ok(())
    }

    /// The data file gives back what a round that has succeeded took too much.
    fn end_round(&self) -> Result<()> {
        if self.has_failed() {
            return Ok(());
        }
        match self.data.end_round() {
            // What cannot be given back on a full device stays free.
            Err(error) if !error.is_shortage() => {
                self.poison(&error);
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Flushes into the trees as they would have it, or, if there is not enough space, on top of them. There
    /// only as many buffers as fit; at least one.
    ///
    /// What a flush by a tree's rules takes has no bound. So a device is nearly full, too, if it was not
    /// enough for one, however much is free once that has been given back.
    fn flush_where_it_fits(&self, mut waiting: Vec<Waiting>, parts: &[Part]) -> Result<()> {
        if !self.nearly_full.is_short() {
            let outcome = self.flush_waiting(waiting.clone(), parts, Placement::InTree);
            if self.has_failed() || !outcome.as_ref().is_err_and(is_full) {
                if outcome.is_ok() {
                    self.nearly_full.failed_bytes.store(0, Relaxed);
                }
                return outcome;
            }
            self.data.give_back_space()?;
            self.note_failed_flush();
            self.hold_space()?;
            if planted!("failed-flush-forgotten") && !self.nearly_full.is_on() {
                return outcome;
            }
        }
        let mut left = self.available_bytes();
        let mut fits = |(keyspace, buffer): &Waiting| {
            let bytes = keyspace.view.load().tree.on_top_bytes(buffer.table.memory_bytes());
            left.checked_sub(bytes).inspect(|&rest| left = rest).is_some()
        };
        let count = waiting.iter().take_while(|waiting| fits(waiting)).count();
        waiting.truncate(count.max(1));
        self.with_held_space(0, || self.flush_waiting(waiting, parts, Placement::OnTop))
    }

    /// The steps of a round.
    fn flush_waiting(&self, waiting: Vec<Waiting>, parts: &[Part], placement: Placement) -> Result<()> {
        let mut clock = StageClock::start(&*self.env, &self.counters.stages);
        let newest = waiting.iter().map(|(_, buffer)| buffer.sealed_at()).max().unwrap_or_default();
        if !planted!("sealed-buffer-not-awaited") {
            self.commits.in_flight.wait_for(newest);
        }
        // During recovery there is no log yet; what it reads was synced before, or is flushed by this
        // very round (values that it found in value logs).
        if let Some(wal) = self.log.wal.as_ref().filter(|_| !planted!("log-unsynced-at-flush")) {
            wal.sync_to(newest).inspect_err(|error| self.poison(error))?;
        }
        clock.end(Stage::Log);
        self.beginning.begin().inspect_err(|error| self.poison(error))?;
        let applied = self.apply_all(waiting, parts, placement);
        clock.end(Stage::Apply);
        let flushed = applied.inspect_err(|error| self.poison_unless_full(error))?;
        self.commit_flushed(flushed, &mut clock).inspect_err(|error| self.poison(error))
    }

    /// What finds no space before anything was committed is tried again; whatever else fails stops writers
    /// for good.
    pub(crate) fn poison_unless_full(&self, error: &Error) {
        if !is_full(error) {
            self.poison(error);
        }
    }
}

#[cfg(test)]
mod tests;
