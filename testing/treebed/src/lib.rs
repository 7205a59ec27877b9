//! Test beds of trees: a tree on a file in memory, its durable state, and its expected contents.
//!
//! Tests of one family of trees use [`Bed`]; tests of trees that are made of other trees use its components.
//! The checks that every family must pass are here too.
//!
//! **Invariants**
//! - Violations are panics, as in a test.
//! - This crate knows no family of trees: tests pass theirs as a [`Family`].

#![expect(clippy::unwrap_used, reason = "a test bed is test code, where an error is a failure")]

mod backwards;
mod bed;
mod compacting;
mod conservation;
mod contents;
mod durable;
mod operands;
mod random;
mod reclaiming;
mod runs_by_age;
mod scan_reads;
mod sequential;
mod side_by_side;
mod vec_updates;

pub use backwards::Backwards;
pub use bed::{Bed, Family, JobBytes, JobInFlight};
pub use compacting::{compact_a_part, random_compactions, random_range};
pub use conservation::drops_of_random_run;
pub use contents::{Batch, Model, check_contents, entries_of, look_up, put_into, skip_tombstones};
pub use durable::{Durable, KEYSPACE, Objects, data_file, file_options, work_on};
pub use operands::{apply_operands, check_operands, operands_script};
pub use random::{random_key, random_value};
pub use reclaiming::random_reclaim_steps;
pub use runs_by_age::RunsByAge;
pub use scan_reads::reads_of_scans;
pub use sequential::sequential_script;
pub use side_by_side::SideBySide;
pub use vec_updates::VecUpdates;
