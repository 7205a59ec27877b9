//! Cost of value placement: inline, separate, or by size (Parallax fig. 1.1, 5.1 and 5.2). Loads and workload
//! A for six mixes of lengths, and all of YCSB for the mix of mostly short values.
//!
//! Values shorter than a reference are never put outside. So the mix of only short values is the same for all
//! placements, and the thesis' fig. 1.1 for pairs of 33 bytes cannot be reproduced.
//!
//! **Invariants**
//! - Compared stores run right after each other. Rates are from single runs; the metric is bytes.

use testudo::{Placement, Result};

use super::{
    Findings,
    experiment::Experiment,
    placements::{Cost, SHOWN, STEPS, Way, chart, charts_of_step, compared, head, measure},
};
use crate::{Workload, args::Mix, report::line_chart::LineChart};

const MIXES: [(&str, Mix); 6] =
    [("S", Mix::S), ("M", Mix::M), ("L", Mix::L), ("SD", Mix::Sd), ("MD", Mix::Md), ("LD", Mix::Ld)];
const SHORT: [Workload; 2] = [Workload::Load, Workload::A];
const ALL: [Workload; 7] =
    [Workload::Load, Workload::A, Workload::B, Workload::C, Workload::D, Workload::E, Workload::F];

/// Returns the configurations; the first three are compared with each other, then the last two.
fn ways() -> [Way; 5] {
    let way = |name, tree, placement| Way { name, tree, placement };
    [
        way("leveled inline", "leveled", Placement::inline()),
        way("leveled separate", "leveled", Placement::separate()),
        way("leveled hybrid", "leveled", Placement::hybrid()),
        way("turtle inline", "turtle", Placement::inline()),
        way("turtle hybrid", "turtle", Placement::hybrid()),
    ]
}

/// Costs of each step of a store, and of each further workload.
type OfWay = Vec<Cost>;

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let mut findings = Findings { table: vec![head()], ..Findings::default() };
    let all_of: fn(Mix) -> bool = experiment.scaled(|mix| mix == Mix::Sd, |mix| mix == Mix::Sd, |_| true);
    let mut costs: Vec<Vec<OfWay>> = Vec::new();
    for (name, mix) in MIXES {
        let workloads = if all_of(mix) { ALL.as_slice() } else { SHORT.as_slice() };
        let mut of_mix = Vec::new();
        for way in ways() {
            of_mix.push(measure(experiment, way, (name, mix), workloads, &mut findings)?);
        }
        findings.remarks.extend(remarks(name, &of_mix));
        if all_of(mix) {
            findings.charts.extend(charts_of_workloads(name, &of_mix));
        }
        costs.push(of_mix);
    }
    findings.charts.extend(STEPS.into_iter().enumerate().flat_map(|step| charts_of_mixes(step, &costs)));
    Ok(findings)
}

fn remarks(mix: &str, of_mix: &[OfWay]) -> Vec<String> {
    let both = of_mix.iter().map(|way| way.get(STEPS.len() - 1)).collect::<Option<Vec<&Cost>>>();
    let Some([inline, separate, hybrid, turtle_inline, turtle_hybrid]) = both.as_deref() else {
        return Vec::new();
    };
    let leveled = compared("leveled hybrid", hybrid, &[("inline", inline), ("separate", separate)]);
    let turtle = compared("turtle hybrid", turtle_hybrid, &[("inline", turtle_inline)]);
    [leveled, turtle].map(|remark| format!("{mix}, {remark}")).to_vec()
}

/// Returns the charts of fig. 5.2: one step by mix.
fn charts_of_mixes((at, step): (usize, &str), costs: &[Vec<OfWay>]) -> [(String, LineChart); 3] {
    let of_way = |(index, way): (usize, Way)| {
        (way.name, costs.iter().filter_map(|of_mix| of_mix.get(index)?.get(at)).collect())
    };
    let lines: Vec<_> = ways().into_iter().enumerate().map(of_way).collect();
    charts_of_step("parallax-mixes", (step, &MIXES.map(|(name, _)| name)), &lines)
}

/// Returns the charts of fig. 5.1: one mix by workload.
fn charts_of_workloads(mix: &str, of_mix: &[OfWay]) -> [(String, LineChart); 3] {
    let names = ALL.map(Workload::name);
    let places: Vec<&str> = names.iter().map(String::as_str).collect();
    SHOWN.map(|shown| {
        // Both steps together are not a workload.
        let single = |costs: &OfWay| {
            let costs = costs.iter().enumerate().filter(|(at, _)| at + 1 != STEPS.len());
            costs.map(|(_, cost)| (shown.value)(cost)).collect()
        };
        let lines = ways().into_iter().zip(of_mix).map(|(way, costs)| (way.name, single(costs))).collect();
        let title = format!("{} of {mix}, by workload", shown.title);
        let file = format!("parallax-mixes-{}-{}", mix.to_lowercase(), shown.file);
        (file, chart(title, &places, shown.unit, lines))
    })
}
