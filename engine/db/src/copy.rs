//! Copies of the store at one commit, into a directory or a backup repository.

pub(crate) mod checkpoint;
pub(crate) mod consistent_state;
