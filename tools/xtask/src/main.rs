//! The command line of the checks. Exit codes: 0 sound, 1 findings, 2 could not check.

use std::{path::Path, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments != ["tidy"] {
        eprintln!("usage: cargo run -p xtask -- tidy");
        return ExitCode::from(2);
    }
    match xtask::tidy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")) {
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
