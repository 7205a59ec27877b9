//! TODO

pub mod nearly_full;
pub mod space_guard;
