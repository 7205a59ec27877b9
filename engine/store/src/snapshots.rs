//! Snapshots and the views they hold: open seqnos, held views and buffers, and held buffers spilled to disk.
//!
//! **Invariants**
//! - A held view reads the same entries after its buffers are flushed and its tree is replaced.

pub mod held_buffer;
pub mod held_view;
pub mod held_views;
pub mod open_snapshots;
pub mod spilled_buffer;
pub mod spilled_cursor;
pub mod versions_format;
