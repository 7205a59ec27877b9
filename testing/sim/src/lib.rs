//! Simulation tests: every layer of reliability tests as a function.
//!
//! A [`Layer`] runs in three ways: short by `cargo test -p testudo-sim`, long by the program `testudo-sim`,
//! and in-process by the runner of planted bugs, which checks that they are detected. All take their stores
//! from [`testudo_testkit::configuration`], so a new tree is one line there and all layers test it.
//!
//! **Invariants**
//! - A layer returns its first failure with its replay command; it does not panic.
//! - A run of one seed and one configuration depends neither on other runs nor on threads.

mod layer;
pub mod layers;
mod sweep;

pub use layer::{Amount, Layer, LayerFailure, LayerReport, Limits};
pub use layers::LAYERS;
