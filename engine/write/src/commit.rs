//! The sequence of a commit, common to single operations, batches and read-modify-writes:
//!
//! `admission -> stripes -> large values -> seqno and log space -> log bytes -> memtable -> visible`
//! `-> durable if requested`
//!
//! Everything is copied outside the commit lock. A commit is visible to plain reads operation by operation,
//! and to snapshots all at once.
//!
//! **Invariants**
//! - A commit's buffers are chosen in the section that assigns its seqnos, so that a sealed buffer holds
//!   exactly the commits up to the seqno where it was sealed.
//! - Writes to one key are serialized by its stripe: a later seqno never reaches the memtable before an
//!   earlier one.

use std::mem;

use testudo_base::{
    Kind, Result, Seqno,
    num::{u32_of, u64_of},
    planted,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_flush::seal::seal_buffers::{seal_one, seal_with_full_log};
use testudo_options::Durability;
use testudo_store::{
    Store,
    commits::batch_format::{Operation, encode_operation, operation_bytes},
    keyspace::{KeyspaceCore, WriteBuffer},
    space::space_guard::Intent,
};

use crate::{
    admission::{admit, await_names, await_own_share, check_limits},
    chosen_buffers::{ChosenBuffers, Inserted, choose_buffers},
    logged_values::{LoggedOfCommit, log_values},
    long_merges::{may_merge_long, merge_long, record_long},
};

/// Limits on the entries of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limits {
    /// Limits that the memory budget sets for users.
    OfUsers,
    /// No limits: entries of another store must not be lost because it had a larger budget.
    None,
}

/// Properties of a commit known before it begins.
#[derive(Debug)]
pub struct CommitTerms<'a> {
    /// The keyspaces that it may write to.
    pub keyspaces: &'a [Arc<KeyspaceCore>],
    /// Approximate length in the log.
    pub bytes: usize,
    pub intent: Intent,
    pub durability: Durability,
}

/// Runs a commit: waits until it is admitted, calls `write` under the stripes that `lock` takes, and makes it
/// durable. `write` returns the commit's last seqno, or `None` if there is nothing to write.
pub fn commit<Locked>(
    store: &Store,
    terms: &CommitTerms<'_>,
    lock: impl FnOnce() -> Locked,
    write: impl FnOnce() -> Result<Option<Seqno>>,
) -> Result<()> {
    admit(store, terms.bytes, terms.intent)?;
    if terms.durability == Durability::Sync {
        store.wal()?.check_not_stalled()?;
    }
    for keyspace in terms.keyspaces {
        await_own_share(store, keyspace);
        await_names(store, keyspace)?;
    }
    let locked = lock();
    let written = write();
    if written.is_err() && store.is_forked() {
        // A function of the user has forked. Threads that the child does not have may wait for the lock.
        mem::forget(locked);
        return written.map(drop);
    }
    drop(locked);
    let written = written?;
    written.map_or(Ok(()), |seqno| after_commit(store, seqno, terms.durability))
}

/// Commits one operation.
pub fn commit_one(
    store: &Store,
    keyspace: &Arc<KeyspaceCore>,
    operation: &Operation<'_>,
    durability: Durability,
) -> Result<()> {
    let Operation { kind, key, value, .. } = *operation;
    keyspace.write_hint.prefetch();
    check_limits(store, key, value)?;
    let bytes = operation_bytes(operation);
    let intent = if kind == Kind::Tombstone { Intent::Remove } else { Intent::Write };
    let (keyspaces, operations) = (std::slice::from_ref(keyspace), std::slice::from_ref(operation));
    let terms = CommitTerms { keyspaces, bytes, intent, durability };
    let lock = || store.commits.stripes.lock_one(keyspace.id, key);
    commit(store, &terms, lock, || {
        let is_long = kind == Kind::Operands && may_merge_long(store, keyspace, key, value.len());
        if is_long {
            write_merged(store, keyspaces, operations, bytes, durability).map(Some)
        } else {
            write_and_record(store, keyspaces, operations, bytes, durability).map(Some)
        }
    })
}

/// Commits several operations at once; `keyspaces` are those of the operations.
pub fn commit_many(
    store: &Store,
    keyspaces: &[Arc<KeyspaceCore>],
    operations: &[Operation<'_>],
    durability: Durability,
    limits: Limits,
) -> Result<()> {
    let (mut bytes, mut intent) = (0, Intent::Remove);
    for operation in operations {
        if limits == Limits::OfUsers {
            check_limits(store, operation.key, operation.value)?;
        }
        bytes += operation_bytes(operation);
        if operation.kind != Kind::Tombstone {
            intent = Intent::Write;
        }
    }
    if operations.is_empty() {
        return store.check_writable();
    }
    let terms = CommitTerms { keyspaces, bytes, intent, durability };
    let keys = || operations.iter().map(|operation| (operation.keyspace, operation.key));
    let lock = || store.commits.stripes.lock_many(keys());
    commit(store, &terms, lock, || match limits {
        Limits::OfUsers => write_merged(store, keyspaces, operations, bytes, durability).map(Some),
        Limits::None => write(store, keyspaces, operations, bytes, durability).map(Some),
    })
}

/// Same as [`write_and_record`], but first merges operands that would make an entry too long.
fn write_merged(
    store: &Store,
    keyspaces: &[Arc<KeyspaceCore>],
    operations: &[Operation<'_>],
    bytes: usize,
    durability: Durability,
) -> Result<Seqno> {
    if keyspaces.iter().all(|keyspace| keyspace.merging().is_none()) {
        return write(store, keyspaces, operations, bytes, durability);
    }
    let merged = merge_long(store, keyspaces, operations)?;
    let mut whole = operations.to_vec();
    for (index, value) in &merged {
        whole[*index] = Operation { kind: Kind::Value, value, ..whole[*index] };
    }
    let bytes = whole.iter().map(operation_bytes).sum();
    write_and_record(store, keyspaces, &whole, bytes, durability)
}

/// Same as [`write`], and records whole values that may get operands.
pub fn write_and_record(
    store: &Store,
    keyspaces: &[Arc<KeyspaceCore>],
    operations: &[Operation<'_>],
    bytes: usize,
    durability: Durability,
) -> Result<Seqno> {
    let last = write(store, keyspaces, operations, bytes, durability)?;
    for operation in operations {
        let keyspace = keyspaces.iter().find(|keyspace| keyspace.id == operation.keyspace);
        keyspace.into_iter().for_each(|keyspace| record_long(keyspace, operation));
    }
    Ok(last)
}

/// Writes operations of `bytes` to the log and the memtables; returns the last seqno. `keyspaces` are those
/// of the operations. REQUIRES: the stripes of their keys are locked.
fn write(
    store: &Store,
    keyspaces: &[Arc<KeyspaceCore>],
    operations: &[Operation<'_>],
    bytes: usize,
    durability: Durability,
) -> Result<Seqno> {
    debug_assert_eq!(operations.iter().map(operation_bytes).sum::<usize>(), bytes, "encoded length");
    let wal = store.wal()?;
    // Touches the views outside the lock: among many keyspaces they are in no cache, and others must not
    // wait.
    keyspaces.iter().for_each(|keyspace| _ = keyspace.view.load().active.first_commit());
    let mut logged = log_values(store, keyspaces, operations, durability)?;
    let early = if planted!("buffer-chosen-early") { Some(choose_buffers(keyspaces)?) } else { None };
    let mut commit = store.commits.lock();
    // Closing the store waits for the commits that got here before, and for no others.
    if !planted!("late-commit-at-close") {
        store.check_writable()?;
    }
    let mut buffers = early.map_or_else(|| choose_buffers(keyspaces), Ok)?;
    while logged.as_ref().is_some_and(|logged| !logged.are_of(&buffers)) {
        // A buffer was sealed since; its value log accepts no more.
        drop(commit);
        logged = log_values(store, keyspaces, operations, durability)?;
        commit = store.commits.lock();
        store.check_writable()?;
        buffers = choose_buffers(keyspaces)?;
    }
    let bytes = logged.as_ref().map_or(bytes, |logged| bytes - logged.saved_bytes());
    let value_bytes = logged.as_ref().map_or(0, LoggedOfCommit::kept_bytes);
    let mut reservation = wal.reserve_with_values(bytes, u32_of(operations.len()), value_bytes)?;
    let (first, last) = (reservation.first_seqno(), reservation.last_seqno());
    let underway = store.commits.in_flight.enter(first);
    buffers.each(|at, buffer| {
        if buffer.record_commit(first) {
            store.buffered.insert(&keyspaces[at]);
        }
    });
    let keep_from = store.snapshots.newest().filter(|_| !planted!("version-pruned-under-snapshot"));
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
    let inserted = buffers.insert(first, operations, keep_from, durability == Durability::Buffered);
    // Must precede visibility to snapshots.
    end_gaps(keyspaces, operations);
    logged.into_iter().for_each(|logged| logged.note(first));
    drop(underway);
    if let ChosenBuffers::One(view) = &buffers {
        keyspaces[0].write_hint.note(view);
    }
    account(store, operations.len(), inserted);
    if inserted.memory_bytes > 0 {
        buffers.each(|at, buffer| {
            check_own_share(store, &keyspaces[at], buffer);
            check_names(store, &keyspaces[at], buffer);
            seal_with_full_log(store, &keyspaces[at], buffer);
        });
    }
    Ok(last)
}

fn account(store: &Store, writes: usize, inserted: Inserted) {
    let Inserted { user_bytes, memory_bytes } = inserted;
    store.counters.user_writes.add(u64_of(writes));
    store.counters.user_bytes.add(u64_of(user_bytes));
    if memory_bytes > 0 {
        store.backpressure.active_bytes.fetch_add(u64_of(memory_bytes), Relaxed);
    }
}

/// Seals `buffer` if its keyspace has a share of its own and the buffer has outgrown it.
fn check_own_share(store: &Store, keyspace: &KeyspaceCore, buffer: &WriteBuffer) {
    let Some(share) = keyspace.write_share.get() else { return };
    let distance = store.memory.shares().flush_distance_of(share);
    if buffer.table.memory_bytes() >= distance && buffer.sealed_at() == Seqno(0) {
        seal_one(store, keyspace);
    }
}

/// Seals `buffer` if its arena ids are nearly exhausted. If another buffer of its keyspace is sealed already,
/// later commits wait for that ([`await_names`]).
fn check_names(store: &Store, keyspace: &KeyspaceCore, buffer: &WriteBuffer) {
    if buffer.table.must_seal() && buffer.sealed_at() == Seqno(0) {
        seal_one(store, keyspace);
        keyspace.must_seal.store(buffer.sealed_at() == Seqno(0), Relaxed);
    }
}

/// Makes a commit durable; at least, it survives the end of the process.
fn after_commit(store: &Store, seqno: Seqno, durability: Durability) -> Result<()> {
    if durability == Durability::Sync {
        if planted!("acknowledged-before-sync") {
            return store.wal()?.write_all();
        }
        let synced = store.wal()?.sync_to(seqno);
        synced.map_err(|error| error.lasting("written, but not durable yet"))?;
        // Each synced commit has a page of the log: the log may outgrow the store between two checks.
        if store.log.has_grown() {
            store.background.wake();
        }
        return Ok(());
    }
    store.wal()?.keep(seqno)
}

/// Cuts the gaps in which these operations have inserted entries, so that scans visit them.
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
