//! Write amplification against the data size, at constant memory, compared with a leveled LSM-tree
//! (SplinterDB fig. 6), by simulation: the real policies decide, over bytes instead of records. So any size
//! can be simulated.
//!
//! **Invariants**
//! - Only entries are counted, without logs, indexes and filters.
//! - All trees get the same checkpoints of new keys, spread evenly over the key space.

use serde::Serialize;
use testudo_base::{Result, num::u64_of};
use testudo_bench::{Experiment, Findings, Line, LineChart, human_bytes, human_count, quotient};
use testudo_betree::{BeTreeOptions, Policy};
use testudo_lsm::{LsmOptions, SimulatedLevels};

use crate::betree::{SimulatedLoad, SimulatedTree};

const RECORD_BYTES: u64 = 124;
const NAMES: [&str; 3] = ["turtle", "splinter", "leveled"];

/// Result of one kind of tree at one size.
#[derive(Clone, Debug, Serialize)]
struct Point {
    tree: &'static str,
    records: u64,
    flush_bytes: u64,
    user_bytes: u64,
    write_amplification: f64,
    /// Bytes written in the most expensive checkpoint, per byte of it.
    dearest_flush: f64,
    /// Space amplification at the end.
    space_amplification: f64,
    /// Sorted sequences that a scan has to merge, if every node on the path had as many tiers as the one with
    /// the most.
    sources: u64,
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let base: u64 = experiment.scaled(20_000, 20_000_000, 100_000_000);
    let flush_bytes: u64 = experiment.scaled(256 << 10, 16 << 20, 16 << 20);
    let leaf_bytes: u64 = experiment.scaled(32 << 10, 2 << 20, 2 << 20);
    let head = ["tree", "records", "data", "written / user bytes", "max. sources of a scan"];
    let mut findings = Findings { table: vec![head.map(str::to_owned).to_vec()], ..Findings::default() };
    let mut points: Vec<[Point; NAMES.len()]> = Vec::new();
    for times in [1, 10, 100] {
        let of_size = simulate(base * times, flush_bytes, leaf_bytes);
        for point in &of_size {
            experiment.result(&format!("tree={} records={}", point.tree, point.records), point)?;
            findings.table.push(vec![
                point.tree.to_owned(),
                human_count(point.records as f64),
                human_bytes(point.user_bytes),
                format!("{:.2}", point.write_amplification),
                point.sources.to_string(),
            ]);
        }
        findings.remarks.push(remark(&of_size));
        points.push(of_size);
    }
    let line = |tree: usize| {
        let places = points.iter().map(|points| &points[tree]);
        let places = places.map(|point| (point.records as f64, point.write_amplification)).collect();
        Line { name: NAMES[tree].to_owned(), points: places }
    };
    let chart = LineChart {
        title: format!("Bytes written against data size, checkpoints of {}", human_bytes(flush_bytes)),
        x_name: "records".to_owned(),
        y_name: "bytes written / user bytes".to_owned(),
        x_doubles: true,
        lines: (0..NAMES.len()).map(line).collect(),
    };
    findings.charts.push(("splinter-policies".to_owned(), chart));
    Ok(findings)
}

fn simulate(records: u64, flush_bytes: u64, leaf_bytes: u64) -> [Point; NAMES.len()] {
    let checkpoints = (records * RECORD_BYTES).div_ceil(flush_bytes);
    let incoming_bytes = checkpoints * flush_bytes;
    let of_policy = |tree: usize, policy: Policy| {
        let mut simulated = SimulatedTree::new(BeTreeOptions { leaf_bytes, ..BeTreeOptions::new(policy) });
        let load = SimulatedLoad { incoming_bytes, flush_bytes, overwrite_percent: 0, is_pressed: false };
        let costs = simulated.apply(&load);
        // The tiers of every node on the path to a leaf, and the leaf.
        let node_levels = costs.written_by_level.len().saturating_sub(1);
        Point {
            tree: NAMES[tree],
            records,
            flush_bytes,
            user_bytes: incoming_bytes,
            write_amplification: costs.write_amplification(),
            dearest_flush: costs.dearest_flush,
            space_amplification: costs.space,
            sources: u64_of(node_levels * costs.max_tiers) + 1,
        }
    };
    let leveled = || {
        let mut simulated = SimulatedLevels::new(LsmOptions { run_bytes: leaf_bytes, ..LsmOptions::new() });
        let load = testudo_lsm::SimulatedLoad {
            incoming_bytes,
            flush_bytes,
            overwrite_percent: 0,
            is_pressed: false,
        };
        let costs = simulated.apply(&load);
        Point {
            tree: NAMES[2],
            records,
            flush_bytes,
            user_bytes: incoming_bytes,
            write_amplification: costs.write_amplification(),
            dearest_flush: costs.dearest_flush,
            space_amplification: costs.space,
            sources: u64_of(costs.max_sequences),
        }
    };
    [of_policy(0, Policy::Turtle), of_policy(1, Policy::Splinter), leveled()]
}

fn remark(points: &[Point; NAMES.len()]) -> String {
    let [turtle, splinter, leveled] = points;
    format!(
        "{} records: {} writes {} as much as {}, and {} as much as {}",
        human_count(splinter.records as f64),
        splinter.tree,
        times(leveled.write_amplification, splinter.write_amplification),
        leveled.tree,
        times(turtle.write_amplification, splinter.write_amplification),
        turtle.tree,
    )
}

/// Formats `second` relative to `first`: `1.25 times`.
fn times(first: f64, second: f64) -> String {
    format!("{:.2} times", quotient(second, first))
}
