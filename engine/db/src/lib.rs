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
mod handles;
pub mod maintenance;
mod status;

pub use check::findings::Finding;
pub use check::scrub::{ScrubObserver, ScrubOptions, ScrubPosition, ScrubProgress, ScrubReport};
pub use check::verify::{VerifyLevel, VerifyReport};
pub use copy::checkpoint::CheckpointReport;
pub use handles::batch::Batch;
pub use handles::builder::DbBuilder;
pub use handles::db::Db;
pub use handles::entry::{BaseWithOperands, Entry};
pub use handles::inspect::{LoggedOperation, inspect_commit};
pub use handles::iter::Iter;
pub use handles::key_range::KeyRange;
pub use handles::keyspace::Keyspace;
pub use handles::memory::Memory;
pub use handles::read_view::ReadView;
pub use handles::snapshot::{Snapshot, SnapshotKeyspace};
pub use handles::stats::{DbStats, KeyspaceStats};
pub use handles::value_reader::ValueReader;
pub use status::{KeyspaceInspection, PublishedStats, StoreInspection, inspect_store};

#[cfg(test)]
mod tests;
