//! TODO

pub mod backpressure;
pub mod batch_format;
pub mod buffered_keyspaces;
pub mod commit_order;
pub mod in_flight;
pub mod stripes;
