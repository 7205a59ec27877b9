//! TODO

pub mod govern_memory;
pub mod govern_values;
pub mod keyspace_settings;
pub mod moving_price;
