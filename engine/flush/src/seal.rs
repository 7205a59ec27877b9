//! Sealing of write buffers, and the value logs that new buffers start with.
//!
//! **Invariants**
//! - Buffers are sealed under the commit lock.
//! - A buffer appends only to a value log that the durable state contains.

pub mod begin_value_log;
pub mod seal_buffers;
pub mod sealing;
