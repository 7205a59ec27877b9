//! Sealed memtables go into their trees, trees get their jobs done, the log gets shorter.
//!
//! All of it happens on background threads, or stepped in simulations.

pub(crate) mod background;
pub(crate) mod flush_sealed;
pub(crate) mod idle;
pub(crate) mod nearly_full;
pub(crate) mod sealing;
pub(crate) mod stages;
pub(crate) mod updates;
