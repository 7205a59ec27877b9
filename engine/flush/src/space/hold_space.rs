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
        shares::{MemoryShares, removals_bound},
    },
    space::{
        nearly_full::{Bounds, Metadata, most_within, write_buffers_max},
        space_guard::kept_back_of,
    },
};

use crate::log_release::stored_bytes;

/// Other programs do not fill a device of this capacity faster than the background notices.
const LARGE_DEVICE_BYTES: u64 = 4 << 30;

/// Log segments that the present log needs on top of what it has: the next one, and the tail.
const LOG_SEGMENTS: u64 = 2;
/// Space for buffers on top is held this many times: what a flush puts there replaces nothing until its edit
/// is durable, and readers may hold the pages of the one before.
const HELD_ON_TOP: u64 = 2;
/// A device stops being nearly full with one part in this many more space than where it became so. Otherwise
/// it would change with each flush.
const RETURN_PARTS: u64 = 8;
/// Space is released in multiples of this, so that the data file is not cut page by page.
const RELEASED_BYTES: u64 = 64 * PAGE_BYTES;
/// When nothing can be reclaimed, removals may use one part in this many of the usable space, even if a step
/// needs more.
const REMOVAL_PARTS: u64 = 2;

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
        debug_assert!(bounds.buffered_bytes() >= bounds.write_buffers, "removals have extra memory");
        needs.held_bytes = HELD_ON_TOP * needs.on_top_bytes(bounds.buffered_bytes()) + step_bytes;
        needs.space_bytes = needs.on_top_bytes(removals_bound(shares.write_buffers))
            + LOG_SEGMENTS * shares.wal_segment_bytes()
            + bounds.margin
            + needs.held_bytes;
        needs
    }

    /// Bytes to reserve on a device with little space until it is nearly full: enough for all needs in that
    /// state even if other programs fill the device at once.
    fn kept_back_bytes(&self, shares: &MemoryShares) -> u64 {
        let on_top = self.on_top_bytes(removals_bound(shares.write_buffers)).max(self.held_bytes);
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
    debug_assert!(store.is_flush_locked(), "one round or job at a time");
    if !planted!("failed-flush-forgotten") {
        let bytes = free_bytes(store) + store.data.usable_bytes() + surplus_bytes(store);
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
    let free_bytes = free_bytes(store);
    let stored_bytes = stored_bytes(store);
    let capacity = free_bytes.saturating_add(stored_bytes);
    store.nearly_full.set_free(free_bytes.saturating_add(store.data.usable_bytes()));
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
    debug_assert!(store.is_flush_locked(), "one round or job at a time");
    let Some(mut space) = Space::measure(store)? else { return Ok(()) };
    if !space.is_enough(store) && !store.nearly_full.holes_are_known.swap(true, Relaxed) {
        // Free pages count as held space only once it is known which of them the device backs.
        store.data.find_holes()?;
        let Some(again) = Space::measure(store)? else { return Ok(()) };
        space = again;
    }
    if space.is_enough(store) { leave_nearly_full(store, &space) } else { stay_nearly_full(store, space) }
}

/// Space on a device that is not plentiful, and what the store needs of it.
struct Space {
    /// Bytes free on the device.
    device: u64,
    needs: Needs,
}

impl Space {
    /// `None` if the store needs no bounds: it is open for reading only, the device has plenty of space, or
    /// it cannot report its free space.
    fn measure(store: &Store) -> Result<Option<Self>> {
        if !store.space.is_kept() {
            return Ok(None);
        }
        let Ok(mut device) = store.env.free_bytes(&store.directory) else { return Ok(None) };
        let state = &store.nearly_full;
        let plenty = store.memory.shares().plenty_bytes().max(state.failed_bytes.load(Relaxed));
        if device >= plenty && !state.is_on() {
            store.data.set_bounds(0, u64::MAX);
            bound_log(store);
            return Ok(None);
        }
        // An open without writes leaves the manifest unchanged too.
        if state.is_on() && store.beginning.has_begun() {
            store.manifest.shorten().inspect_err(|error| store.poison(error))?;
            device = free_bytes(store);
        }
        Ok(Some(Self { device, needs: Needs::of(store, device) }))
    }

    /// Whether the device is not nearly full, or not any more.
    fn is_enough(&self, store: &Store) -> bool {
        let state = &store.nearly_full;
        let in_file = if state.holes_are_known.load(Relaxed) { store.data.usable_bytes() } else { 0 };
        let enter = self.needs.space_bytes.max(state.failed_bytes.load(Relaxed));
        let wanted = if state.is_on() { enter / RETURN_PARTS * (RETURN_PARTS + 1) } else { enter };
        self.device + in_file + surplus_bytes(store) >= wanted
    }
}

/// Uses the device without held space; log and manifest keep what they may need.
fn leave_nearly_full(store: &Store, space: &Space) -> Result<()> {
    let state = &store.nearly_full;
    if state.is_on.swap(false, Relaxed) {
        state.is_short.store(false, Release);
        state.held_bytes.store(0, Relaxed);
        bound_buffers(store);
    } else {
        bound_log(store);
    }
    let metadata_bytes = space.needs.bounds.margin + LOG_SEGMENTS * store.memory.shares().wal_segment_bytes();
    let device = leave_device(store, space.device, metadata_bytes)?;
    let is_forgotten = planted!("device-space-not-left");
    let growth = if is_forgotten { u64::MAX } else { device.saturating_sub(metadata_bytes) };
    store.data.set_bounds(0, growth);
    Ok(())
}

/// Shrinks buffers and log, takes space, and records how much of it writes may use.
fn stay_nearly_full(store: &Store, Space { mut device, needs }: Space) -> Result<()> {
    let bounds = needs.bounds;
    if enter_nearly_full(store, bounds)? {
        device = free_bytes(store);
    }
    store.data.set_bounds(0, u64::MAX);
    device = leave_device(store, device, bounds.margin)?;
    let is_whole = !store.space.is_short();
    let usable = store.data.usable_bytes();
    if usable < needs.held_bytes && device > bounds.margin {
        store.data.take_space(needs.held_bytes.min(usable + device - bounds.margin))?;
        device = free_bytes(store);
    }
    let (usable, growth) = (store.data.usable_bytes(), device.saturating_sub(bounds.margin));
    record_space(store, &needs, usable, growth);
    store.nearly_full.is_short.store(usable < needs.held_bytes || !is_whole, Release);
    store.data.set_bounds(needs.held_bytes, growth);
    Ok(())
}

/// Shrinks buffers and log to `bounds`, and hands the surplus of the reserve over; returns whether the device
/// has only now become nearly full.
fn enter_nearly_full(store: &Store, bounds: Bounds) -> Result<bool> {
    let state = &store.nearly_full;
    debug_assert!(bounds.margin > 0, "log and manifest keep some space");
    *state.bounds.lock() = bounds;
    let has_entered = !state.is_on();
    if has_entered {
        store.space.hand_over(store.memory.shares().reserve_bytes_least())?;
        state.is_on.store(true, Relaxed);
    }
    if has_entered || store.backpressure.write_buffers() != bounds.write_buffers {
        remove_hot_set(store);
        bound_buffers(store);
        store.background.drop_prepared();
    }
    Ok(has_entered)
}

/// Records the space, and the bytes of write buffers that it can take on top of the trees.
fn record_space(store: &Store, needs: &Needs, usable: u64, growth: u64) {
    let state = &store.nearly_full;
    let on_top = |bytes: u64| needs.on_top_bytes(bytes);
    state.usable_bytes.store(usable, Relaxed);
    state.held_bytes.store(needs.held_bytes, Relaxed);
    state.growth_bytes.store(growth, Relaxed);
    state.step_bytes.store(needs.step_bytes, Relaxed);
    debug_assert!(needs.held_bytes >= needs.step_bytes, "held space includes a step");
    let all = usable + growth;
    let beyond_reclaiming = all.saturating_sub(state.reclaiming_bytes());
    let beyond_step = all.saturating_sub(needs.step_bytes);
    let (buffered, removed) = (beyond_reclaiming, beyond_step.max(usable / REMOVAL_PARTS));
    state.buffered_max.store(most_within(buffered, on_top), Relaxed);
    state.removed_max.store(most_within(removed, on_top), Relaxed);
}

/// Whether the device has more space than the data file may take, because the bound is of an earlier time.
pub fn is_bound_outdated(store: &Store) -> bool {
    free_bytes(store) > store.data.growth_bytes()
}

/// Bytes free on the device; 0 if it cannot report them.
fn free_bytes(store: &Store) -> u64 {
    store.env.free_bytes(&store.directory).unwrap_or(0)
}

/// Reserve bytes beyond the minimum: they count as free, so that a larger reserve changes no decision.
fn surplus_bytes(store: &Store) -> u64 {
    store.space.surplus_bytes(store.memory.shares().reserve_bytes_least())
}

/// Log and manifest take precedence: releases free space of the data file until `metadata_bytes` are free on
/// the device and the reserve is full. Returns the bytes free after that.
fn leave_device(store: &Store, device: u64, metadata_bytes: u64) -> Result<u64> {
    debug_assert!(store.is_flush_locked(), "one round or job at a time");
    let wanted = metadata_bytes + store.space.missing_bytes();
    if device < wanted && !planted!("device-space-not-left") {
        let usable = store.data.usable_bytes();
        let rest = usable.saturating_sub((wanted - device).next_multiple_of(RELEASED_BYTES));
        store.data.give_back_beyond(rest)?;
    }
    store.space.refill()?;
    Ok(free_bytes(store))
}

/// Lets `act` use the held space except `rest_bytes`. REQUIRES: `flush_lock` is held.
pub fn with_held_space<R>(store: &Store, rest_bytes: u64, act: impl FnOnce() -> R) -> R {
    debug_assert!(store.is_flush_locked(), "held space has one user at a time");
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
