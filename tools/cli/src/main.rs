//! The command line `testudo`: one file per verb, thin over the public API of the store.
//!
//! `arguments` says what can be typed, `context` what every verb gets (machine, output, interruption),
//! `store` opens stores, `failure` turns outcomes into exit codes; each other file is a verb or a helper of one.
//!
//! **Invariants**
//! - Exit code 0: done; 1: damage found, or not found; 2: could not, with one line on standard error.
//! - A verb opens the store read-only unless its purpose is a change.
//! - A reader that goes away (`testudo scan … | head`) ends the program quietly.

mod arguments;
mod backup;
mod bench;
mod bytes_text;
mod checkpoint;
mod compact;
mod context;
mod del;
mod demo;
mod dump;
mod failure;
mod get;
mod info;
mod interruptible_input;
mod json_record;
mod keyspace;
mod line_reader;
mod load;
mod ls;
mod manifest;
mod merge;
mod moment;
mod page;
mod progress;
mod put;
mod raw_store;
mod repair;
mod salvage;
mod scan;
mod scrub;
mod size;
mod space;
mod stat;
mod store;
mod store_files;
mod table;
mod tree;
mod verify;
mod wal;
mod watched_work;

use std::process::ExitCode;

use clap::Parser;

use crate::{arguments::Arguments, context::Context};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut context = Context::new();
    let outcome =
        arguments.verb.run(&mut context).and_then(|verdict| context.console.flush().map(|()| verdict));
    failure::exit_code(outcome)
}
