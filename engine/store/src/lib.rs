//! State of an open store: keyspaces and their views, the memory budget, space of the device, snapshots, and
//! reads.
//!
//! The crates above act on it: `flush` moves write buffers into trees, `write` commits, `recovery` opens,
//! `db` has the handles of users.
//!
//! **Invariants**
//! - Only this crate and the crates above it change the state; nothing here calls upwards.
//! - Readers of a keyspace see one view, which is replaced as a whole.

#![expect(missing_docs, reason = "fields of internal state, documented by their names")]

pub mod background;
pub mod begin_writing;
pub mod catalogue;
pub mod commits;
pub mod directory;
pub mod gaps;
pub mod health;
pub mod keyspace;
pub mod log;
pub mod long_work;
pub mod memory;
pub mod merging;
pub mod poison_on_panic;
pub mod publisher;
pub mod read;
pub mod snapshots;
pub mod space;
mod store;
pub mod values;
pub mod warm_restart;

pub use store::{Counters, Store, StoreParts};
