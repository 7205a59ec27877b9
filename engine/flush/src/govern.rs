//! Decisions between flushes: write memory against caches, placement of large values, keyspace settings.
//!
//! **Invariants**
//! - A decision takes effect between flushes, under the flush lock where it commits an edit.

pub mod govern_memory;
pub mod govern_values;
pub mod keyspace_settings;
pub mod moving_price;
