//! Shares the runs of a layer between threads, until the count or the time is reached or one fails.
//!
//! **Invariants**
//! - Each run is a function of its item.
//! - If a count ends the sweep, the report is that of the first items, in their order, that reach the count:
//!   it is the same with any number of threads and on any machine.
//! - Coverage of a short run is required of fixed seeds alone; fresh seeds search and do not count.
//! - After a failure no further item is started.

use std::{collections::BTreeMap, sync::Mutex, thread, time::Duration};

use testudo_base::num::u64_of;
use testudo_env::{Env, RealEnv};
use testudo_testkit::{campaign::catch_panic, configuration::Configuration};

use crate::{Amount, LayerFailure, LayerReport, Limits};

/// Result of one run: its counts, or its failure.
pub(crate) type Outcome = Result<LayerReport, LayerFailure>;

/// One tree of each size, with every policy and family.
const TREES_OF_SHORT_RUNS: [&str; 7] = [
    "turtle-narrow",
    "splinter-small",
    "turtle",
    "leveled-narrow",
    "leveled-separate",
    "lsbm-narrow",
    "treeline-narrow",
];

/// The count at which a repeating layer stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enough {
    /// Key of the report to count.
    pub(crate) unit: &'static str,
    /// Count to reach.
    pub(crate) count: u64,
}

struct Progress<I> {
    items: I,
    /// Items handed out.
    begun: usize,
    /// Sum of the first items, in their order, up to the first that has not ended.
    total: LayerReport,
    /// Number of items that `total` covers.
    covered: usize,
    /// Items that ended before an earlier one.
    ahead: BTreeMap<usize, LayerReport>,
    failure: Option<LayerFailure>,
}

impl<I: Iterator> Progress<I> {
    fn new(items: I) -> Self {
        let (total, ahead) = (LayerReport::default(), BTreeMap::new());
        Self { items, begun: 0, total, covered: 0, ahead, failure: None }
    }

    fn has(&self, enough: Option<Enough>) -> bool {
        enough.is_some_and(|enough| self.total.count(enough.unit) >= enough.count)
    }

    fn next(&mut self) -> Option<(usize, I::Item)> {
        let item = self.items.next()?;
        self.begun += 1;
        Some((self.begun - 1, item))
    }

    /// Records that item `index` succeeded.
    fn record(&mut self, index: usize, report: LayerReport, enough: Option<Enough>) {
        self.ahead.insert(index, report);
        while !self.has(enough)
            && let Some(next) = self.ahead.remove(&self.covered)
        {
            self.total.merge(next);
            self.covered += 1;
        }
    }

    /// Returns the counts of the first items that reach the count, or of all if they do not.
    fn finish(mut self, enough: Option<Enough>) -> Outcome {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if !self.has(enough) {
            self.ahead.into_values().for_each(|report| self.total.merge(report));
        }
        Ok(self.total)
    }
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
    let progress = Mutex::new(Progress::new(items.into_iter()));
    let next = || {
        let mut progress = progress.lock().expect("nothing panics under this lock");
        if progress.failure.is_some() || progress.has(enough) || clock.monotonic() >= end {
            return None;
        }
        progress.next()
    };
    thread::scope(|scope| {
        for _ in 0..limits.threads.max(1) {
            scope.spawn(|| {
                while let Some((index, item)) = next() {
                    let outcome = run(item);
                    let mut progress = progress.lock().expect("nothing panics under this lock");
                    match outcome {
                        Ok(report) => {
                            limits.tick(enough.map_or(1, |enough| report.count(enough.unit)));
                            progress.record(index, report, enough);
                        }
                        Err(failure) => {
                            let failure = LayerFailure { is_tenth: limits.is_tenth(), ..failure };
                            progress.failure.get_or_insert(failure);
                        }
                    }
                }
            });
        }
    });
    progress.into_inner().expect("nothing panics under this lock").finish(enough)
}

/// Returns the selected configurations; fails if there are none.
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
        return Err(LayerFailure { layer, configuration, seed: None, is_tenth: false, message });
    }
    Ok(chosen)
}

/// Same as [`chosen`], for layers that try every case on each tree: a short run takes one tree of each size.
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

/// Runs every configuration with successive seeds until the count is reached.
///
/// A short run takes the seeds 0, 1, 2 … for the whole amount, checks their coverage with `is_covered`, and
/// then adds fresh seeds for a fifth of it. Longer runs alternate fixed and fresh seeds. A replay takes its
/// one seed.
pub(crate) fn search(
    limits: &Limits,
    configurations: &[Configuration],
    enough: Enough,
    is_covered: impl Fn(&LayerReport) -> Result<(), LayerFailure>,
    run: impl Fn(&Configuration, u64) -> Outcome + Sync,
) -> Outcome {
    let of_seed = |seed| configurations.iter().map(move |configuration| (configuration, seed));
    let run = |(configuration, seed): (&Configuration, u64)| run(configuration, seed);
    if let Some(seed) = limits.seed {
        return sweep(limits, of_seed(seed), Some(enough), run);
    }
    let fresh = RealEnv::new().random_u64() >> 16;
    let mut report = if limits.amount == Amount::Short {
        let mut report = sweep(limits, (0..).flat_map(of_seed), Some(enough), run)?;
        is_covered(&report)?;
        let searched = Enough { count: enough.count / 5, ..enough };
        report.merge(sweep(limits, (fresh..).flat_map(of_seed), Some(searched), run)?);
        report
    } else {
        let seeds = (0..).map(|round| if round % 2 == 0 { round / 2 } else { fresh + round / 2 });
        sweep(limits, seeds.flat_map(of_seed), Some(enough), run)?
    };
    report.fresh_seeds_from = Some(fresh);
    Ok(report)
}

/// Runs `body`; an error or a panic becomes a failure of the layer.
pub(crate) fn judge<T>(
    layer: &'static str,
    configuration: Option<&str>,
    seed: Option<u64>,
    body: impl FnOnce() -> Result<T, String>,
) -> Result<T, LayerFailure> {
    let fail = |message| {
        let configuration = configuration.map(Into::into);
        LayerFailure { layer, configuration, seed, is_tenth: false, message }
    };
    match catch_panic(body) {
        Ok(outcome) => outcome.map_err(fail),
        Err(panic) => Err(fail(panic)),
    }
}

/// Fails unless the layer reached its required coverage; replays and short runs of one configuration are
/// exempt.
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
            let message = format!("only {} {name}, at least {count} required", report.count(name));
            return Err(LayerFailure { layer, configuration: None, seed: None, is_tenth: false, message });
        }
    }
    Ok(())
}

/// Same as [`require`], for layers that run a share of their short form: requires the same share of coverage.
pub(crate) fn require_share(
    layer: &'static str,
    limits: &Limits,
    report: &LayerReport,
    whole: &[(&str, u64)],
) -> Result<(), LayerFailure> {
    let least: Vec<_> = whole.iter().map(|(name, count)| (*name, limits.share.of(*count))).collect();
    require(layer, limits, report, &least)
}

/// Creates a report with one count.
pub(crate) fn counted(name: &str, count: usize) -> LayerReport {
    let mut report = LayerReport::default();
    report.add(name, u64_of(count));
    report
}

#[cfg(test)]
mod tests;
