//! Files of a store lost, emptied, zeroed, cut short, replaced by older versions of themselves or by those of
//! a copy of the store that has gone its own way, alone and in every combination of two. Whatever opens gives
//! right answers for all that was synced, or an error; verification finds what reads find, a repair calls
//! nothing valid that does not open, and salvage calls itself complete only with everything.
//!
//! **Invariants**
//! - Each damage is done to a fresh copy of the store.
//! - After a kill, where the file `watermark` is one of two, and after a power loss, where the log is
//!   damaged, what was synced after the superblock's last statement may be missing, as a prefix: nothing else
//!   knows of it (decision 0030). Anywhere else every synced commit must be there.

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

/// Of the pairs a short run takes one in so many.
const PAIRS_STRIDE: u64 = 3;
/// Items of the sweep, so that threads share a subject evenly.
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

/// Every damage alone, and of all pairs of two files one in `every`, those of each subject others.
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
