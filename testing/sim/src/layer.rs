//! A test layer, its limits and its report.
//!
//! **Invariants**
//! - [`Limits::default`] is the short form, or the part of it that [`Share`] selects.
//! - A failure names its layer, and its configuration and seed if any, so that one command replays it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use testudo_base::num::{u64_of, usize_of};
use testudo_share::Share;
use testudo_testkit::{Report, configuration::Configuration};

/// One kind of test.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Its name, one word.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Unit of `--count`, as a key of the report; `None` if the layer covers a fixed set of cases.
    pub unit: Option<&'static str>,
    /// Runs the layer.
    pub run: fn(&Limits) -> Result<LayerReport, LayerFailure>,
}

/// Amount of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Amount {
    /// The amount that tests run.
    #[default]
    Short,
    /// This many of the layer's unit.
    Count(u64),
    /// New seeds until the time is up; a layer with a fixed set of cases stops then at the latest.
    Time(Duration),
}

/// Limits and selection of a run.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Amount of work.
    pub amount: Amount,
    /// Part of the short form.
    pub share: Share,
    /// A single seed: a replay.
    pub seed: Option<u64>,
    /// A single configuration, or those of one tree, such as `turtle-small/crash` or `turtle-small`.
    pub configuration: Option<String>,
    /// Threads that share the work.
    pub threads: usize,
    /// Completed units of the layer, for progress display.
    pub done: Arc<AtomicU64>,
}

impl Default for Limits {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(16));
        let share = Share::from_environment();
        Self { amount: Amount::Short, share, seed: None, configuration: None, threads, done: Arc::default() }
    }
}

impl Limits {
    /// Returns the configurations to run.
    pub fn select(&self, configurations: Vec<Configuration>) -> Vec<Configuration> {
        configurations.into_iter().filter(|configuration| self.selects(&configuration.name)).collect()
    }

    /// Whether a configuration is selected.
    pub fn selects(&self, name: &str) -> bool {
        let Some(wanted) = &self.configuration else { return true };
        name == wanted || name.split_once('/').is_some_and(|(tree, _)| tree == wanted)
    }

    /// Returns the amount in units: `short` in the short form, unlimited if time is the limit.
    pub(crate) fn count_or(&self, short: u64) -> u64 {
        match self.amount {
            Amount::Short => short,
            Amount::Count(count) => count,
            Amount::Time(_) => u64::MAX,
        }
    }

    /// Same as [`Self::count_or`], but with this run's share of `short`.
    pub(crate) fn share_or(&self, short: u64) -> u64 {
        self.count_or(self.share.of(short))
    }

    /// Length of a script: in the short form the share of `whole`. A shorter script is a prefix of the longer
    /// one with the same seed.
    pub(crate) fn script_length(&self, whole: usize) -> usize {
        if self.is_tenth() { usize_of(self.share.of(u64_of(whole))) } else { whole }
    }

    /// Sampling interval of cases: `whole` in the short form, larger in its tenth, 1 otherwise.
    pub(crate) fn one_in(&self, whole: u64) -> u64 {
        if self.amount == Amount::Short && self.seed.is_none() { self.share.one_in(whole) } else { 1 }
    }

    /// Returns all cases, or, in a tenth of the short form, one in `every`.
    pub(crate) fn some_of<T>(
        &self,
        all: impl IntoIterator<Item = T>,
        every: usize,
    ) -> impl Iterator<Item = T> {
        all.into_iter().step_by(if self.is_tenth() { every } else { 1 })
    }

    /// Whether only a tenth of the short form is run.
    pub(crate) fn is_tenth(&self) -> bool {
        self.amount == Amount::Short && self.share == Share::Tenth
    }

    pub(crate) fn tick(&self, count: u64) {
        self.done.fetch_add(count, Ordering::Relaxed);
    }
}

/// Counters of a layer's run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerReport {
    /// Counts by name.
    pub counts: BTreeMap<String, u64>,
    /// Reason that the layer was not run, if any.
    pub not_run: Option<String>,
    /// First fresh seed that the run tried, if any.
    pub fresh_seeds_from: Option<u64>,
}

impl LayerReport {
    /// Returns a count; zero if missing.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Adds to a count.
    pub fn add(&mut self, name: impl Into<String>, count: u64) {
        if count > 0 {
            *self.counts.entry(name.into()).or_default() += count;
        }
    }

    /// Adds all counts of another report.
    pub fn merge(&mut self, other: Self) {
        other.counts.into_iter().for_each(|(name, count)| self.add(name, count));
        self.not_run = self.not_run.take().or(other.not_run);
        self.fresh_seeds_from = self.fresh_seeds_from.or(other.fresh_seeds_from);
    }
}

impl From<Report> for LayerReport {
    fn from(report: Report) -> Self {
        let mut counts = Self::default();
        let all = [
            ("ops", report.ops),
            ("reopens", report.reopens),
            ("kills", report.kills),
            ("crash images", report.crash_images),
            ("crashes in recovery", report.nested_images),
            ("crashes within a call", report.armed_images),
            ("crashes in mid-move", report.moving_images),
            ("crashes with replaced pages", report.replaced_images),
            ("unsynced commits lost", report.lost_commits),
            ("unsynced commits kept", report.kept_commits),
            ("background steps", report.steps),
            ("errors tolerated", report.tolerated_errors),
        ];
        all.into_iter().for_each(|(name, count)| counts.add(name, u64_of(count)));
        counts
    }
}

impl fmt::Display for LayerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.not_run {
            writeln!(f, "NOT RUN: {reason}")?;
        }
        if let Some(seed) = self.fresh_seeds_from {
            writeln!(f, "fresh seeds from {seed}")?;
        }
        self.counts.iter().try_for_each(|(name, count)| writeln!(f, "{count:>12}  {name}"))
    }
}

/// A wrong answer, a panic, or insufficient coverage.
#[derive(Clone, Debug)]
pub struct LayerFailure {
    /// The layer.
    pub layer: &'static str,
    /// The configuration, if one was run.
    pub configuration: Option<String>,
    /// The seed, if any.
    pub seed: Option<u64>,
    /// Whether scripts had the length of a tenth of the short form.
    pub is_tenth: bool,
    /// Description of the failure, with the minimized script if any.
    pub message: String,
}

impl LayerFailure {
    /// Returns the command that replays the failure.
    pub fn replay(&self) -> String {
        let mut command = format!("testudo-sim {}", self.layer);
        if let Some(seed) = self.seed {
            command += &format!(" --seed {seed}");
        }
        if let Some(configuration) = &self.configuration {
            command += &format!(" --configuration {configuration}");
        }
        if self.is_tenth {
            command += " --tenth";
        }
        command
    }
}

impl fmt::Display for LayerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nreplay with: {}", self.message.trim_end(), self.replay())
    }
}

impl std::error::Error for LayerFailure {}

#[cfg(test)]
mod tests;
