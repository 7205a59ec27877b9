//! Operation generator, model and runner that every test layer shares.
//!
//! A [`Script`] is a list of [`op::Op`]s, random from a [`Profile`] and a seed or written by hand. The
//! [`Runner`] performs it on a store over a machine in memory, that can lose power at any instant, and on the
//! [`model::Model`], and compares every answer. A [`Campaign`] runs a seed and
//! makes a failing script small. The layers of tests that are made of these are in `testing/sim`.
//!
//! **Invariants**
//! - One seed, one run: nothing here asks a clock, an address or a hash table for an order.
//! - The runner sees the faults that [`log_store`] plants; a harness that has gone blind fails its own tests.

pub mod busy_store;
pub mod campaign;
pub mod configuration;
pub mod engine_store;
mod generator;
pub mod log_store;
pub mod model;
pub mod op;
pub mod operator;
mod planted_names;
mod profile;
mod recipe;
mod runner;
mod script;
mod shrink;
pub mod state;
pub mod store;

pub use campaign::Campaign;
pub use generator::Generator;
pub use planted_names::planted_names;
pub use profile::{Profile, ValueSizes, Weights};
pub use recipe::{Key, Value};
pub use runner::{Failure, Overlay, Report, Rules, Runner, read_state};
pub use script::Script;
pub use shrink::shrink;
