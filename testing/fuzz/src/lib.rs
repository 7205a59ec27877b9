//! Fuzz targets as plain functions of bytes, and a driver that feeds them on a stable compiler.
//!
//! A target takes any bytes and panics if one of its invariants is violated; errors of the store are accepted
//! answers. [`Mutator`] derives inputs from seeds; the seeds are generated from real stores. Checksummed data
//! is sealed again, so that hostile content reaches the code behind the checksums.
//!
//! `mutate → Target::run → (failure: shrink → file → replay)`
//!
//! **Invariants**
//! - An input determines the outcome: no order in a target depends on a clock, an address or a hash table.
//! - A run that takes more memory than its target allows is a failure, like a panic.

mod base_store;
mod counting_allocator;
mod drive;
mod exercise;
mod input;
mod mutate;
mod patch;
mod seal;
pub mod targets;

pub use counting_allocator::{CountingAllocator, peak_bytes_of};
pub use drive::{Amount, Failure, Session, run_once};
pub use mutate::Mutator;
pub use targets::{TARGETS, Target, find};
