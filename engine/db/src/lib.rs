//! Handles of an open store: `Db`, `Keyspace`, snapshots, iterators, batches. Also verification and scrubbing
//! of an open store, its status file, and its background threads.
//!
//! Users reach all of it through the crate `testudo`.
//!
//! **Invariants**
//! - Handles hold no state of their own: they refer to an open store, a keyspace or a snapshot.
//! - The last handle closes the store.

#![warn(unnameable_types)]

mod background;
mod check;
mod copy;
mod db;
pub mod maintenance;
mod status;

pub use check::findings::Finding;
pub use check::scrub::{ScrubOptions, ScrubPosition, ScrubProgress, ScrubReport};
pub use check::verify::{VerifyLevel, VerifyOptions, VerifyReport};
pub use copy::checkpoint::{CheckpointOptions, CheckpointReport};
pub use db::Db;
pub use db::background_jobs::{Background, BackgroundJob};
pub use db::batch::Batch;
pub use db::builder::DbBuilder;
pub use db::entry::{BaseWithOperands, Entry};
pub use db::inspect::{LoggedOperation, inspect_commit};
pub use db::iter::Iter;
pub use db::key_range::KeyRange;
pub use db::keyspace::Keyspace;
pub use db::memory::Memory;
pub use db::read_view::ReadView;
pub use db::snapshot::{Snapshot, SnapshotKeyspace};
pub use db::stats::{self, DbStats, KeyspaceStats};
pub use db::value_reader::ValueReader;
pub use status::{KeyspaceInspection, PublishedStats, StoreInspection, inspect_store};

#[cfg(test)]
mod tests;
