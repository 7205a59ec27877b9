//! TODO

pub mod held_buffer;
pub mod held_view;
pub mod held_views;
pub mod open_snapshots;
pub mod spilled_buffer;
pub mod spilled_cursor;
pub mod versions_format;
