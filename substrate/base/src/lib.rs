//! Vocabulary of the store, shared by every layer: ids, entries, cursors, codecs, checksums, errors.
//!
//! The lowest crate layer: it performs no I/O and does not depend on files, trees or the engine.
//!
//! **Invariants**
//! - Everything written to disk is little-endian and goes through [`codec`].
//! - Corrupt input is an [`Error`] of kind [`ErrorKind::Corruption`], never a panic.

pub mod checksum;
pub mod chunks;
pub mod codec;
mod cursor;
mod drops;
mod entry;
pub mod errno;
mod error;
mod ids;
pub mod key;
mod large_slice;
mod large_vec;
pub mod merge_operator;
pub mod num;
pub mod operands_format;
pub mod oversized_keys;
pub mod planted;
pub mod prefetch;
pub mod striped;
pub mod sync;
mod value_reference;

pub use cursor::Cursor;
pub use drops::{DropCounts, DropSink, MergeDrops, ReferenceDrops, SegmentDrops};
pub use entry::{Entry, Kind, OwnedEntry};
pub use error::{Error, ErrorKind, Result};
pub use ids::{
    ExtentSpan, Incarnation, KeyspaceId, ObjectId, Opening, PAGE_BYTES, PAGE_SIZE, RunId, Seqno, StoreId,
};
pub use large_slice::{LargeSlice, MAPPED_BYTES_MIN};
pub use large_vec::LargeVec;
pub use value_reference::ValueReference;

/// Longest key that the store accepts, in bytes (64 KiB).
pub const MAX_KEY_BYTES: usize = 64 << 10;
/// Longest value that the format can hold, in bytes (4 GiB − 1).
pub const MAX_VALUE_BYTES: u64 = u32::MAX as u64;
