//! Values apart from their entries: long values, value logs and segments, and values in the log's tail.
//!
//! **Invariants**
//! - Nothing is reclaimed while an entry or a held view can still refer to it.

pub mod long_values;
pub mod names_beside;
pub mod pieces_format;
pub mod tail_values_format;
pub mod value_logs;
