//! Damaged files: bytes flipped with two masks, truncations, misplaced pages and files. Every read gives the
//! right answer or an error that names the file, never a wrong answer or a panic.
//!
//! A short run damages every byte of headers and of one page of each kind, and a sample of the others; a long
//! run flips every bit. In pages without content (space reserved ahead, holes) all bytes are equal, so one
//! byte of each is tried.
//!
//! **Invariants**
//! - Each damage is applied alone, to a fresh copy of the store.
//! - An undetected damage must not change any answer.

mod damage;
mod subject;

use std::time::Duration;

use testudo_base::num::usize_of;
use testudo_testkit::configuration::crash_configurations;

use self::{
    damage::{Damage, Kinds, every_bit_and_length, pages_and_files, sample_of_bytes_and_lengths},
    subject::Subject,
};
use crate::{
    Amount, LayerFailure, LayerReport, Limits,
    sweep::{Outcome, chosen_by_size, judge, require, require_share, sweep},
};

pub(crate) const NAME: &str = "corruption";

/// Damages per item of the sweep.
const BATCH: usize = 256;

/// Runs at least this long flip every bit.
const LONG: Duration = Duration::from_secs(600);

/// Batches of damage. Each is spread over all files, and subjects alternate, so that a run that ends early
/// has covered a part of everything.
fn batches<'a>(
    all: &'a [(&'a Subject, Vec<Damage>)],
) -> impl Iterator<Item = (&'a Subject, impl Iterator<Item = &'a Damage>)> {
    let batch_count = |damages: &[Damage]| damages.len().div_ceil(BATCH);
    let rounds = all.iter().map(|(_, damages)| batch_count(damages)).max().unwrap_or(0);
    (0..rounds).flat_map(move |first| {
        all.iter().filter(move |(_, damages)| first < batch_count(damages)).map(move |(subject, damages)| {
            (*subject, damages.iter().skip(first).step_by(batch_count(damages)))
        })
    })
}

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen_by_size(NAME, limits, crash_configurations())?;
    let is_long = match limits.amount {
        Amount::Short => false,
        Amount::Count(_) => true,
        Amount::Time(time) => time >= LONG,
    };
    let mut subjects = Vec::new();
    for configuration in &configurations {
        subjects.extend(judge(NAME, Some(&configuration.name), None, || subject::subjects(configuration))?);
    }
    let pages_and_files: Vec<_> =
        subjects.iter().map(|subject| (subject, pages_and_files(subject))).collect();
    // Header fields are few and distinct: they come before the many other bytes.
    let mut kinds = Kinds::default();
    let mut bytes_and_lengths = |subject| {
        if is_long { every_bit_and_length(subject) } else { sample_of_bytes_and_lengths(subject, &mut kinds) }
    };
    let every = usize_of(limits.one_in(1));
    let (headers, bodies): (Vec<_>, Vec<_>) = subjects
        .iter()
        .enumerate()
        .map(|(index, subject)| {
            // Sample different bytes of each subject.
            let taken = bytes_and_lengths(subject).into_iter().skip(index % every).step_by(every);
            let (head, body) = taken.partition(Damage::is_in_header);
            ((subject, head), (subject, body))
        })
        .unzip();
    let items = batches(&pages_and_files).chain(batches(&headers)).chain(batches(&bodies));
    let report = sweep(limits, items, None, |(subject, batch)| run_batch(subject, batch))?;
    let sampled =
        [("bytes flipped", 100_000), ("files cut", 40_000), ("refused", 60_000), ("read right", 10_000)];
    require_share(NAME, limits, &report, &sampled)?;
    let least = [
        ("pages holding another page", 1_000),
        ("pages exchanged", 500),
        ("pages as they were before", 20),
        ("pages of another store", 50),
        ("files with foreign content", 20),
    ];
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
