//! `testudo man`: prints manual pages of the program and its verbs.

use clap::{Args, Command};
use clap_mangen::Man;

use crate::{
    context::Context,
    failure::{Failure, Outcome, Verdict},
};

/// Arguments of `testudo man`.
#[derive(Args, Debug)]
pub(crate) struct ManArguments {
    /// The verb, as in `testudo man keyspace create`; the whole program if omitted
    verb: Vec<String>,
}

/// Prints the manual page.
pub(crate) fn run(context: &mut Context, arguments: &ManArguments, mut command: Command) -> Outcome {
    // Names the pages of verbs and adds the global options to them.
    command.build();
    for word in &arguments.verb {
        let found = command.find_subcommand(word).cloned();
        command =
            found.ok_or_else(|| Failure::new(format!("there is no verb '{}'", arguments.verb.join(" "))))?;
    }
    let mut page = Vec::new();
    let rendered = Man::new(command).render(&mut page);
    rendered.map_err(|error| Failure::new(format!("cannot render the manual page: {error}")))?;
    context.console.write(&page)?;
    Ok(Verdict::Fine)
}
