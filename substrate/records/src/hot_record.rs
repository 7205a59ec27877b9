//! A record on its way from one cache to a later one.
//!
//! **Invariants**
//! - It says nothing about the state of its tree: who keeps it does.

use testudo_base::KeyspaceId;

/// A cached record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotRecord {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// How well it was used, from 0 to 3; 0 if it was not used again since it came.
    pub priority: u8,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// What became of a record that was to be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoredRecord {
    /// It is there now.
    Done,
    /// Its key has a record.
    Present,
    /// The tree is in a later state.
    Outdated,
    /// No cache of this size takes it.
    TooLong,
    /// There is no memory for it.
    Full,
}
