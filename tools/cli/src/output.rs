//! Human-readable output: tables, sizes, timestamps, progress, help.
//!
//! **Invariants**
//! - Nothing here depends on a store.

pub(crate) mod help_text;
pub(crate) mod moment;
pub(crate) mod output_file;
pub(crate) mod progress;
pub(crate) mod size;
pub(crate) mod table;
pub(crate) mod watched_work;
