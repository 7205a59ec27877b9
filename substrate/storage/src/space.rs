//! Space of the data file: which pages are used by which runs, and how much free space to keep.

pub(crate) mod extents;
pub(crate) mod free_space;
pub(crate) mod free_space_target;
pub(crate) mod place_users;
