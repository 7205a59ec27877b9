//! The record cache: hot records of the trees, as they are on disk, for all keyspaces of a store.
//!
//! Caching records instead of pages keeps the requested record without its forty neighbors. Records are
//! stored in a log of segments, which are chunks of the pool shared with write buffers. Chunks that write
//! buffers do not need at the moment cache records, and are returned on demand. A hit takes no lock; every
//! change of the cache takes the lock of one shard.
//!
//! ```text
//! get, fill, advance ─▶ keyspace_records   which entries are valid for which state of the tree
//!                        └─▶ record_cache  shards, statistics, giving up memory
//!                             └─▶ shard    the logs of one shard, which records stay or are evicted
//!                                  ├─▶ index            where a record is
//!                                  └─▶ segment           its bytes
//! ```
//!
//! **Invariants**
//! - A cached record is valid for every state of its tree from its own to the newest.
//! - A segment is written at its end, and where a flush replaces a value by one of the same size. Its memory
//!   is reused only when no reader can access it.
//! - Locks are taken in the order shard, spare, pool or free ids; a memtable's arena may be locked before all
//!   of them.
//!   of them.

mod ghosts;
mod hot_record;
mod hot_records;
mod index;
mod keyspace_records;
mod record_cache;
mod segment;
mod shard;

pub use hot_record::{HotRecord, RestoredRecord};
pub use keyspace_records::KeyspaceRecords;
pub use record_cache::{RecordCache, RecordCacheStats};
