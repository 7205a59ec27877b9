//! Background work on trees: sealed memtables are flushed, jobs compact, the log is released, space is
//! reclaimed.
//!
//! Functions here run on background threads, on a caller's thread (`flush`, `compact`), or step by step in
//! simulations.
//!
//! **Invariants**
//! - One flush, job installation or catalogue change at a time: the flush lock is held.
//! - Data is synced before the manifest edit that refers to it.

#![expect(missing_docs, reason = "fields of internal state, documented by their names")]

pub mod at_close;
pub mod compact_range;
pub mod govern;
pub mod jobs;
pub mod log_release;
pub mod manifest_edit;
pub mod round;
pub mod seal;
pub mod settle;
pub mod shorten_log;
pub mod space;
