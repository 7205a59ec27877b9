//! TODO

pub mod look_up;
pub mod read_pieces;
pub mod scan_sources;
pub mod slice;
