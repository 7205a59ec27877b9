//! The command behind `cargo run -p xtask -- schedules`. Exit codes: 0: no schedule failed; 1: a schedule
//! failed; 2: could not run.

use std::process::ExitCode;

#[cfg(testudo_shuttle)]
fn main() -> ExitCode {
    explorer::main()
}

#[cfg(not(testudo_shuttle))]
fn main() -> ExitCode {
    eprintln!("built with threads of the operating system; run: cargo run -p xtask -- schedules");
    ExitCode::from(2)
}

#[cfg(testudo_shuttle)]
mod explorer {
    use std::process::ExitCode;

    use testudo_schedules::explore::{BLOCK, Scheduler, names, run_block};

    /// Scenarios, schedulers and seeds to run.
    struct Request {
        scenarios: Vec<String>,
        schedulers: Vec<Scheduler>,
        /// Seeds of the blocks.
        seeds: Vec<u64>,
    }

    pub(crate) fn main() -> ExitCode {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        if arguments == ["list"] {
            names().for_each(|name| println!("{name}"));
            return ExitCode::SUCCESS;
        }
        match read(&arguments) {
            Some(request) => run(&request),
            None => {
                eprintln!("usage: list | SCENARIO [--scheduler random|pct] [--seed N] [--schedules N]");
                ExitCode::from(2)
            }
        }
    }

    fn read(arguments: &[String]) -> Option<Request> {
        let (scenario, rest) = arguments.split_first()?;
        let mut request = Request {
            scenarios: vec![scenario.clone()],
            schedulers: vec![Scheduler::Random, Scheduler::Pct],
            seeds: Vec::new(),
        };
        let (mut first, mut blocks) = (0, 20_u64);
        for pair in rest.chunks(2) {
            let [name, value] = pair else { return None };
            match name.as_str() {
                "--scheduler" => request.schedulers = vec![Scheduler::of(value)?],
                "--seed" => (first, blocks) = (value.parse().ok()?, 1),
                "--first-seed" => first = value.parse().ok()?,
                "--schedules" => blocks = value.parse::<u64>().ok()?.div_ceil(BLOCK as u64),
                _ => return None,
            }
        }
        let per_scheduler = if request.schedulers.len() == 2 { blocks.div_ceil(2) } else { blocks };
        request.seeds = (first..first + per_scheduler).collect();
        Some(request)
    }

    fn run(request: &Request) -> ExitCode {
        for scenario in &request.scenarios {
            let started = testudo_env::RealEnv::new();
            let mut count = 0;
            for &seed in &request.seeds {
                for &scheduler in &request.schedulers {
                    match run_block(scenario, scheduler, seed, BLOCK) {
                        None => {
                            eprintln!("unknown scenario {scenario:?}");
                            return ExitCode::from(2);
                        }
                        Some(Ok(schedules)) => count += schedules,
                        Some(Err((number, reason))) => {
                            println!(
                                "{scenario}: after {} schedules, schedule {number} of the block fails: \
                                 {reason}\nreplay with\n  cargo run -q -p xtask -- schedules {scenario} \
                                 --scheduler {} --seed {seed}",
                                count + number,
                                scheduler.name()
                            );
                            return ExitCode::FAILURE;
                        }
                    }
                }
            }
            let seconds = testudo_env::Env::monotonic(&*started).as_secs_f64();
            println!("{scenario}: {count} schedules, {seconds:.1} s");
        }
        ExitCode::SUCCESS
    }
}
