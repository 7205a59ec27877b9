//! Checks of the repository itself, run by `cargo run -p xtask -- tidy` and, as a test, by `cargo test`.
//!
//! ```text
//! main.rs -> tidy.rs -> sources.rs -> every file in rules/
//!         -> schedules.rs, planted.rs, instructions.rs, costs.rs -> special_build.rs -> rustc_with_cfg.rs
//! ```
//!
//! **Invariants**
//! - No dependencies, and no network but cargo's. `tidy` only reads the checkout; `codemap` and `public-api`
//!   write one file each.
//! - Each rule is a pure function from texts to findings, so that a test can show that it catches a
//!   violation.

mod checkout;
mod finding;
mod rules;
mod runs;
mod tidy;

pub use finding::Finding;
pub use runs::costs::costs;
pub use runs::instructions::instructions;
pub use runs::planted::{planted, planted_environment};
pub use runs::rustc_with_cfg::rustc_with_cfg;
pub use runs::schedules::schedules;
pub use tidy::{tidy, write_code_map, write_public_api};
