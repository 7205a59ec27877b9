//! Space a store needs on its device, and how it keeps it: small write buffers, a small log, free space
//! *held* in the data file, and the rest left to log and manifest.
//!
//! Checked after each flush and before buffers are sealed: one `statvfs` if space is plentiful. The device
//! becomes nearly full once space might not suffice for the present write buffers, or did not suffice for a
//! flush by the tree's rules. Then buffers and log shrink. The store holds enough space to put the content of
//! all write buffers on top of the trees, and for one reclaim step.
//!
//! **Invariants**
//! - `engine/store/src/space/nearly_full.rs` computes the sizes; this file queries the device, takes space
//!   and releases it.
//! - If space is not plentiful, the data file does not grow into the space that log and manifest may need.

use testudo_base::{
    PAGE_BYTES, Result, planted,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, Release},
    },
};
use testudo_contract::Tree;
use testudo_store::{
    Store,
    directory::HOT_SET_FILE,
    memory::{
        log_bounds::{bound_buffers, bound_log, segment_bytes},
        rebalance::rebalance_memory,
        shares::MemoryShares,
    },
    space::{
        nearly_full::{Bounds, Metadata, most_within, write_buffers_max},
        space_guard::kept_back_of,
    },
};

use crate::log_release::stored_bytes;

/// Other programs do not fill a device of this capacity faster than the background notices.
const LARGE_DEVICE_BYTES: u64 = 4 << 30;

/// Space needs of a store on a device that is not plentiful.
struct Needs {
    trees: Vec<Arc<dyn Tree>>,
    bounds: Bounds,
    /// Bytes of one reclaim step.
    step_bytes: u64,
    /// Bytes to hold.
    held_bytes: u64,
    /// Bytes below which the device is nearly full.
    space_bytes: u64,
}

impl Needs {
    /// `device`: bytes free on the device.
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

    /// Bytes to reserve on a device with little space until it is nearly full: enough for all needs in that
    /// state even if other programs fill the device at once.
    fn kept_back_bytes(&self, shares: &MemoryShares) -> u64 {
        let on_top = self.on_top_bytes(shares.write_buffers / 16 * 18).max(self.held_bytes);
        on_top + self.step_bytes + self.bounds.margin + shares.reserve_bytes_least()
    }

    /// Space to put `bytes` of write buffers on top of a tree.
    fn on_top_bytes(&self, bytes: u64) -> u64 {
        self.trees.iter().map(|tree| tree.on_top_bytes(bytes)).max().unwrap_or(0)
    }
}

/// Size of the log segments after an open: small on a device that may be nearly full, until [`hold_space`].
/// Writes nothing, and does not count free space of the data file, which may be holes.
pub fn first_segment_bytes(store: &Store) -> u64 {
    let segment_bytes = segment_bytes(store);
    needs_if_short(store).map_or(segment_bytes, |needs| segment_bytes.min(needs.bounds.segment_bytes))
}

/// Whether the device is nearly full, or may be if the store has not written since it was opened.
pub fn may_be_nearly_full(store: &Store) -> bool {
    store.nearly_full.is_on() || !store.beginning.has_begun() && needs_if_short(store).is_some()
}

/// Needs on a device that may be nearly full. Does not count free space of the data file.
fn needs_if_short(store: &Store) -> Option<Needs> {
    let device = store.env.free_bytes(&store.directory).ok()?;
    let has_plenty = device >= store.memory.shares().plenty_bytes();
    let needs = (!has_plenty).then(|| Needs::of(store, device))?;
    (device < needs.space_bytes).then_some(needs)
}

/// Ensures that a log can begin. If it can, an open neither takes nor releases space, so that an open without
/// writes changes no file; the first write checks the rest.
pub fn make_space_for_log(store: &Store) -> Result<()> {
    let has_space = |device: u64| {
        device >= store.memory.shares().plenty_bytes()
            || device >= Needs::of(store, device).bounds.beginning_bytes()
    };
    if !store.env.free_bytes(&store.directory).is_ok_and(has_space) {
        lock_and_hold_space(store)?;
    }
    bound_buffers(store);
    Ok(())
}

/// Space for buffers on top of trees, or for reclaiming. REQUIRES: [`hold_space`] was called since space was
/// last taken or released.
pub fn available_bytes(store: &Store) -> u64 {
    store.data.usable_bytes() + store.nearly_full.growth_bytes.load(Relaxed)
}

/// As [`hold_space`], but takes the flush lock itself.
pub fn lock_and_hold_space(store: &Store) -> Result<()> {
    let _flush = store.flush_lock.lock();
    if store.has_failed() { Ok(()) } else { hold_space(store) }
}

/// Records that a flush by the tree's rules failed for lack of space and has released it: from now on the
/// device is nearly full unless more space is free than now. REQUIRES: `flush_lock` is held.
pub fn note_failed_flush(store: &Store) {
    debug_assert!(store.flush_lock.is_locked(), "one round or job at a time");
    if !planted!("failed-flush-forgotten") {
        let device = store.env.free_bytes(&store.directory).unwrap_or(0);
        let bytes = device + store.data.usable_bytes() + surplus_bytes(store);
        store.nearly_full.failed_bytes.store(bytes + 1, Relaxed);
    }
}

/// As [`lock_and_hold_space`], and refills the reserve if possible.
pub fn ask_for_space(store: &Store) -> Result<()> {
    lock_and_hold_space(store)?;
    store.space.refill().map(|_| ())
}

/// Fits write buffers and the reserve to the device.
pub fn fit_to_device(store: &Store) -> Result<()> {
    // A device that cannot report its free space may have little.
    let free_bytes = store.env.free_bytes(&store.directory).unwrap_or(0);
    let stored_bytes = stored_bytes(store);
    let capacity = free_bytes.saturating_add(stored_bytes);
    if store.memory.set_write_buffers_max(write_buffers_max(capacity)) {
        rebalance_memory(store);
    }
    let shares = store.memory.shares();
    let is_plenty = free_bytes >= shares.plenty_bytes();
    store.wal()?.set_buffer_count(shares.wal_buffer_count(is_plenty));
    if store.nearly_full.is_on() {
        return Ok(());
    }
    let part = kept_back_of(stored_bytes, &shares);
    let is_large = is_plenty && capacity >= LARGE_DEVICE_BYTES;
    let wanted =
        if is_large { part } else { part.max(Needs::of(store, free_bytes).kept_back_bytes(&shares)) };
    store.space.fit(wanted)
}

/// Reads the free space of the device, and holds the needed part of it. REQUIRES: `flush_lock` is held.
pub fn hold_space(store: &Store) -> Result<()> {
    let state = &store.nearly_full;
    if !store.space.is_kept() {
        return Ok(());
    }
    // A device that cannot report its free space is used without bounds.
    let Ok(mut device) = store.env.free_bytes(&store.directory) else { return Ok(()) };
    let in_file =
        |store: &Store| if state.holes_are_known.load(Relaxed) { store.data.usable_bytes() } else { 0 };
    let failed = state.failed_bytes.load(Relaxed);
    if device >= store.memory.shares().plenty_bytes().max(failed) && !state.is_on() {
        store.data.set_bounds(0, u64::MAX);
        bound_log(store);
        return Ok(());
    }
    // An open without writes leaves the manifest unchanged too.
    if state.is_on() && store.beginning.has_begun() {
        store.manifest.shorten().inspect_err(|error| store.poison(error))?;
        device = store.env.free_bytes(&store.directory).unwrap_or(0);
    }
    let needs = Needs::of(store, device);
    let Needs { bounds, step_bytes: step, held_bytes: held, space_bytes: enter, .. } = needs;
    let enter = enter.max(failed);
    let on_top = |bytes: u64| needs.on_top_bytes(bytes);
    if device + in_file(store) + surplus_bytes(store) >= if state.is_on() { enter / 8 * 9 } else { enter } {
        if state.is_on.swap(false, Relaxed) {
            state.is_short.store(false, Release);
            state.held_bytes.store(0, Relaxed);
            bound_buffers(store);
        } else {
            bound_log(store);
        }
        let metadata_bytes = bounds.margin + 2 * store.memory.shares().wal_segment_bytes();
        let device = leave_device(store, device, metadata_bytes)?;
        let is_forgotten = planted!("device-space-not-left");
        let growth = if is_forgotten { u64::MAX } else { device.saturating_sub(metadata_bytes) };
        store.data.set_bounds(0, growth);
        return Ok(());
    }
    if !state.holes_are_known.swap(true, Relaxed) {
        store.data.find_holes()?;
        return hold_space(store);
    }
    *state.bounds.lock() = bounds;
    if !state.is_on.load(Relaxed) {
        store.space.hand_over(store.memory.shares().reserve_bytes_least())?;
        device = store.env.free_bytes(&store.directory).unwrap_or(0);
    }
    if !state.is_on.swap(true, Relaxed) || store.backpressure.write_buffers() != bounds.write_buffers {
        remove_hot_set(store);
        bound_buffers(store);
        drop(store.background.take_kept());
    }
    store.data.set_bounds(0, u64::MAX);
    device = leave_device(store, device, bounds.margin)?;
    let is_whole = !store.space.is_short();
    let usable = store.data.usable_bytes();
    if usable < held && device > bounds.margin {
        store.data.take_space(held.min(usable + device - bounds.margin))?;
        device = store.env.free_bytes(&store.directory).unwrap_or(0);
    }
    let (usable, growth) = (store.data.usable_bytes(), device.saturating_sub(bounds.margin));
    let left = (usable + growth).saturating_sub(step);
    state.usable_bytes.store(usable, Relaxed);
    state.held_bytes.store(held, Relaxed);
    state.growth_bytes.store(growth, Relaxed);
    state.step_bytes.store(step, Relaxed);
    let beyond_reclaiming = (usable + growth).saturating_sub(state.reclaiming_bytes());
    state.buffered_max.store(most_within(beyond_reclaiming, on_top), Relaxed);
    state.removed_max.store(most_within(left.max(usable / 2), on_top), Relaxed);
    state.is_short.store(usable < held || !is_whole, Release);
    store.data.set_bounds(held, growth);
    Ok(())
}

/// Reserve bytes beyond the minimum: they count as free, so that a larger reserve changes no decision.
fn surplus_bytes(store: &Store) -> u64 {
    store.space.surplus_bytes(store.memory.shares().reserve_bytes_least())
}

/// Log and manifest take precedence: releases free space of the data file until `metadata_bytes` are free on
/// the device and the reserve is full. Returns the bytes free after that.
fn leave_device(store: &Store, device: u64, metadata_bytes: u64) -> Result<u64> {
    let wanted = metadata_bytes + store.space.missing_bytes();
    if device < wanted && !planted!("device-space-not-left") {
        let usable = store.data.usable_bytes();
        let rest = usable.saturating_sub((wanted - device).next_multiple_of(64 * PAGE_BYTES));
        store.data.give_back_beyond(rest)?;
    }
    store.space.refill()?;
    Ok(store.env.free_bytes(&store.directory).unwrap_or(0))
}

/// Lets `act` use the held space except `rest_bytes`. REQUIRES: `flush_lock` is held.
pub fn with_held_space<R>(store: &Store, rest_bytes: u64, act: impl FnOnce() -> R) -> R {
    store.background.jobs.wait_until_none_prepares();
    if !planted!("held-space-not-taken") {
        store.data.lower_kept_bytes(rest_bytes);
    }
    act()
}

/// Removes the file, to free its space on a device that is nearly full.
pub fn remove_hot_set(store: &Store) {
    if store.env.remove_file(&store.directory.join(HOT_SET_FILE)).is_ok() {
        store.warm.file_bytes.store(0, Relaxed);
    }
}
