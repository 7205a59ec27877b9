//! One layer of `testudo-sim` against the bug that this process was started with.
//!
//! **Invariants**
//! - The first line of the output is `caught` or `nothing`, then finished cases and seconds, then the
//!   failure, separated by tabs.
//! - Seeds are tried in order, so that the same seed catches a bug each time.

use std::{io, sync::atomic::Ordering, time::Duration};

use testudo_env::{Env, RealEnv};
use testudo_sim::{Amount, Limits, layers::find};

/// Maximum seeds of one trial.
const SEEDS_MAX: u64 = 100_000;

/// Runs `layer` until it fails or `seconds` have passed; returns whether it found nothing.
pub(crate) fn run(layer: &str, seconds: &str) -> io::Result<bool> {
    let layer = find(layer).ok_or_else(|| io::Error::other(format!("unknown layer {layer:?}")))?;
    let seconds: u64 = seconds.parse().map_err(io::Error::other)?;
    let env = RealEnv::new();
    let end = env.monotonic() + Duration::from_secs(seconds);
    let base = Limits { threads: 1, ..Limits::default() };
    let mut found = None;
    for seed in 0..SEEDS_MAX {
        let left = end.saturating_sub(env.monotonic());
        if left.is_zero() {
            break;
        }
        // A layer with a fixed set of cases has no seeds: it is run once.
        let seed = layer.unit.map(|_| seed);
        let limits = Limits { seed, amount: Amount::Time(left), ..base.clone() };
        if let Err(failure) = (layer.run)(&limits) {
            found = Some(failure);
            break;
        }
        if seed.is_none() {
            break;
        }
    }
    let taken = seconds as f64 - end.saturating_sub(env.monotonic()).as_secs_f64();
    let cases = base.done.load(Ordering::Relaxed);
    match &found {
        None => println!("nothing\t{cases}\t{taken:.1}\t"),
        Some(failure) => println!("caught\t{cases}\t{taken:.1}\t{}", failure.to_string().replace('\n', "\t")),
    }
    Ok(found.is_none())
}
