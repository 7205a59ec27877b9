//! TODO

pub mod budget;
pub mod governor;
pub mod iterator_memory;
pub mod log_bounds;
pub mod metadata;
pub mod rebalance;
pub mod shares;
