//! TODO

pub mod apply;
pub mod commit_flush;
pub mod flush_sealed;
pub mod flushed;
pub mod spill;
pub mod updates;
