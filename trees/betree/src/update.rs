//! The path from a batch of updates to new runs: planned on the trunk alone, then written, one merge for each
//! destination.
//!
//! `plan → write`; all I/O happens in `write`.

pub(crate) mod compact_range;
pub(crate) mod inflow;
pub(crate) mod join;
pub(crate) mod leaf_parts;
pub(crate) mod migrate;
pub(crate) mod outflow;
pub(crate) mod plan;
pub(crate) mod reclaim;
pub(crate) mod retain;
pub(crate) mod run_cutter;
pub(crate) mod subcompaction;
pub(crate) mod trivial_move;
pub(crate) mod write;
