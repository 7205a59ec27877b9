//! Simulation tests: every layer of reliability tests as a function.
//!
//! A [`Layer`] is run in three ways: short by `cargo test -p testudo-sim`, long by the program `testudo-sim`,
//! and in-process by whoever plants bugs and wants to know whether they are seen. All take their stores from
//! [`testudo_testkit::configuration`], so that a new tree is one line there and is tested by all layers.
//!
//! **Invariants**
//! - A layer returns its first failure with the command that replays it; it does not panic for one.
//! - A run of one seed and one configuration does not depend on how much else is run, nor on threads.

mod layer;
pub mod layers;
mod sweep;

pub use layer::{Amount, Layer, LayerFailure, LayerReport, Limits};
pub use layers::LAYERS;
