//! The sequence of a commit, common to single operations, batches and read-modify-writes:
//!
//! `admission -> stripes -> large values -> seqno, buffers, log space -> log bytes -> memtables -> visible`
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

use std::{mem, ops::Deref, slice};

use testudo_base::{
    Error, KeyspaceId, Kind, Result, Seqno,
    num::{u32_of, u64_of},
    planted,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_flush::seal::seal_buffers::{seal_one, seal_with_full_log};
use testudo_options::Durability;
use testudo_store::{
    Store,
    commits::{
        batch_format::{Operation, encode_operation, operation_bytes},
        commit_order::Underway,
    },
    keyspace::{KeyspaceCore, View, WriteBuffer},
    space::space_guard::Intent,
};
use testudo_wal::Reservation;

use crate::{
    admission::{admit, await_names, await_own_share, check_limits},
    logged_values::{LoggedOfCommit, log_values},
    long_merges::{may_merge_long, merge_long},
};

/// Limits on the entries of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limits {
    /// Limits that the memory budget sets for users.
    OfUsers,
    /// No limits: entries of another store must not be lost because it had a larger budget.
    None,
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
    let commit = Commit { store, keyspaces: slice::from_ref(keyspace), durability };
    let (operations, bytes) = (slice::from_ref(operation), operation_bytes(operation));
    commit.admit(bytes, if kind == Kind::Tombstone { Intent::Remove } else { Intent::Write })?;
    let stripe = store.commits.lock_stripe(keyspace.id, key);
    let is_long = kind == Kind::Operands && may_merge_long(store, keyspace, key, value.len());
    let written =
        if is_long { commit.write_merged(operations, bytes) } else { commit.write(operations, bytes) };
    let last = commit.unlock(stripe, written)?;
    commit.make_durable(last)
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
    let commit = Commit { store, keyspaces, durability };
    commit.admit(bytes, intent)?;
    let keys = operations.iter().map(|operation| (operation.keyspace, operation.key));
    let stripes = store.commits.lock_stripes(keys);
    let written = match limits {
        Limits::OfUsers => commit.write_merged(operations, bytes),
        Limits::None => commit.write(operations, bytes),
    };
    let last = commit.unlock(stripes, written)?;
    commit.make_durable(last)
}

/// A commit in progress. Its steps are methods, in their order; the caller locks the stripes between
/// [`Commit::admit`] and [`Commit::write`].
pub struct Commit<'a> {
    pub store: &'a Store,
    /// The keyspaces that it may write to.
    pub keyspaces: &'a [Arc<KeyspaceCore>],
    pub durability: Durability,
}

/// The place of a commit in the order of commits, assigned under the commit lock.
struct Place<'a, V> {
    /// Its values in value logs.
    logged: Option<LoggedOfCommit>,
    reservation: Reservation,
    buffers: ChosenBuffers<V>,
    /// The newest snapshot, whose versions are kept.
    keep_from: Option<Seqno>,
    underway: Option<Underway<'a>>,
}

impl Commit<'_> {
    /// Waits until a commit of `bytes` may begin.
    pub fn admit(&self, bytes: usize, intent: Intent) -> Result<()> {
        admit(self.store, bytes, intent)?;
        if self.is_synced() {
            self.store.wal()?.check_not_stalled()?;
        }
        for keyspace in self.keyspaces {
            await_own_share(self.store, keyspace, bytes);
            await_names(self.store, keyspace)?;
        }
        Ok(())
    }

    /// Same as [`Commit::write`], but first merges operands that would make an entry too long.
    fn write_merged(&self, operations: &[Operation<'_>], bytes: usize) -> Result<Seqno> {
        if self.keyspaces.iter().all(|keyspace| keyspace.merging().is_none()) {
            return self.write(operations, bytes);
        }
        let merged = merge_long(self.store, self.keyspaces, operations)?;
        let mut whole = operations.to_vec();
        for (index, value) in &merged {
            whole[*index] = Operation { kind: Kind::Value, value, ..whole[*index] };
        }
        self.write(&whole, whole.iter().map(operation_bytes).sum())
    }

    /// Writes operations of `bytes` to the log and the memtables; returns the last seqno. REQUIRES: the
    /// stripes of their keys are locked.
    pub fn write(&self, operations: &[Operation<'_>], bytes: usize) -> Result<Seqno> {
        debug_assert_eq!(operations.iter().map(operation_bytes).sum::<usize>(), bytes, "encoded length");
        // Touches the views outside the lock: among many keyspaces they are in no cache, and others must not
        // wait.
        self.keyspaces.iter().for_each(|keyspace| _ = keyspace.view.load().active.first_commit());
        let Place { logged, reservation, buffers, keep_from, underway } =
            self.take_place(operations, bytes)?;
        let (first, last) = (reservation.first_seqno(), reservation.last_seqno());
        fill_log(reservation, logged.as_ref(), operations);
        let inserted = buffers.insert(first, operations, keep_from, !self.is_synced());
        // Must precede visibility to snapshots.
        self.end_gaps(operations);
        logged.into_iter().for_each(|logged| logged.note(first));
        drop(underway);
        self.account(operations, &inserted, &buffers);
        Ok(last)
    }

    /// Appends large values to value logs, then takes the commit's seqnos, its buffers and its place in the
    /// log in one section of the commit lock.
    #[inline]
    fn take_place(
        &self,
        operations: &[Operation<'_>],
        bytes: usize,
    ) -> Result<Place<'_, impl Deref<Target = Arc<View>> + use<>>> {
        let Self { store, keyspaces, .. } = *self;
        let wal = store.wal()?;
        loop {
            let logged = self.log_values(operations)?;
            let early = planted!("buffer-chosen-early").then(|| choose_buffers(keyspaces)).transpose()?;
            let commit = store.commits.lock();
            // Closing the store waits for the commits that got here before, and for no others.
            if !planted!("late-commit-at-close") {
                store.check_writable()?;
            }
            let buffers = early.map_or_else(|| choose_buffers(keyspaces), Ok)?;
            if logged.as_ref().is_some_and(|logged| !logged.are_in(|keyspace| buffers.of(keyspace))) {
                // A buffer was sealed since; its value log accepts no more.
                continue;
            }
            let bytes = logged.as_ref().map_or(bytes, |logged| bytes - logged.saved_bytes());
            let value_bytes = logged.as_ref().map_or(0, LoggedOfCommit::kept_bytes);
            let count = u32_of(operations.len());
            let reservation = wal.reserve_with_values(bytes, count, value_bytes)?;
            let first = reservation.first_seqno();
            let underway = store.commits.enter(first);
            buffers.each(|at, buffer| {
                if buffer.record_commit(first) {
                    store.buffered.insert(&keyspaces[at]);
                }
            });
            let newest = store.snapshots.newest();
            drop(commit);
            let keep_from = newest.filter(|_| !planted!("version-pruned-under-snapshot"));
            let is_single = operations.len() == 1;
            let underway = Some(underway).filter(|_| !planted!("batch-published-half") || is_single);
            return Ok(Place { logged, reservation, buffers, keep_from, underway });
        }
    }

    /// Appends large values to the value logs of the active buffers, except those of a synced commit: they
    /// are in the WAL, which needs one sync instead of two.
    #[inline]
    fn log_values(&self, operations: &[Operation<'_>]) -> Result<Option<LoggedOfCommit>> {
        let has_log = |keyspace: &Arc<KeyspaceCore>| keyspace.view.load().active.value_log().is_some();
        if self.is_synced() || !self.keyspaces.iter().any(has_log) {
            return Ok(None);
        }
        log_values(self.store, self.keyspaces, operations)
    }

    /// Cuts the gaps in which these operations have inserted entries, so that scans visit them.
    #[inline]
    fn end_gaps(&self, operations: &[Operation<'_>]) {
        if self.keyspaces.iter().all(|keyspace| keyspace.known_gaps().is_none()) {
            return;
        }
        for operation in operations.iter().filter(|operation| operation.kind != Kind::Tombstone) {
            let gaps = self.keyspace_of(operation).and_then(|keyspace| keyspace.known_gaps());
            gaps.into_iter().for_each(|gaps| gaps.end_at(operation.key));
        }
    }

    /// Records what the commit has written; seals buffers that are full.
    #[inline]
    fn account<V: Deref<Target = Arc<View>>>(
        &self,
        operations: &[Operation<'_>],
        inserted: &Inserted,
        buffers: &ChosenBuffers<V>,
    ) {
        let Self { store, keyspaces, .. } = *self;
        if let ChosenBuffers::One(view) = buffers {
            keyspaces[0].write_hint.note(view);
        }
        store.counters.user_writes.add(u64_of(operations.len()));
        store.counters.user_bytes.add(u64_of(inserted.user_bytes));
        if inserted.memory_bytes > 0 {
            store.backpressure.active_bytes.fetch_add(u64_of(inserted.memory_bytes), Relaxed);
            buffers.each(|at, buffer| {
                check_own_share(store, &keyspaces[at], buffer);
                check_names(store, &keyspaces[at], buffer);
                seal_with_full_log(store, &keyspaces[at], buffer);
            });
        }
        // Later operands are added to the length of a whole value.
        for operation in operations.iter().filter(|operation| operation.kind == Kind::Value) {
            if let Some(full_merge) = self.keyspace_of(operation).and_then(|keyspace| keyspace.merging()) {
                full_merge.record_value(operation.key, operation.value.len());
            }
        }
    }

    /// Unlocks the stripes after the write.
    pub fn unlock<Locked, R>(&self, stripes: Locked, written: Result<R>) -> Result<R> {
        if written.is_err() && self.store.is_forked() {
            // A function of the user has forked. Threads that the child does not have may wait for the lock.
            mem::forget(stripes);
        }
        written
    }

    /// Makes the commit durable; at least, it survives the end of the process.
    pub fn make_durable(&self, last: Seqno) -> Result<()> {
        let Self { store, .. } = *self;
        if !self.is_synced() {
            return store.wal()?.keep(last);
        }
        if planted!("acknowledged-before-sync") {
            return store.wal()?.write_all();
        }
        let synced = store.wal()?.sync_to(last);
        synced.map_err(|error| error.lasting("written, but not durable yet"))?;
        // Each synced commit has a page of the log: the log may outgrow the store between two checks.
        if store.log.has_grown() {
            store.background.wake();
        }
        Ok(())
    }

    /// Whether the commit waits for the device.
    #[inline]
    fn is_synced(&self) -> bool {
        self.durability == Durability::Sync
    }

    #[inline]
    fn keyspace_of(&self, operation: &Operation<'_>) -> Option<&Arc<KeyspaceCore>> {
        self.keyspaces.iter().find(|keyspace| keyspace.id == operation.keyspace)
    }
}

/// Writes the commit's record to its place in the log.
#[inline]
fn fill_log(mut place: Reservation, logged: Option<&LoggedOfCommit>, operations: &[Operation<'_>]) {
    if let Some(logged) = logged {
        place.fill_values(|out| logged.encode_values(operations, out));
        place.fill(|out| logged.encode(operations, out));
    } else {
        place.fill(|out| _ = operations.iter().fold(out, encode_operation));
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

/// The buffers of a commit, one for each of its keyspaces.
enum ChosenBuffers<V> {
    /// The view pins its active buffer, without a reference count that all writers would change.
    One(V),
    Many(Vec<(KeyspaceId, Arc<WriteBuffer>)>),
}

/// Amount that a commit has inserted into its buffers.
#[derive(Default)]
struct Inserted {
    /// Bytes of keys and values.
    user_bytes: usize,
    /// Bytes by which the buffers grew.
    memory_bytes: usize,
}

/// The active buffers of these keyspaces. REQUIRES: the commit lock is held.
///
/// Errors: `Invalid` if one of them was dropped.
fn choose_buffers(
    keyspaces: &[Arc<KeyspaceCore>],
) -> Result<ChosenBuffers<impl Deref<Target = Arc<View>> + use<>>> {
    debug_assert!(!keyspaces.is_empty(), "a commit writes to a keyspace");
    if let [keyspace] = keyspaces {
        return Ok(ChosenBuffers::One(choose_view(keyspace)?));
    }
    let mut buffers = Vec::with_capacity(keyspaces.len());
    for keyspace in keyspaces {
        buffers.push((keyspace.id, Arc::clone(&choose_view(keyspace)?.active)));
    }
    Ok(ChosenBuffers::Many(buffers))
}

impl<V: Deref<Target = Arc<View>>> ChosenBuffers<V> {
    /// Inserts the operations; the first has seqno `first`. Versions at or before `keep_from`, the newest
    /// snapshot, are kept. `is_buffered`: large values may go to value logs.
    #[inline]
    fn insert(
        &self,
        first: Seqno,
        operations: &[Operation<'_>],
        keep_from: Option<Seqno>,
        is_buffered: bool,
    ) -> Inserted {
        debug_assert!(first > Seqno(0), "seqnos begin at 1");
        debug_assert!(
            keep_from.is_none_or(|snapshot| snapshot < first),
            "a snapshot sees earlier commits only"
        );
        let mut inserted = Inserted::default();
        for (seqno, operation) in (first.0..).zip(operations) {
            let Operation { keyspace, kind, key, value } = *operation;
            let buffer = self.of(keyspace);
            let outcome = buffer.table.insert(Seqno(seqno), kind, key, value, keep_from);
            buffer.record_value(outcome.stacked_bytes.max(value.len()));
            if kind == Kind::Value && is_buffered {
                buffer.record_loggable(value);
            }
            inserted.memory_bytes += outcome.memory_bytes_added;
            inserted.user_bytes += key.len() + value.len();
        }
        inserted
    }

    /// The buffer of a keyspace. REQUIRES: the keyspace is one of the commit's.
    #[inline]
    fn of(&self, keyspace: KeyspaceId) -> &WriteBuffer {
        match self {
            Self::One(view) => &view.active,
            Self::Many(buffers) => {
                debug_assert!(buffers.len() > 1, "a commit to one keyspace pins its view");
                let found = buffers.iter().find(|(id, _)| *id == keyspace);
                &found.expect("every keyspace of a batch is listed").1
            }
        }
    }

    /// Visits every buffer with the index of its keyspace among those of the commit.
    #[inline]
    fn each(&self, mut visit: impl FnMut(usize, &WriteBuffer)) {
        match self {
            Self::One(view) => visit(0, &view.active),
            Self::Many(buffers) => {
                buffers.iter().enumerate().for_each(|(at, (_, buffer))| visit(at, buffer));
            }
        }
    }
}

/// The view whose active buffer a commit writes to.
fn choose_view(keyspace: &KeyspaceCore) -> Result<impl Deref<Target = Arc<View>> + use<>> {
    if keyspace.is_dropped() {
        return Err(Error::invalid(format!("the keyspace {:?} was dropped", keyspace.name)));
    }
    keyspace.record_write();
    Ok(keyspace.view.load())
}
