//! The path from a batch of updates to the next levels: planned from sizes, then written, then installed.
//!
//! `moves → plan → destination → write → install`; reading entries and writing begin in `write`.

pub(crate) mod chunks;
pub(crate) mod compact_range;
pub(crate) mod destination;
pub(crate) mod direct;
pub(crate) mod gather;
pub(crate) mod install;
pub(crate) mod jobs;
pub(crate) mod migrate;
pub(crate) mod moves;
pub(crate) mod page_batch;
pub(crate) mod plan;
pub(crate) mod reclaim;
pub(crate) mod retain;
pub(crate) mod take_out;
pub(crate) mod tombstones;
pub(crate) mod write;
