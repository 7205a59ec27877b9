//! Command line of the checks. Exit codes: 0 valid, 1 findings, 2 the check could not run.

use std::{io, path::Path, process::ExitCode};

fn main() -> ExitCode {
    if let Some(code) = xtask::rustc_with_cfg() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match arguments.split_first().map(|(command, rest)| (command.as_str(), rest)) {
        Some(("tidy", [])) => tidy(&root),
        Some(("codemap", [])) => exit_code(xtask::write_code_map(&root)),
        Some(("public-api", [])) => exit_code(xtask::write_public_api(&root)),
        Some(("schedules", rest)) => exit_code(xtask::schedules(&root, rest)),
        Some(("planted", [only])) if only == "environment" => planted_environment(&root),
        Some(("planted", rest)) => exit_code(xtask::planted(&root, rest)),
        Some(("costs", rest)) => exit_code(xtask::costs(&root, rest)),
        Some(("instructions", rest)) => exit_code(xtask::instructions(&root, rest)),
        _ => {
            eprintln!(
                "usage: cargo run -p xtask -- tidy | codemap | public-api | \
                 schedules [--long | SCENARIO …] | \
                 planted [list | environment | absent PROGRAM | \
                 [--without-control] [--one-in=N [--seed=S]] [BUG …]] | \
                 instructions [--update] | costs [TARGET …]"
            );
            ExitCode::from(2)
        }
    }
}

fn exit_code(outcome: io::Result<bool>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("could not run: {error}");
            ExitCode::from(2)
        }
    }
}

fn planted_environment(root: &Path) -> ExitCode {
    exit_code(xtask::planted_environment(root).map(|commands| {
        print!("{commands}");
        true
    }))
}

fn tidy(root: &Path) -> ExitCode {
    match xtask::tidy(root) {
        Err(error) => {
            eprintln!("tidy could not read the checkout: {error}");
            ExitCode::from(2)
        }
        Ok(findings) if findings.is_empty() => {
            println!("tidy: nothing found");
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            for finding in &findings {
                println!("{finding}");
            }
            println!("tidy: {} findings", findings.len());
            ExitCode::FAILURE
        }
    }
}
