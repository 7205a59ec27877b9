//! Files of a store are lost, emptied, zeroed, truncated, or replaced by older versions or by those of a
//! diverged copy, alone and in every combination of two. A store that opens gives right answers for all
//! synced writes, or an error. Verification finds every damage that reads find. A repair reports a store
//! valid only if it opens, and salvage reports itself complete only if it recovers everything.
//!
//! **Invariants**
//! - Each damage is applied to a fresh copy of the store.
//! - Writes synced after the superblock's last statement may be missing, as a suffix, in two cases: after a
//!   kill, if the file `watermark` is one of two damaged files; and after a power loss, if the log is
//!   damaged. No other file records them (decision 0030). In all other cases every synced commit must be
//!   present.

mod damage;
mod subject;

use testudo_base::num::usize_of;
use testudo_testkit::configuration::crash_configurations;

use self::{
    damage::{Damage, damages},
    subject::Subject,
};
use crate::{
    LayerReport, Limits,
    sweep::{Outcome, chosen_by_size, judge, require, require_share, sweep},
};

pub(crate) const NAME: &str = "files";

/// Stride through the pairs in a short run.
const PAIRS_STRIDE: u64 = 3;
/// Items per subject of the sweep, so that threads share a subject evenly.
const STRIDE: usize = 16;

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen_by_size(NAME, limits, crash_configurations())?;
    let mut subjects = Vec::new();
    for configuration in &configurations {
        subjects.extend(judge(NAME, Some(&configuration.name), None, || subject::subjects(configuration))?);
    }
    let every = usize_of(limits.one_in(PAIRS_STRIDE));
    let all: Vec<(&Subject, Vec<Vec<Damage>>)> = subjects
        .iter()
        .enumerate()
        .map(|(number, subject)| (subject, cases(subject, every, number)))
        .collect();
    let items =
        all.iter().flat_map(|(subject, cases)| (0..STRIDE).map(move |first| (*subject, cases, first)));
    let report = sweep(limits, items, None, |(subject, cases, first)| {
        let mut report = LayerReport::default();
        for case in cases.iter().skip(first).step_by(STRIDE) {
            report.merge(judge_case(subject, case)?);
        }
        Ok(report)
    })?;
    let least = [
        ("two files", 2_000),
        ("read right", 100),
        ("refused", 1_000),
        ("salvaged whole", 100),
        ("salvaged in part", 500),
    ];
    require(NAME, limits, &report, &[("one file", 300)])?;
    require_share(NAME, limits, &report, &least)?;
    Ok(report)
}

/// Every single damage, and one in `every` of all pairs of two files, different ones for each subject.
fn cases(subject: &Subject, every: usize, number: usize) -> Vec<Vec<Damage>> {
    let single = damages(subject);
    let mut cases: Vec<Vec<Damage>> = single.iter().map(|damage| vec![damage.clone()]).collect();
    let pairs = single.iter().enumerate().flat_map(|(index, first)| {
        let others = single[index + 1..].iter().filter(|second| second.path() != first.path());
        others.map(|second| vec![first.clone(), second.clone()])
    });
    cases.extend(pairs.skip(number % every).step_by(every));
    cases.retain(|case| !subject.has_no_evidence(case));
    cases
}

fn judge_case(subject: &Subject, case: &[Damage]) -> Outcome {
    let outcome = judge(NAME, Some(&subject.configuration), None, || {
        let judged = testudo_testkit::campaign::catch_panic(|| subject.judge(case));
        let describe = |wrong| {
            let case: Vec<String> = case.iter().map(Damage::describe).collect();
            format!("{}, {}: {wrong}", subject.state, case.join(" and "))
        };
        judged.unwrap_or_else(Err).map_err(describe)
    })?;
    let mut report = LayerReport::default();
    report.add(if case.len() == 1 { "one file" } else { "two files" }, 1);
    report.add(if outcome.is_right { "read right" } else { "refused" }, 1);
    report.add(if outcome.is_salvaged_whole { "salvaged whole" } else { "salvaged in part" }, 1);
    Ok(report)
}
