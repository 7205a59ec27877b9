//! Rounds of flushing: sealed buffers are applied to their trees, committed with one edit, and spilled if
//! still held.
//!
//! **Invariants**
//! - One round at a time, under the flush lock.
//! - Data is synced before the edit that refers to it.

pub mod apply;
pub mod commit_flush;
pub mod flush_sealed;
pub mod flushed;
pub mod spill;
pub mod updates;
