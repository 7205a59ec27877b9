//! Testudo: an ordered, persistent, embedded key-value store.
//!
//! ```
//! # fn main() -> testudo::Result<()> {
//! # let directory = std::env::temp_dir().join(format!("testudo-doc-{}", std::process::id()));
//! use testudo::{Db, Durability, KeyspaceOptions};
//!
//! let db = Db::builder(&directory).memory_bytes(64 << 20).temporary().open()?;
//! let users = db.keyspace("users", KeyspaceOptions::default())?;
//! users.insert("ada", "1815")?;
//! assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
//!
//! let mut batch = db.batch();
//! batch.insert(&users, "grace", "1906");
//! batch.remove(&users, "ada");
//! batch.durability(Durability::Sync).commit()?;
//! let names: Vec<_> = users.iter()?.collect::<testudo::Result<_>>()?;
//! assert_eq!(names.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! **Durability.** With [`Durability::Buffered`], the default, an acknowledged write survives the end of the
//! process (exit, abort, panic, SIGKILL) and is synced within a second; a crash of the machine may lose the
//! last second. With [`Durability::Sync`] it is acknowledged once it is on disk. Whatever a crash leaves is a
//! prefix of the commit order, across all keyspaces.
//!
//! **Blocking.** Every call may be made from any thread, and none is async. What they wait for:
//!
//! - [`Slice`], [`Entry::key`], filling a [`Batch`], [`Keyspace::name`], [`Keyspace::options`],
//!   [`Db::keyspace_names`]: for nothing but short locks.
//! - `insert`, `remove`, `merge`, [`Batch::commit`] with [`Durability::Buffered`]: as a rule for nothing but
//!   memory. While flushes are behind, each call is delayed by up to 5 ms. When the write buffers or the
//!   log's buffers are full, it waits until the flush or the log write under way has made room: milliseconds
//!   on an idle device, a tenth of a second and more under a small budget or on a slow one; at most as long
//!   as the device takes for the write buffers' share of the budget. [`DbStats::max_stall_micros`] tells the
//!   longest wait. `merge` reads where a value has become long.
//! - [`Keyspace::insert_reader`]: for its reader, and for each 64 KiB as `insert` does.
//! - `get`, `contains_key`, `multi_get`, steps of an [`Iter`], [`Entry::value`], reads of a [`ValueReader`]:
//!   for reads of the pages that are not in memory.
//! - `update`, `compare_and_swap`: for a read and a write, and for other writers of the same key with their
//!   functions.
//! - [`Db::snapshot`], `iter`, `range`, `prefix`: for commits under way, as long as those take.
//! - Anything with [`Durability::Sync`], [`Db::persist`], making, changing and dropping keyspaces: for syncs
//!   of the device.
//! - Opening, [`Db::flush`], [`Db::settle`], [`Db::close`] and the drop of the last handle, verifying,
//!   scrubbing, copying: for the work itself.
//!
//! So in an async program run everything but the first on threads of its own (`tokio::task::spawn_blocking`,
//! or a few threads behind a channel). Single buffered writes may be called directly, if it does no harm that
//! one of them now and then takes as long as is said there. Bulk loads may not.
//!
//! Data flow: `commit → write-ahead log + memtable → (flush) → tree → runs in the data file`; see
//! ARCHITECTURE.md.
//!
//! **Invariants**
//! - A commit gets its seqno, its place in the log and its memtables in one critical section.
//! - What a keyspace's readers see is one view that is swapped whole.
//! - Data is synced before the manifest edit that refers to it; the log is synced up to what an edit declares
//!   flushed.

#![warn(unnameable_types)]

pub use testudo_backup as backup;
pub use testudo_base::{
    Error, ErrorKind, KeyspaceId, Kind, OwnedEntry, Result,
    merge_operator::{MergeFunction, MergeOperator, MergeOperators},
};
pub use testudo_contract::OutlineLine;
pub use testudo_db::{
    BaseWithOperands, Batch, CheckpointReport, Db, DbBuilder, DbStats, Entry, Finding, Iter, KeyRange,
    Keyspace, KeyspaceInspection, KeyspaceStats, LoggedOperation, Memory, PublishedStats, ReadView,
    ScrubObserver, ScrubOptions, ScrubPosition, ScrubProgress, ScrubReport, Snapshot, SnapshotKeyspace,
    StoreInspection, ValueReader, VerifyLevel, VerifyReport, inspect_commit, inspect_store,
};
pub use testudo_env as env;
pub use testudo_env::Env;
pub use testudo_options::{Durability, IntoKeyspaceOptions, KeyspaceOptions, Tree, TreePreset};
pub use testudo_repair::{
    KeyspaceSalvage, LogSalvage, LostCommits, LostRange, NameSource, Remedy, RepairFinding, RepairOptions,
    RepairReport, SalvageMethod, SalvageOptions, SalvageReport, repair, salvage,
};
pub use testudo_run::KeyBounds;
pub use testudo_store::{
    long_work::{Observer, WorkDone, unobserved},
    read::slice::Slice,
    warm_restart::restore_state::RestoreState,
};
pub use testudo_values::Placement;

/// Private parts under chosen schedules, for `testing/schedules`.
#[cfg(testudo_shuttle)]
#[doc(hidden)]
pub mod schedules {
    pub use testudo_store::commits::in_flight::schedule::in_flight;
}

/// The examples of the README are tests too.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct ReadmeExamples;
