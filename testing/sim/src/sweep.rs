//! Shares the runs of a layer between threads, until there are enough of them, the time is up or one fails.
//!
//! **Invariants**
//! - Each run is a function of its item; which items are run may depend on the threads, how they end does not.
//! - After a failure no further item is begun.

use std::{sync::Mutex, thread, time::Duration};

use testudo_base::num::u64_of;
use testudo_env::{Env, RealEnv};
use testudo_testkit::{campaign::catch_panic, configuration::Configuration};

use crate::{Amount, LayerFailure, LayerReport, Limits};

/// What one run gives: its counts, or what was wrong.
pub(crate) type Outcome = Result<LayerReport, LayerFailure>;

/// One of each size, with both policies.
const TREES_OF_SHORT_RUNS: [&str; 3] = ["turtle-narrow", "splinter-small", "turtle"];

/// Stops the layers that repeat themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enough {
    /// Key of the report that is counted.
    pub(crate) unit: &'static str,
    /// How many of it are enough.
    pub(crate) count: u64,
}

struct Progress<I> {
    items: I,
    total: LayerReport,
    failure: Option<LayerFailure>,
}

/// Runs `items` on the threads of the limits.
pub(crate) fn sweep<T: Send>(
    limits: &Limits,
    items: impl IntoIterator<Item = T, IntoIter: Send>,
    enough: Option<Enough>,
    run: impl Fn(T) -> Outcome + Sync,
) -> Outcome {
    let clock = RealEnv::new();
    let end = match limits.amount {
        Amount::Time(time) => clock.monotonic().saturating_add(time),
        _ => Duration::MAX,
    };
    let progress =
        Mutex::new(Progress { items: items.into_iter(), total: LayerReport::default(), failure: None });
    let next = || {
        let mut progress = progress.lock().expect("nothing panics under this lock");
        let is_enough = enough.is_some_and(|enough| progress.total.count(enough.unit) >= enough.count);
        if progress.failure.is_some() || is_enough || clock.monotonic() >= end {
            return None;
        }
        progress.items.next()
    };
    thread::scope(|scope| {
        for _ in 0..limits.threads.max(1) {
            scope.spawn(|| {
                while let Some(item) = next() {
                    let outcome = run(item);
                    let mut progress = progress.lock().expect("nothing panics under this lock");
                    match outcome {
                        Ok(report) => {
                            limits.tick(enough.map_or(1, |enough| report.count(enough.unit)));
                            progress.total.merge(report);
                        }
                        Err(failure) => {
                            progress.failure.get_or_insert(failure);
                        }
                    }
                }
            });
        }
    });
    let progress = progress.into_inner().expect("nothing panics under this lock");
    progress.failure.map_or(Ok(progress.total), Err)
}

/// The configurations that the limits select; a failure if there are none.
pub(crate) fn chosen(
    layer: &'static str,
    limits: &Limits,
    all: Vec<Configuration>,
) -> Result<Vec<Configuration>, LayerFailure> {
    let names: Vec<_> = all.iter().map(|configuration| configuration.name.clone()).collect();
    let chosen = limits.select(all);
    if chosen.is_empty() {
        let message = format!("the layer has no such configuration; it has {}", names.join(", "));
        let configuration = limits.configuration.clone();
        return Err(LayerFailure { layer, configuration, seed: None, message });
    }
    Ok(chosen)
}

/// As [`chosen`], for layers that go through everything there is for each tree: a short run takes one tree of each size.
pub(crate) fn chosen_by_size(
    layer: &'static str,
    limits: &Limits,
    all: Vec<Configuration>,
) -> Result<Vec<Configuration>, LayerFailure> {
    let mut chosen = chosen(layer, limits, all)?;
    if limits.amount == Amount::Short && limits.configuration.is_none() {
        let is_taken = |configuration: &Configuration| {
            TREES_OF_SHORT_RUNS.iter().any(|tree| configuration.name.split('/').next() == Some(*tree))
        };
        chosen.retain(is_taken);
    }
    Ok(chosen)
}

/// Every configuration with every seed: the seed of a replay alone, else 0, a fresh one, 1, the next and so on.
pub(crate) fn seeded<'a>(
    limits: &Limits,
    configurations: &'a [Configuration],
) -> Box<dyn Iterator<Item = (&'a Configuration, u64)> + Send + 'a> {
    if let Some(seed) = limits.seed {
        return Box::new(configurations.iter().map(move |configuration| (configuration, seed)));
    }
    let fresh = RealEnv::new().random_u64() >> 16;
    let seeds = (0_u64..).map(move |round| if round % 2 == 0 { round / 2 } else { fresh + round / 2 });
    Box::new(seeds.flat_map(|seed| configurations.iter().map(move |configuration| (configuration, seed))))
}

/// Runs `body`; an error or a panic becomes a failure of the layer.
pub(crate) fn judge<T>(
    layer: &'static str,
    configuration: Option<&str>,
    seed: Option<u64>,
    body: impl FnOnce() -> Result<T, String>,
) -> Result<T, LayerFailure> {
    let fail = |message| LayerFailure { layer, configuration: configuration.map(Into::into), seed, message };
    match catch_panic(body) {
        Ok(outcome) => outcome.map_err(fail),
        Err(panic) => Err(fail(panic)),
    }
}

/// Fails unless the layer reached what it is for; replays and short runs of one configuration are let off.
pub(crate) fn require(
    layer: &'static str,
    limits: &Limits,
    report: &LayerReport,
    least: &[(&str, u64)],
) -> Result<(), LayerFailure> {
    if limits.seed.is_some() || limits.configuration.is_some() || limits.amount != Amount::Short {
        return Ok(());
    }
    for (name, count) in least {
        if report.count(name) < *count {
            let message = format!("only {} {name}, at least {count} were to be reached", report.count(name));
            return Err(LayerFailure { layer, configuration: None, seed: None, message });
        }
    }
    Ok(())
}

/// One report with one count.
pub(crate) fn counted(name: &str, count: usize) -> LayerReport {
    let mut report = LayerReport::default();
    report.add(name, u64_of(count));
    report
}

#[cfg(test)]
mod tests;
