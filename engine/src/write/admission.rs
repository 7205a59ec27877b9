//! What a commit waits for before it begins: space on the device, memory of the store, its keyspace's share.
//!
//! **Invariants**
//! - No lock is held while a commit waits here.

use std::time::Duration;

use testudo_base::{Error, ErrorKind, MAX_KEY_BYTES, Result, num::u64_of, sync::atomic::Ordering::Relaxed};

use crate::{
    flush::nearly_full::is_full,
    store::{Store, view::KeyspaceCore},
    write::space_guard::Intent,
};

/// Longest wait for a flush before the state is looked at again.
const MEMORY_RECHECK: Duration = Duration::from_millis(50);

impl Store {
    /// Checks the limits of one operation.
    pub(crate) fn check_limits(&self, key: &[u8], value: &[u8]) -> Result<()> {
        if key.len() > MAX_KEY_BYTES {
            let message = format!("a key of {} bytes is longer than {MAX_KEY_BYTES}", key.len());
            return Err(Error::invalid(message));
        }
        let limit = self.memory.max_value_bytes();
        if u64_of(value.len()) > limit {
            let message = format!(
                "a value of {} bytes is longer than {limit}, a quarter of the memory budget of {} bytes",
                value.len(),
                self.memory.total()
            );
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    /// Whether what a commit writes has to be admitted by its size, because the device is full or nearly so.
    #[inline]
    pub(crate) fn is_space_short(&self) -> bool {
        self.space.is_short() || self.nearly_full.is_on()
    }

    /// Lets a commit of `bytes` begin, after a delay if the running flush is behind.
    pub(crate) fn admit(&self, bytes: usize, intent: Intent) -> Result<()> {
        self.check_writable()?;
        self.check_outside_updates()?;
        if self.is_space_short() {
            self.admit_nearly_full(u64_of(bytes), intent)?;
        }
        self.backpressure.admit(&*self.env, u64_of(bytes));
        while self.backpressure.may_be_full() {
            match self.step_towards_memory() {
                Ok(true) => break,
                Ok(false) => self.check_writable()?,
                // What is removed makes the space for which flushes wait; the log has some left, or the
                // commit would have been refused above.
                Err(error) if error.kind() == ErrorKind::OutOfSpace && intent == Intent::Remove => {
                    if self.backpressure.has_memory_for_removals(self.backpressure.write_buffers()) {
                        break;
                    }
                    // Whatever the last flush found out: there may be space again, or some to be won.
                    self.seal_if_full();
                    match self.flush_or_reclaim() {
                        Ok(true) => {}
                        outcome if outcome.is_ok() || is_full(&outcome) => {
                            // Write buffers are small on such a device, for what fits is to fit on top of
                            // the trees; `admit_nearly_full` knows how much that is.
                            let most = self.memory.shares().write_buffers;
                            if self.backpressure.has_memory_for_removals(most) {
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
        self.wal()?.begin()
    }

    /// Takes a step towards free memory in the write buffers; says whether a commit may begin at once. Fails
    /// with the reason why nothing flushes.
    fn step_towards_memory(&self) -> Result<bool> {
        if self.background.is_stepped {
            self.flush_for_memory()?;
        } else if self.backpressure.is_blocked() {
            self.health.check_not_stalled()?;
            self.backpressure.wait_for_memory(&*self.env, MEMORY_RECHECK);
        } else {
            if self.backpressure.request_seal() {
                self.background.wake();
            }
            if !self.backpressure.is_over_bound() {
                return Ok(true);
            }
            // Nothing flushes although no write memory is left: the background is about to begin, or cannot.
            self.health.check_not_stalled()?;
            self.env.sleep(Duration::from_millis(1));
        }
        Ok(false)
    }

    /// Waits until the active buffer of a keyspace has names for memory again: until the buffer that is
    /// sealed is in the tree, and this one is sealed.
    #[inline]
    pub(crate) fn await_names(&self, keyspace: &KeyspaceCore) -> Result<()> {
        if keyspace.must_seal.load(Relaxed) { self.await_sealing(keyspace) } else { Ok(()) }
    }

    #[cold]
    fn await_sealing(&self, keyspace: &KeyspaceCore) -> Result<()> {
        loop {
            self.seal_one(keyspace);
            if !keyspace.view.load().active.table.must_seal() || keyspace.is_dropped() {
                keyspace.must_seal.store(false, Relaxed);
                return Ok(());
            }
            self.check_writable()?;
            if self.background.is_stepped {
                self.flush_for_memory()?;
            } else {
                self.health.check_not_stalled()?;
                self.background.wake();
                self.backpressure.wait_for_own_memory(&*self.env, MEMORY_RECHECK);
            }
        }
    }

    /// Delays the writer of a keyspace that is beyond its own share although a buffer of it is on its way
    /// into the tree: until a flush ends, or for a moment. Otherwise its buffer would grow into the memory of
    /// others, and those would be flushed.
    pub(crate) fn await_own_share(&self, keyspace: &KeyspaceCore) {
        let Some(share) = keyspace.write_share.get().filter(|_| !self.background.is_stepped) else { return };
        let distance = self.memory.shares().flush_distance_of(share);
        let is_beyond = {
            let view = keyspace.view.load();
            !view.sealed.is_empty() && view.active.table.memory_bytes() >= distance
        };
        if is_beyond && self.health.check_not_stalled().is_ok() {
            self.backpressure.wait_for_own_memory(&*self.env, MEMORY_RECHECK);
        }
    }
}

#[cfg(test)]
mod tests;
