//! The sequence of a commit, which is the same for one operation, a batch and a read-modify-write:
//!
//! `admission -> stripes -> large values -> seqno and log space -> log bytes -> memtable -> visible`
//! `-> durable if asked for`
//!
//! Everything is copied outside the commit lock. A commit is visible to plain reads operation by operation,
//! and to snapshots all at once.
//!
//! **Invariants**
//! - A commit's buffers are chosen in the section that assigns its seqnos, so that a sealed buffer holds
//!   exactly the commits up to the seqno where it was sealed.
//! - Writes to one key are serialised by its stripe: a later seqno never reaches the memtable before an
//!   earlier one.

use std::mem;

use testudo_base::{
    Kind, Result, Seqno,
    num::{u32_of, u64_of},
    planted,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_options::Durability;

use crate::{
    store::{
        Store,
        view::{KeyspaceCore, WriteBuffer},
    },
    write::{
        batch_format::{Operation, encode_operation, operation_bytes},
        chosen_buffers::{ChosenBuffers, Inserted, choose_buffers},
        logged_values::LoggedOfCommit,
        space_guard::Intent,
    },
};

/// Which entries a commit may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limits {
    /// Those that the memory budget allows users.
    OfUsers,
    /// Any: what comes from another store must not be lost because it was made under a larger budget.
    None,
}

/// What is known of a commit before it begins.
#[derive(Debug)]
pub(crate) struct CommitTerms<'a> {
    /// Those that it may write to.
    pub(crate) keyspaces: &'a [Arc<KeyspaceCore>],
    /// About how long it is in the log.
    pub(crate) bytes: usize,
    pub(crate) intent: Intent,
    pub(crate) durability: Durability,
}

impl Store {
    /// Runs a commit: waits until it is admitted, lets `write` do it under the stripes that `lock` takes, and
    /// makes it durable. `write` says the commit's last seqno, or `None` if there is nothing to be written.
    pub(crate) fn commit<Locked>(
        &self,
        terms: &CommitTerms<'_>,
        lock: impl FnOnce() -> Locked,
        write: impl FnOnce() -> Result<Option<Seqno>>,
    ) -> Result<()> {
        self.admit(terms.bytes, terms.intent)?;
        if self.is_synced(terms.durability) {
            self.wal()?.check_not_stalled()?;
        }
        for keyspace in terms.keyspaces {
            self.await_own_share(keyspace);
            self.await_names(keyspace)?;
        }
        let locked = lock();
        let written = write();
        if written.is_err() && self.is_forked() {
            // A function of the user has forked. Threads that the child does not have may wait for the lock.
            mem::forget(locked);
            return written.map(drop);
        }
        drop(locked);
        let written = written?;
        written.map_or(Ok(()), |seqno| self.after_commit(seqno, terms.durability))
    }

    /// Commits one operation.
    pub(crate) fn commit_one(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        operation: &Operation<'_>,
        durability: Durability,
    ) -> Result<()> {
        let Operation { kind, key, value, .. } = *operation;
        keyspace.write_hint.prefetch();
        self.check_limits(key, value)?;
        let bytes = operation_bytes(operation);
        let intent = if kind == Kind::Tombstone { Intent::Remove } else { Intent::Write };
        let (keyspaces, operations) = (std::slice::from_ref(keyspace), std::slice::from_ref(operation));
        let terms = CommitTerms { keyspaces, bytes, intent, durability };
        let lock = || self.commits.stripes.lock_one(keyspace.id, key);
        self.commit(&terms, lock, || {
            let is_long = kind == Kind::Operands && self.may_merge_long(keyspace, key, value.len());
            if is_long {
                self.write_merged(keyspaces, operations, bytes, durability).map(Some)
            } else {
                self.write_and_record(keyspaces, operations, bytes, durability).map(Some)
            }
        })
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
        let terms = CommitTerms { keyspaces, bytes, intent, durability };
        let keys = || operations.iter().map(|operation| (operation.keyspace, operation.key));
        let lock = || self.commits.stripes.lock_many(keys());
        self.commit(&terms, lock, || match limits {
            Limits::OfUsers => self.write_merged(keyspaces, operations, bytes, durability).map(Some),
            Limits::None => self.write(keyspaces, operations, bytes, durability).map(Some),
        })
    }

    /// As [`Store::write_and_record`], but that operands which would make too long an entry are merged first.
    fn write_merged(
        &self,
        keyspaces: &[Arc<KeyspaceCore>],
        operations: &[Operation<'_>],
        bytes: usize,
        durability: Durability,
    ) -> Result<Seqno> {
        if keyspaces.iter().all(|keyspace| keyspace.merging().is_none()) {
            return self.write(keyspaces, operations, bytes, durability);
        }
        let merged = self.merge_long(keyspaces, operations)?;
        let mut whole = operations.to_vec();
        for (index, value) in &merged {
            whole[*index] = Operation { kind: Kind::Value, value, ..whole[*index] };
        }
        let bytes = whole.iter().map(operation_bytes).sum();
        self.write_and_record(keyspaces, &whole, bytes, durability)
    }

    /// As [`Store::write`]; whole values that may get operands are noted.
    pub(crate) fn write_and_record(
        &self,
        keyspaces: &[Arc<KeyspaceCore>],
        operations: &[Operation<'_>],
        bytes: usize,
        durability: Durability,
    ) -> Result<Seqno> {
        let last = self.write(keyspaces, operations, bytes, durability)?;
        for operation in operations {
            let keyspace = keyspaces.iter().find(|keyspace| keyspace.id == operation.keyspace);
            keyspace.into_iter().for_each(|keyspace| self.record_long(keyspace, operation));
        }
        Ok(last)
    }

    /// Writes operations of `bytes` to the log and the memtables; returns the last seqno. `keyspaces` are
    /// those that the operations name. REQUIRES: the stripes of their keys are locked.
    fn write(
        &self,
        keyspaces: &[Arc<KeyspaceCore>],
        operations: &[Operation<'_>],
        bytes: usize,
        durability: Durability,
    ) -> Result<Seqno> {
        debug_assert_eq!(operations.iter().map(operation_bytes).sum::<usize>(), bytes, "of their encoding");
        let wal = self.wal()?;
        // Among many keyspaces a view is in no cache; others must not wait for that.
        keyspaces.iter().for_each(|keyspace| _ = keyspace.view.load().active.first_commit());
        let mut logged = self.log_values(keyspaces, operations, durability)?;
        let early = if planted!("buffer-chosen-early") { Some(choose_buffers(keyspaces)?) } else { None };
        let mut commit = self.commits.lock();
        // Whoever closes the store waits for the commits that got here before, and for no others.
        if !planted!("late-commit-at-close") {
            self.check_writable()?;
        }
        let mut buffers = early.map_or_else(|| choose_buffers(keyspaces), Ok)?;
        while logged.as_ref().is_some_and(|logged| !logged.are_of(&buffers)) {
            // A buffer was sealed since; its value log takes no more.
            drop(commit);
            logged = self.log_values(keyspaces, operations, durability)?;
            commit = self.commits.lock();
            self.check_writable()?;
            buffers = choose_buffers(keyspaces)?;
        }
        let bytes = logged.as_ref().map_or(bytes, |logged| bytes - logged.saved_bytes());
        let value_bytes = logged.as_ref().map_or(0, LoggedOfCommit::kept_bytes);
        let mut reservation = wal.reserve_with_values(bytes, u32_of(operations.len()), value_bytes)?;
        let (first, last) = (reservation.first_seqno(), reservation.last_seqno());
        let underway = self.commits.in_flight.enter(first);
        buffers.each(|at, buffer| {
            if buffer.record_commit(first) {
                self.buffered.insert(&keyspaces[at]);
            }
        });
        let keep_from = self.snapshots.newest().filter(|_| !planted!("version-pruned-under-snapshot"));
        drop(commit);
        let underway = Some(underway).filter(|_| !planted!("batch-published-half") || operations.len() == 1);
        if let Some(logged) = &logged {
            reservation.fill_values(|out| logged.encode_values(operations, out));
        }
        reservation.fill(|mut out| match &logged {
            Some(logged) => logged.encode(operations, out),
            None => {
                for operation in operations {
                    out = encode_operation(out, operation);
                }
            }
        });
        let inserted = buffers.insert(first, operations, keep_from, !self.is_synced(durability));
        // Before snapshots can see it.
        end_gaps(keyspaces, operations);
        logged.into_iter().for_each(|logged| logged.note(first));
        drop(underway);
        if let ChosenBuffers::One(view) = &buffers {
            keyspaces[0].write_hint.note(view);
        }
        self.account(operations.len(), inserted);
        if inserted.memory_bytes > 0 {
            buffers.each(|at, buffer| {
                self.check_own_share(&keyspaces[at], buffer);
                self.check_names(&keyspaces[at], buffer);
                self.seal_with_full_log(&keyspaces[at], buffer);
            });
        }
        Ok(last)
    }

    fn account(&self, writes: usize, inserted: Inserted) {
        let Inserted { user_bytes, memory_bytes } = inserted;
        self.counters.user_writes.add(u64_of(writes));
        self.counters.user_bytes.add(u64_of(user_bytes));
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

    /// Seals `buffer` if it is running out of names for its memory. If another one of its keyspace is sealed
    /// already, later commits wait for that ([`Store::await_names`]).
    fn check_names(&self, keyspace: &KeyspaceCore, buffer: &WriteBuffer) {
        if buffer.table.must_seal() && buffer.sealed_at() == Seqno(0) {
            self.seal_one(keyspace);
            keyspace.must_seal.store(buffer.sealed_at() == Seqno(0), Relaxed);
        }
    }

    /// Makes a commit as durable as it or the store asks for; it survives the end of the process at least.
    fn after_commit(&self, seqno: Seqno, durability: Durability) -> Result<()> {
        if self.is_synced(durability) {
            if planted!("acknowledged-before-sync") {
                return self.wal()?.write_all();
            }
            let synced = self.wal()?.sync_to(seqno);
            synced.map_err(|error| error.lasting("written, but not durable yet"))?;
            // Each synced commit has a page of the log: it may outgrow the store between two looks.
            if self.log.has_grown() {
                self.background.wake();
            }
            return Ok(());
        }
        self.wal()?.keep(seqno)
    }
}

/// Scans have to look where these operations have put something.
#[inline]
fn end_gaps(keyspaces: &[Arc<KeyspaceCore>], operations: &[Operation<'_>]) {
    if keyspaces.iter().all(|keyspace| keyspace.known_gaps().is_none()) {
        return;
    }
    for operation in operations.iter().filter(|operation| operation.kind != Kind::Tombstone) {
        let keyspace = keyspaces.iter().find(|keyspace| keyspace.id == operation.keyspace);
        keyspace
            .and_then(|keyspace| keyspace.known_gaps())
            .into_iter()
            .for_each(|gaps| gaps.end_at(operation.key));
    }
}
