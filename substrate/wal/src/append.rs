//! The path of a commit into memory, and one sync for many commits.
//!
//! `tail → reservation → buffer`, with no lock held during the copy; `group_commit` decides which thread
//! syncs for the others.

pub(crate) mod buffer;
pub(crate) mod group_commit;
pub(crate) mod reservation;
pub(crate) mod tail;
pub(crate) mod tail_files;
