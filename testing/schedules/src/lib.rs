//! Chosen schedules of the whole store, and the checker of the resulting histories.
//!
//! ```text
//! main.rs -> explore.rs (blocks of schedules, replay) -> scenarios.rs -> world.rs (clients) -> history.rs
//!                                                     -> check.rs -> order.rs
//! ```
//!
//! The checker is an ordinary library with ordinary tests. Scenarios exist only with `--cfg testudo_shuttle`;
//! `cargo run -p xtask -- schedules` builds and runs them (docs/decisions/0009).
//!
//! **Invariants**
//! - A block of schedules is a function of its scenario, its scheduler and its seed.

pub mod check;
#[cfg(testudo_shuttle)]
pub mod explore;
pub mod history;
pub mod order;
#[cfg(testudo_shuttle)]
mod primitives;
#[cfg(testudo_shuttle)]
mod records;
#[cfg(testudo_shuttle)]
mod scenarios;
#[cfg(testudo_shuttle)]
mod two_jobs;
#[cfg(testudo_shuttle)]
mod world;
