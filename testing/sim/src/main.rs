//! The program `testudo-sim`: runs a test layer long, or replays one of its seeds.
//!
//! **Invariants**
//! - Exit code 0: all answers were right; 1: a wrong answer, with its replay command; 2: the layer could not
//!   be run, or was not run.
//! - Standard output holds results only; progress goes to standard error.

use std::{
    fmt::Write,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clap::Parser;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use testudo_env::{Env, RealEnv};
use testudo_share::Share;
use testudo_sim::{Amount, LAYERS, Layer, LayerFailure, LayerReport, Limits, layers::find};

/// Interval at which the progress line is redrawn.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, Parser)]
#[command(
    name = "testudo-sim",
    version,
    about = "Run the layers of Testudo's reliability tests, long, or replay a failure",
    after_help = "Exit codes: 0 passed; 1 a wrong answer; 2 could not run, or not run.\n\
                  Without --count and --seconds a layer runs its short form."
)]
struct Arguments {
    /// The layer, `all`, or `list` to list all layers
    layer: String,
    /// Run this seed only, to replay a failure
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run this configuration only, such as turtle/crash, or those of this tree, such as turtle
    #[arg(long, value_name = "NAME")]
    configuration: Option<String>,
    /// Run until this much is done, in the unit that `list` shows
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    count: Option<u64>,
    /// Run new seeds until the time is up
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Threads that share the work [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Run only a tenth of the short form, as the README's test command does, to replay its failures
    #[arg(long)]
    tenth: bool,
    /// Results as JSON lines
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn limits(&self) -> Limits {
        let amount = match (self.count, self.seconds) {
            (Some(count), _) => Amount::Count(count),
            (None, Some(seconds)) => Amount::Time(Duration::from_secs(seconds)),
            (None, None) => Amount::Short,
        };
        let defaults = Limits::default();
        Limits {
            amount,
            share: if self.tenth { Share::Tenth } else { Share::Whole },
            seed: self.seed,
            configuration: self.configuration.clone(),
            threads: self.threads.unwrap_or(defaults.threads).max(1),
            ..defaults
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let layers: Vec<&Layer> = match arguments.layer.as_str() {
        "list" => return list(arguments.json),
        "all" => LAYERS.iter().collect(),
        name => match find(name) {
            Some(layer) => vec![layer],
            None => {
                eprintln!("testudo-sim: unknown layer `{name}`; `testudo-sim list` lists all layers");
                return ExitCode::from(2);
            }
        },
    };
    let mut code = 0;
    for layer in layers {
        code = code.max(run(layer, &arguments));
    }
    ExitCode::from(code)
}

fn list(json: bool) -> ExitCode {
    for layer in LAYERS {
        if json {
            let line = serde_json::json!({"layer": layer.name, "about": layer.about, "unit": layer.unit});
            println!("{line}");
        } else {
            println!("{:<12} {} [{}]", layer.name, layer.about, layer.unit.unwrap_or("fixed cases"));
        }
    }
    ExitCode::SUCCESS
}

/// Runs one layer and returns the exit code.
fn run(layer: &Layer, arguments: &Arguments) -> u8 {
    let env = RealEnv::new();
    let limits = arguments.limits();
    let started = env.monotonic();
    let watch = Watch::start(&env, layer, &limits);
    let outcome = (layer.run)(&limits);
    drop(watch);
    let seconds = env.monotonic().saturating_sub(started).as_secs_f64();
    if arguments.json {
        println!("{}", as_json(layer, seconds, &outcome));
    } else {
        print!("{}", as_text(layer, seconds, &outcome));
    }
    match outcome {
        Ok(report) if report.not_run.is_some() => 2,
        Ok(_) => 0,
        Err(_) => 1,
    }
}

fn as_json(layer: &Layer, seconds: f64, outcome: &Result<LayerReport, LayerFailure>) -> serde_json::Value {
    match outcome {
        Ok(report) => serde_json::json!({
            "layer": layer.name,
            "right": report.not_run.is_none(),
            "not_run": report.not_run,
            "fresh_seeds_from": report.fresh_seeds_from,
            "seconds": seconds,
            "counts": report.counts,
        }),
        Err(failure) => serde_json::json!({
            "layer": layer.name,
            "right": false,
            "seconds": seconds,
            "seed": failure.seed,
            "configuration": failure.configuration,
            "message": failure.message,
            "replay": failure.replay(),
        }),
    }
}

fn as_text(layer: &Layer, seconds: f64, outcome: &Result<LayerReport, LayerFailure>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match outcome {
        Ok(report) => {
            let verdict = if report.not_run.is_some() { "not run" } else { "passed" };
            write!(text, "{}: {verdict}, {seconds:.1} s\n{report}", layer.name)
        }
        Err(failure) => writeln!(text, "{}: WRONG after {seconds:.1} s\n{failure}", layer.name),
    };
    text
}

/// Draws the progress line until it is dropped.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<Box<dyn testudo_env::Thread>>,
}

impl Watch {
    fn start(env: &RealEnv, layer: &Layer, limits: &Limits) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, done) = (Arc::clone(&stop), Arc::clone(&limits.done));
        let unit = layer.unit.unwrap_or("items");
        let bar = match limits.amount {
            Amount::Count(count) => ProgressBar::new(count),
            Amount::Short | Amount::Time(_) => ProgressBar::new_spinner(),
        };
        let measurements = match limits.amount {
            Amount::Count(_) => "[{bar:30}] {human_pos}/{human_len} {msg}, {rate}/s, {eta} left",
            Amount::Short | Amount::Time(_) => "{spinner} {elapsed} {human_pos} {msg}, {rate}/s",
        };
        if let Ok(style) = ProgressStyle::with_template(&format!("{} {measurements}", layer.name)) {
            // A failed write to the terminal only garbles the line.
            let rate = |state: &ProgressState, out: &mut dyn Write| {
                let _ = write!(out, "{:.0}", state.per_sec());
            };
            bar.set_style(style.with_key("rate", rate).progress_chars("=> "));
        }
        bar.set_message(unit);
        let sleeper = RealEnv::new();
        let body = move || {
            while !stopped.load(Ordering::Relaxed) {
                sleeper.sleep(LOOK_EVERY);
                bar.set_position(done.load(Ordering::Relaxed));
                bar.tick();
            }
            bar.finish_and_clear();
        };
        // Without a thread the work continues without a progress line.
        let thread = env.spawn("progress", Box::new(body)).ok();
        Self { stop, thread }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there was already printed and affects the line only.
            let _ = thread.join();
        }
    }
}
