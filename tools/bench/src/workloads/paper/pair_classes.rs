//! What it brings to treat medium pairs as a class of their own (Parallax fig. 5.3): beside the hybrid
//! placement, one that takes them for small, so that their values never leave, and one that takes them for
//! large, so that their values never come back.
//!
//! **Invariants**
//! - Only the ratios differ, and those are the two of the hybrid placement: T_SM = T_ML = 0.02 for one, 0.2
//!   for the other, as in the thesis.
//! - Stores that are compared run one right after the other. Rates are of one run each; what counts is bytes.

use testudo::{Placement, Result};

use super::{
    Findings,
    experiment::Experiment,
    placements::{Cost, STEPS, Way, charts_of_step, compared, head, measure},
};
use crate::{Workload, args::Mix};

const MIXES: [(&str, Mix); 4] = [("M", Mix::M), ("SD", Mix::Sd), ("MD", Mix::Md), ("LD", Mix::Ld)];
const WORKLOADS: [Workload; 2] = [Workload::Load, Workload::A];

fn ways() -> Result<[Way; 3]> {
    let hybrid = Placement::hybrid();
    let way = |name, placement| Way { name, tree: "leveled", placement };
    Ok([
        way("hybrid", hybrid),
        way("medium as small", hybrid.with_small_ratio(hybrid.large_ratio())?),
        way("medium as large", hybrid.with_large_ratio(hybrid.small_ratio())?),
    ])
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let mut findings = Findings { table: vec![head()], ..Findings::default() };
    let ways = ways()?;
    // Of each way, of each mix, of each step.
    let mut costs: [Vec<Vec<Cost>>; 3] = Default::default();
    for mix in MIXES {
        for (way, costs) in ways.iter().zip(&mut costs) {
            costs.push(measure(experiment, *way, mix, &WORKLOADS, &mut findings)?);
        }
        let both = costs.each_ref().map(|of_way| of_way.last().and_then(|of_mix| of_mix.last()));
        if let [Some(hybrid), Some(small), Some(large)] = both {
            let remark = compared(ways[0].name, hybrid, &[(ways[1].name, small), (ways[2].name, large)]);
            findings.remarks.push(format!("{}, {remark}", mix.0));
        }
    }
    for (at, step) in STEPS.into_iter().enumerate() {
        let lines = ways
            .iter()
            .zip(&costs)
            .map(|(way, of_way)| (way.name, of_way.iter().filter_map(|of_mix| of_mix.get(at)).collect()));
        let lines: Vec<_> = lines.collect();
        let mixes = MIXES.map(|(name, _)| name);
        findings.charts.extend(charts_of_step("parallax-classes", (step, &mixes), &lines));
    }
    Ok(findings)
}
