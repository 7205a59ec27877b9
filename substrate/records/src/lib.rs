//! The record cache: hot records of the trees, as they are on disk, for all keyspaces of a store.
//!
//! Caching records rather than pages keeps what is read, and not its forty neighbours. Records lie in a log
//! of segments, which are chunks of the pool that write buffers use too: what these do not need at the moment
//! caches records, and goes back when they need it. A hit takes no lock; everything that changes the cache
//! takes the lock of one shard.
//!
//! ```text
//! get, fill, advance ─▶ keyspace_records   which entries are true for which state of the tree
//!                        └─▶ record_cache  shards, statistics, giving memory up
//!                             └─▶ shard    the logs of one shard, what is carried on and what dies
//!                                  ├─▶ index ─▶ slot     where a record is
//!                                  └─▶ segment           its bytes
//! ```
//!
//! **Invariants**
//! - A cached record says what each state of its tree says from its own to the newest.
//! - A segment is written at its end, and where a flush replaces a value by one of the same size. Its memory
//!   changes hands when nobody can read it any more.
//! - Locks are taken in the order shard, spare, pool or free ids; a memtable's arena may be locked before all
//!   of them.

mod ghosts;
mod hot_record;
mod hot_records;
mod index;
mod keyspace_records;
mod record_cache;
mod segment;
mod shard;
mod slot;

pub use hot_record::{HotRecord, RestoredRecord};
pub use keyspace_records::KeyspaceRecords;
pub use record_cache::{RecordCache, RecordCacheStats};
