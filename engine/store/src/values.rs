//! Values apart from their entries: values in pieces, value logs and segments, and values in the log's tail.
//!
//! **Invariants**
//! - Nothing is reclaimed while an entry or a held view can still refer to it.

pub mod names_beside;
pub mod pieces;
pub mod pieces_format;
pub mod tail_values_format;
pub mod value_logs;
