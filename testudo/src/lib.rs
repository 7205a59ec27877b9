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
//! last second. With [`Durability::Sync`] a write is acknowledged once it is on disk. After any crash the
//! store holds a prefix of the commit order, across all keyspaces.
//!
//! **Blocking.** Every call may be made from any thread, and none is async. Calls may wait for:
//!
//! - [`Slice`], [`Entry::key`], filling a [`Batch`], [`Keyspace::name`], [`Keyspace::options`],
//!   [`Db::keyspace_names`]: only short locks.
//! - `insert`, `remove`, `merge`, [`Batch::commit`] with [`Durability::Buffered`]: usually only memory. While
//!   flushes are behind, each call is throttled by up to 5 ms. When the write buffers or the log buffers are
//!   full, the call waits for a flush or log write to free space: milliseconds on an idle device, a tenth of
//!   a second or more under a small budget or on a slow device. The upper bound is the time the device takes
//!   to write the write buffers' share of the budget. [`stats::StallStats::max_micros`] reports the longest
//!   wait. `merge` reads the key if its value has become long.
//! - [`Keyspace::insert_reader`]: its reader, and for each 64 KiB as `insert` does.
//! - `get`, `contains_key`, `multi_get`, steps of an [`Iter`], [`Entry::value`], reads of a [`ValueReader`]:
//!   reads of pages that are not in memory.
//! - `update`, `compare_and_swap`: a read and a write, and other writers of the same key, including their
//!   closures.
//! - [`Db::snapshot`], `iter`, `range`, `prefix`: commits in flight.
//! - Anything with [`Durability::Sync`], [`Db::persist`], creating, changing and dropping keyspaces: device
//!   syncs.
//! - Opening, [`Db::flush`], [`Db::compact`], [`Keyspace::compact_range`], [`Db::close`], the drop of the
//!   last handle, verifying, scrubbing, copying: the work itself.
//!
//! In an async program, run everything but the first group on separate threads
//! (`tokio::task::spawn_blocking`, or a few threads behind a channel). Single buffered writes may be called
//! directly if an occasional delay as long as stated above does no harm. Bulk loads may not.
//!
//! Data flow: `commit → write-ahead log + memtable → (flush) → tree → runs in the data file`; see
//! ARCHITECTURE.md.
//!
//! **Invariants**
//! - A commit gets its seqnos, its place in the log and its memtables in one critical section.
//! - Readers of a keyspace see one view, which is replaced atomically.
//! - Data is synced before the manifest edit that refers to it. The log is synced up to the seqno that an
//!   edit declares flushed.

#![warn(unnameable_types)]

pub use testudo_backup as backup;
pub use testudo_base::{
    Error, ErrorKind, KeyspaceId, Kind, OwnedEntry, Result,
    merge_operator::{MergeFunction, MergeOperator, MergeOperators},
};
pub use testudo_contract::OutlineLine;
pub use testudo_db::{
    Background, BackgroundJob, BaseWithOperands, Batch, CheckpointOptions, CheckpointReport, Db, DbBuilder,
    DbStats, Entry, Finding, Iter, KeyRange, Keyspace, KeyspaceInspection, KeyspaceStats, LoggedOperation,
    Memory, PublishedStats, ReadView, ScrubOptions, ScrubPosition, ScrubProgress, ScrubReport, Snapshot,
    SnapshotKeyspace, StoreInspection, ValueReader, VerifyLevel, VerifyOptions, VerifyReport, inspect_commit,
    inspect_store, stats,
};
pub use testudo_env as env;
pub use testudo_env::Env;
pub use testudo_options::{
    Durability, Forecast, IntoKeyspaceOptions, KeyspaceOptions, Stage, Tree, TreeKind, TreePreset,
    TreelineOptions,
};
pub use testudo_repair::{
    KeyspaceSalvage, LogSalvage, LostCommits, LostRange, NameSource, Remedy, RepairFinding, RepairOptions,
    RepairReport, SalvageMethod, SalvageOptions, SalvageReport, repair, salvage,
};
pub use testudo_run::KeyBounds;
pub use testudo_store::{
    commits::delays::StallCause,
    long_work::{Observer, WorkDone},
    read::slice::Slice,
    warm_restart::restore_state::RestoreState,
};
pub use testudo_values::Placement;

/// Internals that `testing/schedules` runs under chosen schedules.
#[cfg(testudo_shuttle)]
#[doc(hidden)]
pub mod schedules {
    pub use testudo_store::commits::commit_order::schedule::in_flight;
}

/// Runs the examples of the README and the guide as doc tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/guide/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../../docs/guide/trees-and-placement.md")]
    struct TreesAndPlacement;
    #[doc = include_str!("../../docs/guide/sizing.md")]
    struct Sizing;
    #[doc = include_str!("../../docs/guide/durability.md")]
    struct Durability;
    #[doc = include_str!("../../docs/guide/stalls.md")]
    struct Stalls;
    #[doc = include_str!("../../docs/guide/backup.md")]
    struct Backup;
    #[doc = include_str!("../../docs/guide/full-devices.md")]
    struct FullDevices;
}
