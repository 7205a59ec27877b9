//! Which pages of the data file are in use, by whom, and how much free space is worth keeping.

pub(crate) mod extents;
pub(crate) mod free_space;
pub(crate) mod free_space_target;
pub(crate) mod place_users;
