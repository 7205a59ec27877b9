//! Damaged files: every byte with two masks, every truncation, pages and whole files in wrong places. Every read
//! gives the right answer or an error that names the file, never a wrong answer, never a panic.
//!
//! In stretches without content (space reserved ahead, holes) all sectors are alike, and a sample of them is tried.
//!
//! **Invariants**
//! - Each damage is done to a fresh copy of the store; damages do not meet.
//! - A damage that is not noticed must not have changed an answer.

mod damage;
mod subject;

use testudo_testkit::configuration::crash_configurations;

use self::{
    damage::{Damage, damages},
    subject::{Subject, subjects},
};
use crate::{
    LayerFailure, LayerReport, Limits,
    sweep::{Outcome, chosen, judge, require, sweep},
};

pub(crate) const NAME: &str = "corruption";

/// Damages of one item of the sweep.
const BATCH: usize = 256;

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen(NAME, limits, crash_configurations())?;
    let mut all = Vec::new();
    for configuration in &configurations {
        let subjects = judge(NAME, Some(&configuration.name), None, || subjects(configuration))?;
        all.extend(subjects.into_iter().map(|subject| {
            let damages = damages(&subject);
            (subject, damages)
        }));
    }
    // Each batch is spread over all files, and the subjects take turns, so that a run that ends early has seen something of
    // everything.
    let batch_count = |damages: &[Damage]| damages.len().div_ceil(BATCH);
    let rounds = all.iter().map(|(_, damages)| batch_count(damages)).max().unwrap_or(0);
    let items = (0..rounds).flat_map(|first| {
        all.iter().filter(move |(_, damages)| first < batch_count(damages)).map(move |(subject, damages)| {
            (subject, damages.iter().skip(first).step_by(batch_count(damages)))
        })
    });
    let report = sweep(limits, items, None, |(subject, batch)| run_batch(subject, batch))?;
    let least =
        [("flipped", 10_000), ("cut", 1_000), ("misplaced", 100), ("refused", 10_000), ("read right", 1_000)];
    require(NAME, limits, &report, &least)?;
    Ok(report)
}

fn run_batch<'a>(
    subject: &Subject,
    batch: impl Iterator<Item = &'a Damage>,
) -> Result<LayerReport, LayerFailure> {
    let mut report = LayerReport::default();
    for damage in batch {
        let is_right = judge(NAME, Some(&subject.configuration), None, || {
            let outcome = testudo_testkit::campaign::catch_panic(|| subject.read_damaged(damage));
            let describe = |wrong| format!("{}, {}: {wrong}", subject.state, damage.describe(subject));
            outcome.unwrap_or_else(Err).map_err(describe)
        })?;
        report.add(damage.kind(), 1);
        report.add(if is_right { "read right" } else { "refused" }, 1);
        report.add("damages", 1);
    }
    Ok(report)
}
