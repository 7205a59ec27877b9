//! The command line `testudo`: one file per verb, thin over the public API of the store.
//!
//! `command_line` defines verbs and global flags, `arguments` shared arguments, and `context` the
//! environment, output and interruption. `store` opens stores, `inspection` inspects them even while another
//! process writes, and `failure` turns outcomes into exit codes. Verbs are in `verbs`; their input and output
//! is in `input` and `output`.
//!
//! **Invariants**
//! - Exit code 0: success; 1: damage found, or a named thing does not exist; 2: failure, with one line on
//!   standard error. A check of a thing that does not exist is a failure.
//! - A verb opens the store read-only unless its purpose is a change.
//! - A reader that closes the pipe (`testudo scan … | head`) ends the program quietly.

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

use crate::{context::Context, failure::Failure, output::help_text};

fn main() -> ExitCode {
    let default_dir = env::var_os("TESTUDO_DIR").filter(|dir| !dir.is_empty());
    let (arguments, json) = match command_line::parse(&env::args_os().collect::<Vec<OsString>>(), default_dir)
    {
        Ok(parsed) => parsed,
        Err(error) => return help_text::answer(&error),
    };
    let mut context = Context::new(json);
    let is_check = arguments.verb.is_check();
    let mut outcome = arguments.verb.run(&mut context);
    if is_check {
        outcome = outcome.map_err(Failure::of_check);
    }
    let document = outcome.as_ref().err().and_then(Failure::document).filter(|_| json);
    if let Some(document) = document
        && let Err(failure) = context.console.json(&document)
    {
        outcome = Err(failure);
    }
    let flushed = context.console.flush();
    match (outcome, flushed) {
        // The document reports it.
        (Err(Failure::Missing(..)), Ok(())) if json => ExitCode::from(1),
        (Err(Failure::Missing(..) | Failure::Damaged(..)), Err(unsaid)) if json => {
            failure::exit_code(Err(unsaid))
        }
        // The verb's own failure takes precedence over a failed flush.
        (Err(failure), _) => failure::exit_code(Err(failure)),
        (outcome, flushed) => failure::exit_code(outcome.and_then(|verdict| flushed.map(|()| verdict))),
    }
}
