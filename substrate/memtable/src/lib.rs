//! The concurrent ordered write buffer: sorted leaves under a small top level, records in an arena.
//!
//! A [`Memtable`] takes writes of many threads, keeps of each key the newest version and those older ones
//! that a snapshot may still read, and gives them back by key or in order through a [`MemtableCursor`].
//! Chunks of memory go round between memtables through a [`ChunkPool`](testudo_base::chunks::ChunkPool). An
//! update that no snapshot can tell from its predecessor overwrites it in place, so that skewed updates cost
//! no memory.
//!
//! Once the table outgrows the caches, time is memory latency. A search therefore waits for two loads only, a
//! group of heads and the record; records are written in the order of arrival and loaded ahead by scans.
//!
//! ```text
//! insert, get, cursor -> memtable -> table -> top_lock -> top -> fences   which leaf
//!                                              +-> leaf -> group     which entry of the leaf
//!                                                   +-> arena -> windows   the record's bytes
//! ```
//!
//! **Invariants**
//! - Every key lies in the one leaf whose fences enclose it; the versions of a key are linked newest first.
//! - Locks are taken in the order top, leaf, arena, pool, and never held after a call returns.
//! - No user bytes are read or written without the lock of their leaf, with the one exception that a record
//!   that no leaf refers to yet is filled by its only owner.

mod arena;
mod cursor;
mod fences;
mod group;
mod hint;
mod leaf;
mod memtable;
mod table;
mod top;
mod top_lock;
mod windows;

pub use cursor::{MemtableCursor, MemtableScan};
pub use hint::MemtableHint;
pub use leaf::InsertOutcome;
pub use memtable::{Memtable, Versions};
