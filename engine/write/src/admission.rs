//! Conditions of a commit, checked before it begins: the limits of its operations, no update in progress on
//! the same thread, space on the device, write memory, its keyspace's share. It waits for the last three.
//!
//! While a function of the user updates a key, the key's stripe is locked. A write of the same thread to that
//! stripe would deadlock. A write to another stripe would break the lock order of stripes, and could deadlock
//! with another thread. So every write to the store is refused within the function, whatever its key.
//!
//! **Invariants**
//! - No lock is held while a commit waits here.
//! - The list of updates mirrors the thread's stack: an [`UpdateScope`] ends when its value is dropped, also
//!   by a panic.

use std::{cell::RefCell, marker::PhantomData, time::Duration};

use testudo_base::{
    Error, ErrorKind, MAX_KEY_BYTES, Result,
    num::u64_of,
    planted,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_flush::{
    round::flush_sealed::flush_for_memory,
    seal::seal_buffers::{seal_if_full, seal_one},
    space::reclaim::{admit_nearly_full, flush_or_reclaim, is_full},
};
use testudo_store::{Store, commits::delays::StallCause, keyspace::KeyspaceCore, space::space_guard::Intent};

/// Maximum wait for a flush before the state is checked again.
const MEMORY_RECHECK: Duration = Duration::from_millis(50);

/// Checks the limits of one operation.
pub fn check_limits(store: &Store, key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() > MAX_KEY_BYTES {
        let message = format!("a key of {} bytes is longer than {MAX_KEY_BYTES}", key.len());
        return Err(Error::invalid(message));
    }
    let limit = store.memory.max_value_bytes();
    if u64_of(value.len()) > limit {
        let message = format!(
            "a value of {} bytes is longer than {limit}, a quarter of the memory budget of {} bytes",
            value.len(),
            store.memory.total()
        );
        return Err(Error::invalid(message));
    }
    Ok(())
}

/// Whether commits must be admitted by size, because the device is full or nearly full.
#[inline]
pub fn is_space_short(store: &Store) -> bool {
    store.space.is_short() || store.nearly_full.is_on()
}

/// Admits a commit of `bytes`, after a delay if the running flush is behind.
pub fn admit(store: &Store, bytes: usize, intent: Intent) -> Result<()> {
    store.check_writable()?;
    check_outside_updates(store)?;
    if is_space_short(store) {
        admit_nearly_full(store, u64_of(bytes), intent)?;
    }
    store.backpressure.admit(&*store.env, u64_of(bytes));
    while store.backpressure.may_be_full() {
        match step_towards_memory(store, u64_of(bytes)) {
            Ok(true) => break,
            Ok(false) => store.check_writable()?,
            // Removals free the space that flushes wait for. The log has some left, or the commit would have
            // been refused above.
            Err(error) if error.kind() == ErrorKind::OutOfSpace && intent == Intent::Remove => {
                if store.backpressure.has_memory_for_removals(store.backpressure.write_buffers()) {
                    break;
                }
                // Regardless of the last flush: there may be space again, or reclaimable space.
                seal_if_full(store);
                match flush_or_reclaim(store) {
                    Ok(true) => {}
                    outcome if outcome.is_ok() || is_full(&outcome) => {
                        // Write buffers are small on such a device, because they must fit on top of the
                        // trees; `admit_nearly_full` has the limit.
                        let most = store.memory.shares().write_buffers;
                        if store.backpressure.has_memory_for_removals(most) {
                            break;
                        }
                        return Err(error);
                    }
                    outcome => drop(outcome?),
                }
            }
            Err(error) => return Err(error),
        }
    }
    store.wal()?.begin()
}

/// Takes a step towards free memory in the write buffers; returns whether a commit of `bytes` may begin at
/// once. Fails with the reason why nothing flushes.
fn step_towards_memory(store: &Store, bytes: u64) -> Result<bool> {
    if store.background.is_stepped {
        flush_for_memory(store)?;
    } else if store.backpressure.is_blocked() {
        store.health.check_not_stalled()?;
        store.backpressure.wait_for_memory(&*store.env, MEMORY_RECHECK);
    } else {
        if store.backpressure.request_seal() {
            store.background.wake();
        }
        if !store.backpressure.is_over_bound() {
            store.backpressure.admit_before_flush(&*store.env, bytes);
            return Ok(true);
        }
        // Nothing flushes although write memory is exhausted: the background is about to begin, or cannot.
        store.health.check_not_stalled()?;
        let pause = Duration::from_millis(1);
        store.env.sleep(pause);
        store.backpressure.delays.record(pause, StallCause::Memory);
    }
    Ok(false)
}

/// Waits while the arena ids of the keyspace's active buffer are nearly exhausted: until the sealed buffer is
/// in the tree, and this one is sealed.
#[inline]
pub fn await_names(store: &Store, keyspace: &KeyspaceCore) -> Result<()> {
    if keyspace.must_seal.load(Relaxed) { await_sealing(store, keyspace) } else { Ok(()) }
}

#[cold]
fn await_sealing(store: &Store, keyspace: &KeyspaceCore) -> Result<()> {
    loop {
        seal_one(store, keyspace);
        if !keyspace.view.load().active.table.must_seal() || keyspace.is_dropped() {
            keyspace.must_seal.store(false, Relaxed);
            return Ok(());
        }
        store.check_writable()?;
        if store.background.is_stepped {
            flush_for_memory(store)?;
        } else {
            store.health.check_not_stalled()?;
            store.background.wake();
            let delay = store.backpressure.wait_for_own_memory(&*store.env, MEMORY_RECHECK);
            keyspace.record_delay(delay);
        }
    }
}

/// Delays the writer of a keyspace whose flush waits for jobs, or that exceeds its own share while a buffer
/// of it is being flushed: until a flush ends, or for a moment. Otherwise its buffer would grow into the
/// memory of other keyspaces, which would then be flushed.
pub fn await_own_share(store: &Store, keyspace: &KeyspaceCore, bytes: usize) {
    if store.backpressure.behind.is_any() && store.backpressure.behind.contains(keyspace.id) {
        let view = keyspace.view.load();
        let own = view.buffers().map(|buffer| buffer.table.memory_bytes()).sum();
        drop(view);
        let delay = store.backpressure.admit_behind(&*store.env, keyspace.id, u64_of(bytes), own);
        keyspace.record_delay(delay);
    }
    let Some(share) = keyspace.write_share.get().filter(|_| !store.background.is_stepped) else { return };
    let distance = store.memory.shares().flush_distance_of(share);
    let is_beyond = {
        let view = keyspace.view.load();
        !view.sealed.is_empty() && view.active.table.memory_bytes() >= distance
    };
    if is_beyond && store.health.check_not_stalled().is_ok() {
        keyspace.record_delay(store.backpressure.wait_for_own_memory(&*store.env, MEMORY_RECHECK));
    }
}

/// An update in progress.
struct Noted {
    /// Address of the store, which outlives the scope.
    store: usize,
    keyspace: Arc<str>,
    key: Vec<u8>,
}

testudo_base::sync::thread_local! {
    static SCOPES: RefCell<Vec<Noted>> = const { RefCell::new(Vec::new()) };
}

/// Scope in which a function of the user runs under the stripe of a key. Bound to its thread: not `Send`.
pub struct UpdateScope<'s> {
    _store: PhantomData<(&'s Store, *const ())>,
}

impl<'s> UpdateScope<'s> {
    /// Begins a scope. REQUIRES: the stripe of `key` is locked by this thread.
    pub fn enter(store: &'s Store, keyspace: &Arc<str>, key: &[u8]) -> Self {
        let noted = Noted { store: address(store), keyspace: Arc::clone(keyspace), key: key.to_vec() };
        SCOPES.with(|scopes| scopes.borrow_mut().push(noted));
        Self { _store: PhantomData }
    }
}

impl Drop for UpdateScope<'_> {
    fn drop(&mut self) {
        SCOPES.with(|scopes| scopes.borrow_mut().pop());
    }
}

fn address(store: &Store) -> usize {
    std::ptr::from_ref(store).addr()
}

/// Fails if called inside a function that updates a key of this store.
#[inline]
pub fn check_outside_updates(store: &Store) -> Result<()> {
    SCOPES.with(|scopes| {
        let scopes = scopes.borrow();
        if scopes.is_empty() || planted!("write-inside-update") {
            Ok(())
        } else {
            check_none_of(store, &scopes)
        }
    })
}

#[cold]
fn check_none_of(store: &Store, scopes: &[Noted]) -> Result<()> {
    let Some(noted) = scopes.iter().find(|noted| noted.store == address(store)) else { return Ok(()) };
    Err(Error::invalid(format!(
        "a write from inside the function that updates a key of keyspace {:?}, which may only read the \
         store",
        noted.keyspace
    ))
    .about_key(&noted.key))
}
