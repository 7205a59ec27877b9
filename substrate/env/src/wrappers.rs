//! Wrappers around environments and files, each adding one thing: a directory held open, a checked lock,
//! reserved space, combined writes, injected faults.

pub(crate) mod anchor;
pub(crate) mod combining;
pub(crate) mod faulty;
mod forward;
pub(crate) mod lock_check;
pub(crate) mod overlay;
pub(crate) mod patience;
pub(crate) mod reserve;
pub(crate) mod sparse;
pub(crate) mod watched_reads;
