//! A record handed from one cache to a later one.
//!
//! **Invariants**
//! - It implies nothing about the state of its tree: its owner keeps that.

use testudo_base::KeyspaceId;

/// A cached record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotRecord {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// Usage count, from 0 to 3; 0 if it was not used again since its insertion.
    pub priority: u8,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// Outcome of restoring a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoredRecord {
    /// It was cached.
    Done,
    /// The key already has a cached record.
    Present,
    /// The tree is in a later state.
    Outdated,
    /// It is too long for a cache of this size.
    TooLong,
    /// There is no memory for it.
    Full,
}
