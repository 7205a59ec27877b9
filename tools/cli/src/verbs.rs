//! Verbs: one file each, with arguments and implementation.
//!
//! **Invariants**
//! - Verbs share only `input`, `output`, `store` and `raw_store`; `keyspace list` is `ls`.

pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod checkpoint;
pub(crate) mod compact;
pub(crate) mod completions;
pub(crate) mod count;
pub(crate) mod del;
pub(crate) mod demo;
pub(crate) mod dump;
pub(crate) mod estimate;
pub(crate) mod get;
pub(crate) mod info;
pub(crate) mod keyspace;
pub(crate) mod load;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod manifest;
pub(crate) mod merge;
pub(crate) mod page;
pub(crate) mod put;
pub(crate) mod repair;
pub(crate) mod salvage;
pub(crate) mod scan;
pub(crate) mod scrub;
pub(crate) mod space;
pub(crate) mod stat;
pub(crate) mod tree;
pub(crate) mod verify;
pub(crate) mod wal;
