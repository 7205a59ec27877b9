//! Fuzz targets as plain functions of bytes, and a driver that feeds them on a stable compiler.
//!
//! A target takes any bytes and panics if one of its invariants does not hold; errors of the store are
//! answers. Inputs are made from seeds by [`Mutator`]; the seeds are generated from real stores. What stands
//! under a checksum is sealed again, so that hostile content is met by the code behind the checksums.
//!
//! `mutate → Target::run → (failure: shrink → file → replay)`
//!
//! **Invariants**
//! - One input, one outcome: no target asks a clock, an address or a hash table for an order.
//! - A run that takes more memory than its target allows is a failure like a panic.

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
