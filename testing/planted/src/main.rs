//! The command behind `cargo run -p xtask -- planted`: runs test layers against deliberately planted bugs.
//!
//! ```text
//! main.rs -> catalogue.rs (the bugs, and the layers that must catch them)
//!         -> campaign.rs (a process for each bug and layer, the table)
//!            -> trial.rs (one layer, in such a process)
//!            -> test_file.rs (a file of tests, in place of a layer)
//!         -> absence.rs (checks that a release program contains none of them)
//! ```
//!
//! **Invariants**
//! - Exit code 0: the control run found nothing and every bug was caught; 1: not so; 2: could not run.

mod absence;
mod campaign;
mod catalogue;
mod test_file;
mod trial;

use std::{path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if !cfg!(testudo_planted) {
        eprintln!("built without bugs; run: cargo run -p xtask -- planted");
        return ExitCode::from(2);
    }
    let outcome = match arguments[..] {
        ["list"] => {
            for bug in catalogue::BUGS {
                println!("{:<30} {} [{}]", bug.name, bug.effect, bug.seen_by.join(", "));
            }
            Ok(true)
        }
        // Test targets that have to be built for the named bugs.
        ["targets", ref names @ ..] => campaign::targets(names).map(|targets| {
            targets.iter().for_each(|target| println!("{target}"));
            true
        }),
        ["absent", program] => absence::check(program),
        ["trial", layer, seconds] => trial::run(layer, seconds),
        ["--schedules", program, ref rest @ ..] => {
            let (programs, names) = campaign::programs(&PathBuf::from(program), rest);
            programs.and_then(|programs| campaign::run(&programs, names))
        }
        _ => {
            eprintln!(
                "usage: list | targets [NAME …] | absent PROGRAM | \
                 --schedules PROGRAM [--test TARGET PROGRAM …] [--without-control] [--one-in=N [--seed=S]] \
                 [NAME …]"
            );
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("could not run: {error}");
            ExitCode::from(2)
        }
    }
}
