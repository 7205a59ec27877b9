//! The command line `testudo`: one file per verb, thin over the public API of the store.
//!
//! `command_line` says what can be typed, `arguments` what many verbs share, `context` what every verb gets
//! (machine, output, interruption), `store` opens stores, `inspection` inspects them, also while others
//! write them, `failure` turns outcomes into exit codes; verbs are in `verbs`, what they read and print is
//! in `input` and `output`.
//!
//! **Invariants**
//! - Exit code 0: done; 1: damage found, or what was named is not there; 2: could not, with one line on
//!   standard error.
//! - A verb opens the store read-only unless its purpose is a change.
//! - A reader that goes away (`testudo scan … | head`) ends the program quietly.

mod arguments;
mod command_line;
mod context;
mod failure;
mod input;
mod inspection;
mod output;
mod raw_store;
mod store;
mod store_files;
mod verbs;

use std::{env, ffi::OsString, process::ExitCode};

use crate::{context::Context, failure::Failure};

fn main() -> ExitCode {
    let default_dir = env::var_os("TESTUDO_DIR").filter(|dir| !dir.is_empty());
    let (arguments, json) = match command_line::parse(&env::args_os().collect::<Vec<OsString>>(), default_dir)
    {
        Ok(parsed) => parsed,
        Err(error) => error.exit(),
    };
    let mut context = Context::new(json);
    let mut outcome = arguments.verb.run(&mut context);
    if let (Err(Failure::Missing(missing, _)), true) = (&outcome, json) {
        outcome = context.console.json(&missing.document()).map(|()| failure::Verdict::Negative);
    }
    let flushed = context.console.flush();
    failure::exit_code(outcome.and_then(|verdict| flushed.map(|()| verdict)))
}
