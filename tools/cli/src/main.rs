//! The command line `testudo`: one file per verb, thin over the public API of the store.
//!
//! `command_line` says what can be typed, `arguments` what many verbs share, `context` what every verb gets
//! (machine, output, interruption), `store` opens stores, `inspection` inspects them, also while others
//! write them, `failure` turns outcomes into exit codes; verbs are in `verbs`, what they read and print is
//! in `input` and `output`.
//!
//! **Invariants**
//! - Exit code 0: done; 1: damage found, or what was named is not there; 2: could not, with one line on
//!   standard error. A check of what is not there could not be made.
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
        // The document says it.
        (Err(Failure::Missing(..)), Ok(())) if json => ExitCode::from(1),
        (Err(Failure::Missing(..) | Failure::Damaged(..)), Err(unsaid)) if json => {
            failure::exit_code(Err(unsaid))
        }
        // What the verb could not say is no worse than why it failed.
        (Err(failure), _) => failure::exit_code(Err(failure)),
        (outcome, flushed) => failure::exit_code(outcome.and_then(|verdict| flushed.map(|()| verdict))),
    }
}
