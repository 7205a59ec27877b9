//! Testudo: an ordered, persistent, embedded key-value store.
//!
//! ```
//! # fn main() -> testudo::Result<()> {
//! # let directory = std::env::temp_dir().join(format!("testudo-doc-{}", std::process::id()));
//! use testudo::{Db, Durability, KeyspaceOptions};
//!
//! let db = Db::builder(&directory).memory_bytes(64 << 20).temporary().open()?;
//! let users = db.keyspace("users", KeyspaceOptions::default)?;
//! users.insert("ada", "1815")?;
//! assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
//!
//! let mut batch = db.batch();
//! batch.insert(&users, "grace", "1906");
//! batch.remove(&users, "ada");
//! batch.durability(Durability::Sync).commit()?;
//! assert_eq!(users.iter()?.count(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! **Durability.** A write is acknowledged once it is in memory ([`Durability::Buffered`], the default): it reaches the
//! log file within about a tenth of a second and is synced within a second. With [`Durability::Sync`] it is
//! acknowledged once it is on disk. Whatever a crash leaves is a prefix of the commit order, across all keyspaces.
//!
//! Data flow: `commit → write-ahead log + memtable → (drain) → tree → runs in the data file`; see ARCHITECTURE.md.
//!
//! **Invariants**
//! - A commit gets its seqno, its place in the log and its memtables in one critical section.
//! - What a keyspace's readers see is one [`view`](self) that is swapped whole.
//! - Data is synced before the manifest edit that refers to it; the log is synced up to what an edit declares flushed.

mod background;
mod backpressure;
pub mod backup;
mod batch;
mod batch_format;
mod builder;
mod checkpoint;
mod commit;
mod consistent_state;
mod db;
mod drain;
mod executor;
mod findings;
mod in_flight;
mod inspect;
mod iter;
mod keyspace;
mod long_work;
mod memory;
mod new_store;
mod open;
mod options;
mod quiet;
mod read;
mod repair;
mod room;
mod salvage;
mod scrub;
mod sealing;
mod shares;
mod slice;
mod snapshot;
mod stages;
mod stats;
mod store;
mod stripes;
mod updates;
mod verify;
mod view;

pub use batch::Batch;
pub use builder::DbBuilder;
pub use checkpoint::CheckpointReport;
pub use db::Db;
pub use findings::Finding;
pub use inspect::{LoggedOperation, inspect_commit};
pub use iter::{Entry, Iter};
pub use keyspace::Keyspace;
pub use long_work::{Observer, WorkDone, unobserved};
pub use memory::Memory;
pub use options::{Durability, KeyspaceOptions, Tree};
pub use read::Read;
pub use repair::{Remedy, RepairFinding, RepairOptions, RepairReport, repair};
pub use salvage::{
    KeyspaceSalvage, LogSalvage, LostCommits, LostRange, NameSource, SalvageMethod, SalvageOptions,
    SalvageReport, salvage,
};
pub use scrub::{ScrubObserver, ScrubOptions, ScrubPosition, ScrubProgress, ScrubReport};
pub use slice::Slice;
pub use snapshot::{Snapshot, SnapshotKeyspace};
pub use stats::{DbStats, KeyspaceStats};
pub use testudo_base::{
    Error, ErrorKind, Result,
    merge_operator::{MergeFunction, MergeOperator, MergeOperators},
};
pub use testudo_contract::OutlineLine;
pub use verify::{VerifyLevel, VerifyReport};

/// Private parts under chosen schedules, for `testing/schedules`.
#[cfg(testudo_shuttle)]
#[doc(hidden)]
pub mod schedules {
    pub use crate::in_flight::schedule::in_flight;
}

/// The examples of the README are tests too.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct ReadmeExamples;
