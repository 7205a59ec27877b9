//! What a store does while its device is nearly full, so that removals always make room in the end (decision
//! 0032).
//!
//! As long as there is plenty of space, nothing. Once there might not be enough for the write buffers as they
//! are, those and the log become small, and free space of the data file is *held*: enough for what write
//! buffers can hold, put on top of the trees, and for a step of reclaiming. Where the tree's own way of a
//! flush would need more than there is, the buffers go on top. While what is held is not whole, only removals
//! are taken, and space is reclaimed in steps, each of which fits into what is left.
//!
//! **Invariants**
//! - Held space is taken only under `flush_lock`, by what puts buffers on top or reclaims.
//! - Removals are refused only if nothing more can be reclaimed.

use testudo_base::{
    ErrorKind, PAGE_BYTES, Result, planted,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, Release},
    },
};
use testudo_contract::{LeastGain, Progress, Reclaim, ReclaimLimits, Tree};

use crate::{
    store::{
        Store,
        held_space::{Bounds, Metadata, most_within},
        view::KeyspaceCore,
    },
    write::space_guard::Intent,
};

fn is_full<T>(outcome: &Result<T>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace)
}

/// What a store needs of a device with little space.
struct Needs {
    trees: Vec<Arc<dyn Tree>>,
    bounds: Bounds,
    /// For a step of reclaiming.
    step_bytes: u64,
    /// What is to be held.
    held_bytes: u64,
    /// With less the device is nearly full.
    space_bytes: u64,
}

impl Needs {
    /// `device`: its free bytes.
    fn of(store: &Store, device: u64) -> Self {
        let shares = store.memory.shares();
        let metadata = Metadata {
            log_bytes: store.log.wal.as_ref().map_or(0, |wal| wal.live_bytes()),
            manifest_growth_bytes: store.manifest.growth_bytes(),
        };
        let bounds = Bounds::of(device + store.data.space_bytes(), &metadata, &shares);
        let trees: Vec<_> =
            store.keyspaces().iter().map(|keyspace| Arc::clone(&keyspace.view.load().tree)).collect();
        let step_bytes = trees.iter().map(|tree| tree.reclaim_bytes()).max().unwrap_or(0);
        let mut needs = Self { trees, bounds, step_bytes, held_bytes: 0, space_bytes: 0 };
        needs.held_bytes = 2 * needs.on_top_bytes(bounds.buffered_bytes()) + step_bytes;
        needs.space_bytes = needs.on_top_bytes(shares.write_buffers / 16 * 18)
            + 2 * shares.wal_segment_bytes()
            + bounds.margin
            + needs.held_bytes;
        needs
    }

    /// For so many bytes of write buffers, put on top of a tree.
    fn on_top_bytes(&self, bytes: u64) -> u64 {
        self.trees.iter().map(|tree| tree.on_top_bytes(bytes)).max().unwrap_or(0)
    }
}

impl Store {
    /// Bytes of log beyond which what pins it is flushed.
    pub(crate) fn log_bound(&self) -> u64 {
        if self.nearly_full.is_on() {
            self.nearly_full.bounds.lock().log_bytes
        } else {
            self.memory.shares().log_bound()
        }
    }

    /// Lets write buffers and log have the size that memory and device allow.
    pub(crate) fn bound_buffers(&self) {
        let mut write_buffers = self.memory.shares().write_buffers;
        if self.nearly_full.is_on() {
            write_buffers = write_buffers.min(self.nearly_full.bounds.lock().write_buffers);
        }
        self.backpressure.set_write_buffers(write_buffers);
        self.bound_log();
    }

    fn bound_log(&self) {
        if let Some(wal) = &self.log.wal {
            wal.set_segment_bytes(self.segment_bytes());
        }
    }

    /// Size of log segments that memory and device allow, by what is known of the device.
    fn segment_bytes(&self) -> u64 {
        let segment_bytes = self.memory.shares().wal_segment_bytes();
        if self.nearly_full.is_on() {
            segment_bytes.min(self.nearly_full.bounds.lock().segment_bytes)
        } else {
            segment_bytes
        }
    }

    /// Size of the segments with which an opening begins its log: small ones on a device that may be nearly
    /// full, until [`Store::hold_space`]. Writes nothing, and counts no free space of the data file, which
    /// may be holes.
    pub(crate) fn first_segment_bytes(&self) -> u64 {
        let segment_bytes = self.segment_bytes();
        match self.env.free_bytes(&self.directory) {
            Ok(device) if device < self.memory.shares().plenty_bytes() => {
                let needs = Needs::of(self, device);
                if device < needs.space_bytes {
                    segment_bytes.min(needs.bounds.segment_bytes)
                } else {
                    segment_bytes
                }
            }
            _ => segment_bytes,
        }
    }

    /// Space for what goes on top of the trees or is reclaimed. REQUIRES: [`Store::hold_space`] was called
    /// since space was taken or given back.
    pub(crate) fn available_bytes(&self) -> u64 {
        self.data.usable_bytes() + self.nearly_full.growth_bytes.load(Relaxed)
    }

    /// As [`Store::hold_space`], after whoever is at work.
    pub(crate) fn lock_and_hold_space(&self) -> Result<()> {
        let _flush = self.flush_lock.lock();
        if self.has_failed() { Ok(()) } else { self.hold_space() }
    }

    /// Asks how much space there is, and holds what is needed of it. REQUIRES: `flush_lock` is held.
    pub(crate) fn hold_space(&self) -> Result<()> {
        let state = &self.nearly_full;
        if !self.space.is_kept() {
            return Ok(());
        }
        // A device that cannot say how much space it has is taken as it comes.
        let Ok(mut device) = self.env.free_bytes(&self.directory) else { return Ok(()) };
        let in_file =
            |store: &Self| if state.holes_are_known.load(Relaxed) { store.data.usable_bytes() } else { 0 };
        if device + in_file(self) >= self.memory.shares().plenty_bytes() && !state.is_on() {
            self.bound_log();
            return Ok(());
        }
        // An opening that writes nothing leaves the manifest as it is, too.
        if state.is_on() && self.beginning.has_begun() {
            self.manifest.shorten().inspect_err(|error| self.poison(error))?;
            device = self.env.free_bytes(&self.directory).unwrap_or(0);
        }
        let needs = Needs::of(self, device);
        let Needs { bounds, step_bytes: step, held_bytes: held, space_bytes: enter, .. } = needs;
        let on_top = |bytes: u64| needs.on_top_bytes(bytes);
        if device + in_file(self) >= if state.is_on() { enter / 8 * 9 } else { enter } {
            if state.is_on.swap(false, Relaxed) {
                state.is_short.store(false, Release);
                state.held_bytes.store(0, Relaxed);
                self.data.set_bounds(0, u64::MAX);
                self.bound_buffers();
            } else {
                self.bound_log();
            }
            return Ok(());
        }
        if !state.holes_are_known.swap(true, Relaxed) {
            self.data.find_holes()?;
            return self.hold_space();
        }
        *state.bounds.lock() = bounds;
        if !state.is_on.swap(true, Relaxed) || self.backpressure.write_buffers() != bounds.write_buffers {
            self.remove_hot_set();
            self.bound_buffers();
            drop(self.background.jobs.take_kept());
        }
        self.data.set_bounds(0, u64::MAX);
        // Log and manifest come first.
        let wanted = bounds.margin + self.space.missing_bytes();
        if device < wanted {
            let usable = self.data.usable_bytes();
            let rest = usable.saturating_sub((wanted - device).next_multiple_of(64 * PAGE_BYTES));
            self.data.give_back_beyond(rest)?;
        }
        let is_whole = self.space.refill()?;
        device = self.env.free_bytes(&self.directory).unwrap_or(0);
        let usable = self.data.usable_bytes();
        if usable < held && device > bounds.margin {
            self.data.take_space(held.min(usable + device - bounds.margin))?;
            device = self.env.free_bytes(&self.directory).unwrap_or(0);
        }
        let (usable, growth) = (self.data.usable_bytes(), device.saturating_sub(bounds.margin));
        let left = (usable + growth).saturating_sub(step);
        state.usable_bytes.store(usable, Relaxed);
        state.held_bytes.store(held, Relaxed);
        state.growth_bytes.store(growth, Relaxed);
        state.step_bytes.store(step, Relaxed);
        let beyond_reclaiming = (usable + growth).saturating_sub(state.reclaiming_bytes());
        state.buffered_max.store(most_within(beyond_reclaiming, on_top), Relaxed);
        state.removed_max.store(most_within(left.max(usable / 2), on_top), Relaxed);
        state.is_short.store(usable < held || !is_whole, Release);
        self.data.set_bounds(held, growth);
        Ok(())
    }

    /// Lets `act` take what is held but for `rest_bytes`. REQUIRES: `flush_lock` is held.
    pub(crate) fn with_held_space<R>(&self, rest_bytes: u64, act: impl FnOnce() -> R) -> R {
        self.background.jobs.wait_until_none_prepares();
        if !planted!("held-space-not-taken") {
            self.data.lower_kept_bytes(rest_bytes);
        }
        act()
    }

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
        let mut tried = self.nearly_full.tried.lock();
        let usable = self.available_bytes();
        let mut best: Option<(Arc<KeyspaceCore>, Reclaim)> = None;
        for keyspace in self.keyspaces() {
            let but: Vec<Reclaim> =
                tried.iter().filter(|(id, _)| *id == keyspace.id).map(|(_, tried)| tried.clone()).collect();
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
            tried.push((keyspace.id, reclaim));
        } else {
            outcome.inspect_err(|error| self.poison(error))?;
            tried.clear();
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
            if intent == Intent::Write || !self.reclaim_round(LeastGain::None)? {
                return Err(refusal);
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
