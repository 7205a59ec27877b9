//! `testudo completions`: prints a script for a shell's completion of verbs and options.

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use crate::{
    context::Context,
    failure::{Outcome, Verdict},
};

/// Arguments of `testudo completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArguments {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(context: &mut Context, arguments: &CompletionsArguments, mut command: Command) -> Outcome {
    // Not directly to the console: the library panics if a write fails.
    let mut script = Vec::new();
    generate(arguments.shell, &mut command, "testudo", &mut script);
    context.console.write(&script)?;
    Ok(Verdict::Fine)
}
