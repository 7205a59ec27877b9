//! From a commit to bytes in memory, and from there to one sync for many.
//!
//! `tail → reservation → buffer` without a lock over the copy; `group_commit` decides who syncs for whom.

pub(crate) mod buffer;
pub(crate) mod group_commit;
pub(crate) mod reservation;
pub(crate) mod tail;
pub(crate) mod tail_files;
