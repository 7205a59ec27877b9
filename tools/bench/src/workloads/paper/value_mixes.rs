//! What it costs to keep values with their keys, outside, or by their size (Parallax fig. 1.1, 5.1 and 5.2):
//! loads and workload A for six mixes of lengths, and all of YCSB for the mix in which short values are most.
//!
//! Values shorter than a reference are never put outside. So the mix of short values alone is the same for
//! all placements, and what the thesis shows in fig. 1.1 for pairs of 33 bytes cannot come about.
//!
//! **Invariants**
//! - Stores that are compared run one right after the other. Rates are of one run each; what counts is bytes.

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

/// The first three are compared with each other, then the last two.
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

/// Of each step of a store, and of each workload after those.
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

/// Fig. 5.2: one step by mixes.
fn charts_of_mixes((at, step): (usize, &str), costs: &[Vec<OfWay>]) -> [(String, LineChart); 3] {
    let of_way = |(index, way): (usize, Way)| {
        (way.name, costs.iter().filter_map(|of_mix| of_mix.get(index)?.get(at)).collect())
    };
    let lines: Vec<_> = ways().into_iter().enumerate().map(of_way).collect();
    charts_of_step("parallax-mixes", (step, &MIXES.map(|(name, _)| name)), &lines)
}

/// Fig. 5.1: one mix by workloads.
fn charts_of_workloads(mix: &str, of_mix: &[OfWay]) -> [(String, LineChart); 3] {
    let names = ALL.map(Workload::name);
    let places: Vec<&str> = names.iter().map(String::as_str).collect();
    SHOWN.map(|shown| {
        // Both steps together are no workload.
        let single = |costs: &OfWay| {
            let costs = costs.iter().enumerate().filter(|(at, _)| at + 1 != STEPS.len());
            costs.map(|(_, cost)| (shown.value)(cost)).collect()
        };
        let lines = ways().into_iter().zip(of_mix).map(|(way, costs)| (way.name, single(costs))).collect();
        let title = format!("{} of {mix}, by workloads", shown.title);
        let file = format!("parallax-mixes-{}-{}", mix.to_lowercase(), shown.file);
        (file, chart(title, &places, shown.unit, lines))
    })
}
