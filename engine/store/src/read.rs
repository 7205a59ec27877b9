//! Reads of a view: point lookups, the sources of scans, long values, and the slices that reads return.
//!
//! **Invariants**
//! - Sources are read newest first: write buffers, then cached records and the tree.

pub mod long_value;
pub mod look_up;
pub mod scan_sources;
pub mod slice;
