//! The benchmarks as a stand-alone program; `testudo bench` offers the same commands.

use std::process::ExitCode;

use testudo_bench::{Context, main_with, stop_on_signals};

fn main() -> ExitCode {
    main_with(std::env::args_os(), &Context::new(stop_on_signals()))
}
