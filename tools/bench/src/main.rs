//! The measurements as a program of their own; `testudo bench` offers the same.

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use testudo_bench::{Context, main_with};

fn main() -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&stop);
    let installed = ctrlc::set_handler(move || {
        // The second signal means now.
        if raised.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    if let Err(error) = installed {
        eprintln!("cannot catch signals ({error}); a run that is interrupted leaves its directory behind");
    }
    main_with(std::env::args_os(), &Context::new(stop))
}
