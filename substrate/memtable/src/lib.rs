//! The concurrent ordered write buffer: sorted leaves under a small top level, records in an arena.
//!
//! A [`Memtable`] accepts writes of many threads. Of each key it keeps the newest version and those older
//! ones that a snapshot may still read. It returns them by key, or in order through a [`MemtableCursor`].
//! Chunks of memory circulate between memtables through a [`ChunkPool`](testudo_base::chunks::ChunkPool). An
//! update that no snapshot can distinguish from its predecessor overwrites it in place, so that skewed
//! updates use no additional memory.
//!
//! Once the table outgrows the caches, memory latency dominates. A search therefore waits for only two loads,
//! a group of heads and the record; records are written in order of arrival and prefetched by scans.
//!
//! ```text
//! insert, get, cursor -> memtable -> table -> index -> top_lock -> top -> fences   which leaf
//!                                                       +-> leaf -> group     which entry of the leaf
//!                                                            +-> arena -> windows   the record's bytes
//! ```
//!
//! **Invariants**
//! - Every key is in the one leaf whose fences enclose it; the versions of a key are linked newest first.
//! - Locks are taken in the order top, leaf, arena, pool, and never held after a call returns.
//! - User bytes are read and written only under the lock of their leaf, except that the owner of a record
//!   that no leaf refers to yet fills it.

mod arena;
mod cursor;
mod fences;
mod group;
mod index;
mod leaf;
mod memtable;
mod table;
mod top;
mod top_lock;
mod windows;

pub use cursor::{MemtableCursor, MemtableScan};
pub use leaf::InsertOutcome;
pub use memtable::{Memtable, MemtableHint, Versions};
