//! Handles and plain data of the public API: store, keyspaces, batches, snapshots, iterators, statistics.
//!
//! Handles create each other; code outside this folder uses them only to create the first one.

pub(crate) mod batch;
pub(crate) mod builder;
pub(crate) mod db;
pub(crate) mod dead_run;
pub(crate) mod entry;
pub(crate) mod inspect;
pub(crate) mod iter;
pub(crate) mod key_range;
pub(crate) mod keyspace;
pub(crate) mod memory;
pub(crate) mod outlying_value;
pub(crate) mod read_view;
pub(crate) mod scan_front;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod value_reader;
