//! The memory budget: its shares, the governor that moves them, and memory of the log, metadata and
//! iterators.
//!
//! **Invariants**
//! - The shares never exceed the budget in total.

pub mod budget;
pub mod governor;
pub mod iterator_memory;
pub mod log_bounds;
pub mod metadata;
pub mod rebalance;
pub mod shares;
