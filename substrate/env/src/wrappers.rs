//! Environments and files that stand before others and add one thing: a directory held open, a lock that is
//! checked, space kept back, faults on request.

pub(crate) mod anchor;
pub(crate) mod faulty;
mod forward;
pub(crate) mod lock_check;
pub(crate) mod overlay;
pub(crate) mod patience;
pub(crate) mod reserve;
pub(crate) mod sparse;
pub(crate) mod watched_reads;
