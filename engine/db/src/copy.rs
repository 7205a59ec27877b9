//! The store at one commit, copied: into a directory, or into a repository of backups.

pub(crate) mod checkpoint;
pub(crate) mod consistent_state;
