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

use crate::{
    store::{Store, view::KeyspaceCore},
    write::space_guard::Intent,
};

pub(crate) fn is_full<T>(outcome: &Result<T>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace)
}

impl Store {
    /// Does one step of reclaiming if space is short; `false` if there is none that wins enough.
    pub(crate) fn reclaim_round(&self, least_gain: LeastGain) -> Result<bool> {
        if !self.nearly_full.is_short() || planted!("space-not-reclaimed") {
            return Ok(false);
        }
        let _flush = self.flush_lock.lock();
        self.check_writable()?;
        self.hold_space()?;
        if !self.nearly_full.is_short() {
            return Ok(true);
        }
        let step_bytes = self.nearly_full.step_bytes.load(Relaxed);
        // What a reader still holds would not be won.
        if self.data.space_stats().held_bytes > step_bytes / 2 {
            // What a job still holds is free as soon as that has ended, which waits for this lock.
            return Ok(self.background.jobs.is_any_underway());
        }
        let usable = self.available_bytes();
        let mut best: Option<(Arc<KeyspaceCore>, Reclaim)> = None;
        for keyspace in self.keyspaces() {
            let but = self.nearly_full.tried_of(keyspace.id, usable);
            let limits = ReclaimLimits { space_bytes: usable, least_gain, but: &but };
            let Some(reclaim) = keyspace.view.load().tree.pick_reclaim(&limits)? else { continue };
            if best.as_ref().is_none_or(|(_, best)| reclaim.gain_bytes > best.gain_bytes) {
                best = Some((keyspace, reclaim));
            }
        }
        let Some((keyspace, reclaim)) = best else {
            self.nearly_full.is_exhausted.store(least_gain > LeastGain::Worthwhile, Relaxed);
            return Ok(false);
        };
        let outcome = self.with_held_space(0, || {
            self.beginning.begin().inspect_err(|error| self.poison(error))?;
            let tree = Arc::clone(&keyspace.view.load().tree);
            let progress = Arc::new(Progress::default());
            let edit = tree.reclaim(&self.work(&keyspace, Arc::clone(&progress)), &reclaim)?;
            drop(tree);
            if !reclaim.is_progress(&edit, self.data.extents()) {
                return Ok(false);
            }
            let drops = progress.take_drops();
            let is_durable = self.data.sync().and_then(|()| self.commit_job(&keyspace, edit, drops));
            is_durable.inspect_err(|error| self.poison(error)).map(|()| true)
        });
        if is_full(&outcome) && !self.has_failed() || matches!(outcome, Ok(false)) {
            self.nearly_full.note_tried(keyspace.id, reclaim, usable);
        } else {
            outcome.inspect_err(|error| self.poison(error))?;
        }
        self.hold_space()?;
        Ok(true)
    }

    /// Does a round of flushing, or, if there is no space for it, a step that wins some; `false` if nothing
    /// waits.
    ///
    /// Errors: as of [`Store::flush_sealed`], `OutOfSpace` only if nothing can be won.
    pub(crate) fn flush_or_reclaim(&self) -> Result<bool> {
        match self.flush_sealed() {
            outcome if is_full(&outcome) && !self.has_failed() => {
                if self.reclaim_round(LeastGain::None)? {
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
    pub(crate) fn win_space(&self) -> Result<bool> {
        if self.reclaim_round(LeastGain::Worthwhile)? {
            return Ok(true);
        }
        let state = &self.nearly_full;
        let is_wanted = state.is_short() && self.backpressure.used() > 0;
        if !is_wanted || !state.has_refused.swap(false, Relaxed) {
            return Ok(false);
        }
        self.seal_all();
        self.flush_sealed()
    }

    /// Refuses a commit that the space would not be enough for; makes room for one that removes.
    #[cold]
    pub(crate) fn admit_nearly_full(&self, bytes: u64, intent: Intent) -> Result<()> {
        let mut is_asked = false;
        loop {
            let Err(refusal) = self.check_space(bytes, intent, false) else { return Ok(()) };
            let is_going_on = match intent {
                Intent::Remove => self.make_space_for(bytes)?,
                // A long one may only have to wait for what is buffered.
                Intent::Write if self.is_limited_by_buffers() => self.flush_buffers()?,
                Intent::Write => {
                    self.nearly_full.checks.is_due(&*self.env)
                        && self.lock_and_hold_space().map(|()| false)?
                }
            };
            if is_going_on {
                continue;
            }
            self.nearly_full.has_refused.store(true, Relaxed);
            if self.check_space(bytes, intent, true).is_ok() {
                return Ok(());
            }
            if intent == Intent::Write {
                return Err(refusal);
            }
            if !self.reclaim_round(LeastGain::None)? {
                // What is known of the device may be old.
                if is_asked {
                    return Err(refusal);
                }
                is_asked = true;
                self.ask_for_space()?;
            }
        }
    }

    fn is_limited_by_buffers(&self) -> bool {
        let is_refusing = self.nearly_full.is_short() || self.space.is_short();
        self.nearly_full.is_on() && !is_refusing && self.backpressure.used() > 0
    }

    /// `is_last`: nothing can be reclaimed.
    fn check_space(&self, bytes: u64, intent: Intent, is_last: bool) -> Result<()> {
        let state = &self.nearly_full;
        self.space.check(&*self.env, intent)?;
        if !state.is_on() {
            return Ok(());
        }
        let buffered = self.backpressure.used() + bytes;
        let is_enough = match intent {
            Intent::Write => !state.is_short() && buffered <= state.buffered_max.load(Relaxed),
            Intent::Remove if is_last => buffered <= state.removed_max.load(Relaxed),
            Intent::Remove => buffered <= state.buffered_max.load(Relaxed),
        };
        if is_enough { Ok(()) } else { Err(intent.refusal()) }
    }

    /// Takes a step towards space for a removal; `false` if there is none to be taken, or none is needed.
    fn make_space_for(&self, bytes: u64) -> Result<bool> {
        if !self.nearly_full.is_exhausted.load(Relaxed) && self.reclaim_round(LeastGain::Any)? {
            return Ok(true);
        }
        // Each time that buffers are put on top that takes pages: better many removals at once.
        if self.check_space(bytes, Intent::Remove, true).is_ok() {
            return Ok(false);
        }
        self.flush_buffers()
    }

    /// Puts what is buffered into the trees, wherever it fits; `false` if that is nothing, or not possible.
    fn flush_buffers(&self) -> Result<bool> {
        if self.backpressure.used() > 0 {
            self.seal_all();
            match self.flush_sealed() {
                Ok(true) => return Ok(true),
                outcome if is_full(&outcome) => {}
                outcome => drop(outcome?),
            }
        }
        Ok(false)
    }
}
