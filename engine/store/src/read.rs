//! Reads of a view: point lookups, the sources of scans, values in pieces, and the slices that reads return.
//!
//! **Invariants**
//! - Sources are read newest first: write buffers, then cached records and the tree.

pub mod look_up;
pub mod read_pieces;
pub mod scan_sources;
pub mod slice;
