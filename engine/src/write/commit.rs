//! The way of a write: pace, stripe, seqno and log space, log bytes, memtable, and, if asked for, the disk.
//!
//! Everything is copied outside the commit lock. A commit is visible to plain reads operation by operation,
//! and to snapshots all at once.
//!
//! **Invariants**
//! - A commit's buffers are chosen in the section that assigns its seqnos, so that a sealed buffer holds
//!   exactly the commits up to the seqno where it was sealed.
//! - Writes to one key are serialised by its stripe: a later seqno never reaches the memtable before an
//!   earlier one.

use std::{ops::Deref, time::Duration};

use testudo_base::{
    Error, ErrorKind, KeyspaceId, Kind, MAX_KEY_BYTES, Result, Seqno,
    num::{u32_of, u64_of},
    planted,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use crate::{
    handles::options::Durability,
    store::{
        Store,
        view::{KeyspaceCore, View, WriteBuffer},
    },
    write::{
        batch_format::{Operation, encode_operation, operation_bytes},
        space_guard::Intent,
    },
};

/// Longest wait for a flush before the state is looked at again.
const MEMORY_RECHECK: Duration = Duration::from_millis(50);

/// Which entries a commit may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limits {
    /// Those that the memory budget allows users.
    OfUsers,
    /// Any: what comes from another store must not be lost because it was made under a larger budget.
    None,
}

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

    /// Commits one operation.
    pub(crate) fn commit_one(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        operation: &Operation<'_>,
        durability: Durability,
    ) -> Result<()> {
        self.check_limits(operation.key, operation.value)?;
        let bytes = operation_bytes(operation);
        let intent = if operation.kind == Kind::Tombstone { Intent::Remove } else { Intent::Write };
        self.admit(bytes, intent)?;
        self.await_own_share(keyspace);
        let seqno = {
            let _stripe = self.stripes.lock_one(keyspace.id, operation.key);
            let is_long = operation.kind == Kind::Operands
                && self.may_merge_long(keyspace, operation.key, operation.value.len());
            if is_long {
                let operations = std::slice::from_ref(operation);
                self.write_merged(std::slice::from_ref(keyspace), operations, bytes)?
            } else {
                self.write_one(keyspace, operation, bytes)?
            }
        };
        self.after_commit(seqno, durability)
    }

    /// Writes one operation to the log and the memtable. REQUIRES: the stripe of its key is locked.
    pub(crate) fn write_one(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        operation: &Operation<'_>,
        bytes: usize,
    ) -> Result<Seqno> {
        let wal = self.wal()?;
        // Among many keyspaces this one's view is in no cache; the others must not wait for that.
        keyspace.view.load().active.first_commit();
        let early = if planted!("buffer-chosen-early") { Some(choose_view(keyspace)?) } else { None };
        let commit = self.commit.lock();
        // Whoever closes the store waits for the commits that got here before, and for no others.
        if !planted!("late-commit-at-close") {
            self.check_writable()?;
        }
        let view = early.map_or_else(|| choose_view(keyspace), Ok)?;
        let buffer = &view.active;
        let reservation = wal.reserve(bytes, 1)?;
        let seqno = reservation.first_seqno();
        let underway = self.in_flight.enter(seqno);
        buffer.record_commit(seqno);
        let keep_from = self.snapshots.newest().filter(|_| !planted!("version-pruned-under-snapshot"));
        drop(commit);
        reservation.fill(|out| {
            encode_operation(out, operation);
        });
        let Operation { kind, key, value, .. } = *operation;
        let outcome = buffer.table.insert(seqno, kind, key, value, keep_from);
        buffer.record_value(outcome.stacked_bytes.max(value.len()));
        drop(underway);
        self.account(1, key.len() + value.len(), outcome.memory_bytes_added);
        self.record_long(keyspace, operation);
        if outcome.memory_bytes_added > 0 {
            self.check_own_share(keyspace, buffer);
        }
        Ok(seqno)
    }

    /// Commits several operations at once; `keyspaces` are those that they name.
    pub(crate) fn commit_many(
        &self,
        keyspaces: &[Arc<KeyspaceCore>],
        operations: &[Operation<'_>],
        durability: Durability,
        limits: Limits,
    ) -> Result<()> {
        let (mut bytes, mut intent) = (0, Intent::Remove);
        for operation in operations {
            if limits == Limits::OfUsers {
                self.check_limits(operation.key, operation.value)?;
            }
            bytes += operation_bytes(operation);
            if operation.kind != Kind::Tombstone {
                intent = Intent::Write;
            }
        }
        if operations.is_empty() {
            return self.check_writable();
        }
        self.admit(bytes, intent)?;
        for keyspace in keyspaces {
            self.await_own_share(keyspace);
        }
        let seqno = {
            let keys = operations.iter().map(|operation| (operation.keyspace, operation.key));
            let _stripes = self.stripes.lock_many(keys);
            match limits {
                Limits::OfUsers => self.write_merged(keyspaces, operations, bytes)?,
                Limits::None => self.write_many(keyspaces, operations, bytes)?,
            }
        };
        self.after_commit(seqno, durability)
    }

    /// As [`Store::write_many`], but that operands which would make too long an entry are merged first.
    fn write_merged(
        &self,
        keyspaces: &[Arc<KeyspaceCore>],
        operations: &[Operation<'_>],
        bytes: usize,
    ) -> Result<Seqno> {
        if keyspaces.iter().all(|keyspace| !keyspace.folding.has_operator()) {
            return self.write_many(keyspaces, operations, bytes);
        }
        let merged = self.merge_long(keyspaces, operations)?;
        let mut whole = operations.to_vec();
        for (index, value) in &merged {
            whole[*index] = Operation { kind: Kind::Value, value, ..whole[*index] };
        }
        let bytes = whole.iter().map(operation_bytes).sum();
        let last = self.write_many(keyspaces, &whole, bytes)?;
        for operation in &whole {
            let keyspace = keyspaces.iter().find(|keyspace| keyspace.id == operation.keyspace);
            keyspace.into_iter().for_each(|keyspace| self.record_long(keyspace, operation));
        }
        Ok(last)
    }

    fn write_many(
        &self,
        keyspaces: &[Arc<KeyspaceCore>],
        operations: &[Operation<'_>],
        bytes: usize,
    ) -> Result<Seqno> {
        let wal = self.wal()?;
        let commit = self.commit.lock();
        // Whoever closes the store waits for the commits that got here before, and for no others.
        self.check_writable()?;
        let mut buffers: Vec<(KeyspaceId, Arc<WriteBuffer>)> = Vec::with_capacity(keyspaces.len());
        for keyspace in keyspaces {
            buffers.push((keyspace.id, Arc::clone(&choose_view(keyspace)?.active)));
        }
        let reservation = wal.reserve(bytes, u32_of(operations.len()))?;
        let (first, last) = (reservation.first_seqno(), reservation.last_seqno());
        let underway = self.in_flight.enter(first);
        for (_, buffer) in &buffers {
            buffer.record_commit(first);
        }
        let keep_from = self.snapshots.newest();
        drop(commit);
        let mut underway = Some(underway);
        if planted!("batch-published-half") {
            underway = None;
        }
        reservation.fill(|mut out| {
            for operation in operations {
                out = encode_operation(out, operation);
            }
        });
        let (mut user_bytes, mut memory_bytes) = (0, 0);
        for (seqno, operation) in (first.0..).zip(operations) {
            let Operation { keyspace, kind, key, value } = *operation;
            let (_, buffer) =
                buffers.iter().find(|(id, _)| *id == keyspace).expect("every keyspace of a batch is listed");
            let outcome = buffer.table.insert(Seqno(seqno), kind, key, value, keep_from);
            buffer.record_value(outcome.stacked_bytes.max(value.len()));
            memory_bytes += outcome.memory_bytes_added;
            user_bytes += key.len() + value.len();
        }
        drop(underway);
        self.account(u64_of(operations.len()), user_bytes, memory_bytes);
        for (keyspace, (_, buffer)) in keyspaces.iter().zip(&buffers) {
            self.check_own_share(keyspace, buffer);
        }
        Ok(last)
    }

    fn account(&self, writes: u64, user_bytes: usize, memory_bytes: usize) {
        self.counters.user_writes.fetch_add(writes, Relaxed);
        self.counters.user_bytes.fetch_add(u64_of(user_bytes), Relaxed);
        if memory_bytes > 0 {
            self.backpressure.active_bytes.fetch_add(u64_of(memory_bytes), Relaxed);
        }
    }

    /// Seals `buffer` if its keyspace has a share of its own and the buffer has outgrown it.
    fn check_own_share(&self, keyspace: &KeyspaceCore, buffer: &WriteBuffer) {
        let Some(share) = keyspace.write_share.get() else { return };
        let distance = self.memory.shares().flush_distance_of(share);
        if buffer.table.memory_bytes() >= distance && buffer.sealed_at() == Seqno(0) {
            self.seal_one(keyspace);
        }
    }

    /// Lets the writer of a keyspace rest that is beyond its own share although a buffer of it is on its way
    /// into the tree: for a flush, or a moment. Otherwise its buffer would grow into the memory of others,
    /// and those would be flushed.
    pub(crate) fn await_own_share(&self, keyspace: &KeyspaceCore) {
        let Some(share) = keyspace.write_share.get().filter(|_| !self.is_stepped) else { return };
        let distance = self.memory.shares().flush_distance_of(share);
        let is_beyond = {
            let view = keyspace.view.load();
            !view.sealed.is_empty() && view.active.table.memory_bytes() >= distance
        };
        if is_beyond && self.check_not_stalled().is_ok() {
            self.backpressure.wait_for_own_memory(&*self.env, MEMORY_RECHECK);
        }
    }

    /// Lets a commit of `bytes` begin, after a rest if the background is behind.
    pub(crate) fn admit(&self, bytes: usize, intent: Intent) -> Result<()> {
        self.check_writable()?;
        self.check_outside_updates()?;
        if self.space.is_short() || self.nearly_full.is_on() {
            self.admit_nearly_full(u64_of(bytes), intent)?;
        }
        self.backpressure.admit(&*self.env, u64_of(bytes));
        while self.backpressure.may_be_full() {
            match self.step_towards_memory() {
                Ok(true) => break,
                Ok(false) => self.check_writable()?,
                // What is removed makes the room for which flushes wait; the log has some left, or `room` had
                // refused.
                Err(error) if error.kind() == ErrorKind::OutOfSpace && intent == Intent::Remove => {
                    if self.backpressure.has_memory_for_removals() {
                        break;
                    }
                    if !self.reclaim_round(true)? {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes a step towards room in the write buffers; says whether a commit may begin at once. Fails with
    /// the reason why nothing flushes.
    fn step_towards_memory(&self) -> Result<bool> {
        if self.is_stepped {
            self.flush_for_memory()?;
        } else if self.backpressure.is_blocked() {
            self.check_not_stalled()?;
            self.backpressure.wait_for_memory(&*self.env, MEMORY_RECHECK);
        } else {
            if self.backpressure.is_first_to_see() {
                self.wakeup.wake();
            }
            if !self.backpressure.is_over_bound() {
                return Ok(true);
            }
            // Nothing flushes although there is no room: the background is about to begin, or cannot.
            self.check_not_stalled()?;
            self.env.sleep(Duration::from_millis(1));
        }
        Ok(false)
    }

    pub(crate) fn after_commit(&self, seqno: Seqno, durability: Durability) -> Result<()> {
        if durability == Durability::Sync || self.default_durability == Durability::Sync {
            if planted!("acknowledged-before-sync") {
                return self.wal()?.write_all();
            }
            self.wal()?.sync_to(seqno)?;
        }
        Ok(())
    }
}

/// The view whose active buffer a commit writes into. REQUIRES: the commit lock is held.
///
/// Whoever keeps it keeps the buffer, without a counter that all writers would change.
fn choose_view(keyspace: &KeyspaceCore) -> Result<impl Deref<Target = Arc<View>> + use<>> {
    if keyspace.is_dropped() {
        return Err(Error::invalid(format!("the keyspace {:?} was dropped", keyspace.name)));
    }
    keyspace.record_write();
    Ok(keyspace.view.load())
}
