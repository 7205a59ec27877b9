//! Sealed memtables go into their trees, trees get their jobs done, the log gets shorter.
//!
//! All of it happens on background threads, or stepped in simulations.

pub(crate) mod apply;
pub(crate) mod background;
pub(crate) mod begin_value_log;
pub(crate) mod commit_flush;
pub(crate) mod flush_sealed;
pub(crate) mod give_back;
pub(crate) mod govern;
pub(crate) mod govern_values;
pub(crate) mod hold_space;
pub(crate) mod idle;
pub(crate) mod jobs;
pub(crate) mod log_release;
pub(crate) mod nearly_full;
pub(crate) mod seal_buffers;
pub(crate) mod sealing;
pub(crate) mod settle;
pub(crate) mod spill;
pub(crate) mod stages;
pub(crate) mod sweep_pieces;
pub(crate) mod updates;
