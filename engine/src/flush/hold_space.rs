//! How much space a store needs of its device, and how it keeps it: small write buffers and a small log, free
//! space of the data file that is *held*, and what is left to log and manifest.
//!
//! Asked after each flush and before buffers are sealed: one `statvfs` where there is plenty. Once there
//! might not be enough for the write buffers as they are, or was not for a flush by the tree's rules, the
//! device is nearly full: buffers and log become small, and enough space is held for what write buffers can
//! hold, put on top of the trees, and for a step of reclaiming.
//!
//! **Invariants**
//! - Numbers are chosen in `store/held_space.rs`; here the device is asked, and space is taken and given
//!   back.
//! - Where there is not plenty of space, the data file does not grow into what log and manifest may need.

use testudo_base::{
    PAGE_BYTES, Result, planted,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, Release},
    },
};
use testudo_contract::Tree;

use crate::{
    store::{
        Store,
        held_space::{Bounds, Metadata, most_within, write_buffers_max},
        shares::MemoryShares,
    },
    write::space_guard::kept_back_of,
};

/// A device of which a store has or can have so much is not filled by others faster than the background sees.
const LARGE_DEVICE_BYTES: u64 = 4 << 30;

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

    /// What is kept back on a device with little space until it is nearly full: enough for all that is then
    /// needed, if others take the rest of the device at once.
    fn kept_back_bytes(&self, shares: &MemoryShares) -> u64 {
        let on_top = self.on_top_bytes(shares.write_buffers / 16 * 18).max(self.held_bytes);
        on_top + self.step_bytes + self.bounds.margin + shares.reserve_bytes_least()
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
        self.needs_if_short().map_or(segment_bytes, |needs| segment_bytes.min(needs.bounds.segment_bytes))
    }

    /// Whether the device is nearly full or, for a store that has not written since it was opened, may be.
    pub(crate) fn may_be_nearly_full(&self) -> bool {
        self.nearly_full.is_on() || !self.beginning.has_begun() && self.needs_if_short().is_some()
    }

    /// What is needed of a device that may be nearly full. Counts no free space of the data file.
    fn needs_if_short(&self) -> Option<Needs> {
        let device = self.env.free_bytes(&self.directory).ok()?;
        let has_plenty = device >= self.memory.shares().plenty_bytes();
        let needs = (!has_plenty).then(|| Needs::of(self, device))?;
        (device < needs.space_bytes).then_some(needs)
    }

    /// Sees to it that a log can begin. Where it can, an opening takes no space and gives none back, so that
    /// one for nothing changes no file; the first write asks for the rest.
    pub(crate) fn make_space_for_log(&self) -> Result<()> {
        let has_space = |device: u64| {
            device >= self.memory.shares().plenty_bytes()
                || device >= Needs::of(self, device).bounds.beginning_bytes()
        };
        if !self.env.free_bytes(&self.directory).is_ok_and(has_space) {
            self.lock_and_hold_space()?;
        }
        self.bound_buffers();
        Ok(())
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

    /// A flush by the tree's rules has failed for want of space, and has given back what it took: from now on
    /// the device is nearly full unless it has more than it has now. REQUIRES: `flush_lock` is held.
    pub(crate) fn note_failed_flush(&self) {
        debug_assert!(self.flush_lock.is_locked(), "one round or job at a time");
        if !planted!("failed-flush-forgotten") {
            let device = self.env.free_bytes(&self.directory).unwrap_or(0);
            let bytes = device + self.data.usable_bytes() + self.surplus_bytes();
            self.nearly_full.failed_bytes.store(bytes + 1, Relaxed);
        }
    }

    /// As [`Store::lock_and_hold_space`], and makes the reserve whole if it can be.
    pub(crate) fn ask_for_space(&self) -> Result<()> {
        self.lock_and_hold_space()?;
        self.space.refill().map(|_| ())
    }

    /// Fits write buffers and what is kept back to the device.
    pub(crate) fn fit_to_device(&self) -> Result<()> {
        // A device that cannot say how much space it has may have little.
        let free_bytes = self.env.free_bytes(&self.directory).unwrap_or(0);
        let stored_bytes = self.stored_bytes();
        let capacity = free_bytes.saturating_add(stored_bytes);
        if self.memory.set_write_buffers_max(write_buffers_max(capacity)) {
            self.rebalance_memory();
        }
        let shares = self.memory.shares();
        let is_plenty = free_bytes >= shares.plenty_bytes();
        self.wal()?.set_buffer_count(shares.wal_buffer_count(is_plenty));
        if self.nearly_full.is_on() {
            return Ok(());
        }
        let part = kept_back_of(stored_bytes, &shares);
        let is_large = is_plenty && capacity >= LARGE_DEVICE_BYTES;
        let wanted =
            if is_large { part } else { part.max(Needs::of(self, free_bytes).kept_back_bytes(&shares)) };
        self.space.fit(wanted)
    }

    /// The same for a store that is about to be closed, if anything was written: others may have filled the
    /// device when it is opened again.
    pub(crate) fn fit_at_close(&self) -> Result<()> {
        if self.has_failed() || !self.beginning.has_begun() { Ok(()) } else { self.fit_to_device() }
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
        let failed = state.failed_bytes.load(Relaxed);
        if device >= self.memory.shares().plenty_bytes().max(failed) && !state.is_on() {
            self.data.set_bounds(0, u64::MAX);
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
        let enter = enter.max(failed);
        let on_top = |bytes: u64| needs.on_top_bytes(bytes);
        if device + in_file(self) + self.surplus_bytes() >= if state.is_on() { enter / 8 * 9 } else { enter }
        {
            if state.is_on.swap(false, Relaxed) {
                state.is_short.store(false, Release);
                state.held_bytes.store(0, Relaxed);
                self.bound_buffers();
            } else {
                self.bound_log();
            }
            let metadata_bytes = bounds.margin + 2 * self.memory.shares().wal_segment_bytes();
            let device = self.leave_device(device, metadata_bytes)?;
            let is_forgotten = planted!("device-space-not-left");
            let growth = if is_forgotten { u64::MAX } else { device.saturating_sub(metadata_bytes) };
            self.data.set_bounds(0, growth);
            return Ok(());
        }
        if !state.holes_are_known.swap(true, Relaxed) {
            self.data.find_holes()?;
            return self.hold_space();
        }
        *state.bounds.lock() = bounds;
        if !state.is_on.load(Relaxed) {
            self.space.hand_over(self.memory.shares().reserve_bytes_least())?;
            device = self.env.free_bytes(&self.directory).unwrap_or(0);
        }
        if !state.is_on.swap(true, Relaxed) || self.backpressure.write_buffers() != bounds.write_buffers {
            self.remove_hot_set();
            self.bound_buffers();
            drop(self.background.take_kept());
        }
        self.data.set_bounds(0, u64::MAX);
        device = self.leave_device(device, bounds.margin)?;
        let is_whole = !self.space.is_short();
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

    /// What is kept back beyond the least: it counts as free, so that keeping more back changes nothing.
    fn surplus_bytes(&self) -> u64 {
        self.space.surplus_bytes(self.memory.shares().reserve_bytes_least())
    }

    /// Log and manifest come first: gives free space of the data file back until so much is free on the
    /// device, and the reserve is whole. Returns what is free then.
    fn leave_device(&self, device: u64, metadata_bytes: u64) -> Result<u64> {
        let wanted = metadata_bytes + self.space.missing_bytes();
        if device < wanted && !planted!("device-space-not-left") {
            let usable = self.data.usable_bytes();
            let rest = usable.saturating_sub((wanted - device).next_multiple_of(64 * PAGE_BYTES));
            self.data.give_back_beyond(rest)?;
        }
        self.space.refill()?;
        Ok(self.env.free_bytes(&self.directory).unwrap_or(0))
    }

    /// Lets `act` take what is held but for `rest_bytes`. REQUIRES: `flush_lock` is held.
    pub(crate) fn with_held_space<R>(&self, rest_bytes: u64, act: impl FnOnce() -> R) -> R {
        self.background.jobs.wait_until_none_prepares();
        if !planted!("held-space-not-taken") {
            self.data.lower_kept_bytes(rest_bytes);
        }
        act()
    }
}
