//! Operation generator, model and runner shared by all test layers.
//!
//! A [`Script`] is a list of [`op::Op`]s, random from a [`Profile`] and a seed or written by hand. The
//! [`Runner`] runs it against the [`model::Model`] and a store on an in-memory machine that can lose power at
//! any instant, and compares every answer. A [`Campaign`] runs a seed and minimizes a failing script. The
//! test layers built from these are in `testing/sim`.
//!
//! **Invariants**
//! - A seed determines a run: no order here depends on a clock, an address or a hash table.
//! - The runner detects the faults that [`log_store`] plants; a harness that misses them fails its own tests.

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
