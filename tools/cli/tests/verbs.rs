//! End-to-end tests of the built program: output, exit codes, and files left behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "verbs/program.rs"]
mod program;

#[path = "verbs/bad_input.rs"]
mod bad_input;
#[path = "verbs/beside_writer.rs"]
mod beside_writer;
#[path = "verbs/change.rs"]
mod change;
#[path = "verbs/copies.rs"]
mod copies;
#[path = "verbs/counts.rs"]
mod counts;
#[path = "verbs/damage.rs"]
mod damage;
#[path = "verbs/demo.rs"]
mod demo;
#[path = "verbs/dumps.rs"]
mod dumps;
#[path = "verbs/exit_codes.rs"]
mod exit_codes;
#[path = "verbs/formats.rs"]
mod formats;
#[path = "verbs/inspection.rs"]
mod inspection;
#[path = "verbs/interruption.rs"]
mod interruption;
#[path = "verbs/loading.rs"]
mod loading;
#[path = "verbs/removal.rs"]
mod removal;
#[path = "verbs/repair.rs"]
mod repair;
#[path = "verbs/salvage.rs"]
mod salvage;
#[path = "verbs/salvage_cases.rs"]
mod salvage_cases;
#[path = "verbs/scrub.rs"]
mod scrub;
#[path = "verbs/typing.rs"]
mod typing;
#[path = "verbs/without_lock_file.rs"]
mod without_lock_file;
