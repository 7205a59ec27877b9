//! I/O saved by keeping values outside, by the thesis' model and by the counters of two stores (Parallax
//! eq. 2.4, fig. 2.1a).
//!
//! The model: `l` levels on the device, each `f` times as large as the one before, and the first one `f`
//! times as large as a flush. Until all data are in the last level, `l - 1 + f l` bytes are read and written
//! per user byte (eq. 2.2). If the values are in a log, this holds for the share `p` of the bytes that are
//! keys, and everything is written once to the log (eq. 2.3).
//!
//! Levels and growth are those of a store: `l` is read from it, and `f` follows from the ratio of its data to
//! the size of a flush.
//!
//! **Invariants**
//! - The write-ahead log is not counted in either: the model has none.
//! - The insert rate is one that merges are meant to sustain: faster inserts would be merged less often.

use serde::Serialize;
use testudo::{Placement, Result};

use super::{
    Findings,
    both_trees::leaf_bytes,
    experiment::{Experiment, wrong_answers},
};
use crate::{
    Workload,
    report::{
        Report, Settled,
        line_chart::{Line, LineChart},
        size::quotient,
    },
};

const KEY_BYTES: u64 = 24;
/// Value sizes. The first is the shortest that a placement puts outside.
const VALUE_BYTES: [u64; 6] = [32, 96, 216, 456, 1_176, 2_376];
/// Placements: inline, then outside.
const WAYS: [&str; 2] = ["inline", "separate"];
const MEMORY_MIN: u64 = 4 << 20;
/// Write-buffer share of the memory in all stores, so that flushes are alike.
const WRITE_SHARE: f64 = 0.4;

/// Result of loading one store.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Point {
    value_bytes: u64,
    /// Share of key bytes in the bytes of keys and values.
    p: f64,
    /// Bytes in the tree relative to these bytes, references included.
    in_tree: f64,
    /// Share of the tree's bytes in its last level.
    at_bottom: f64,
    levels: u64,
    flushes: u64,
    growth: f64,
    /// Bytes read and written per user byte, without the write-ahead log.
    model: f64,
    measured: f64,
}

/// Returns `l - 1 + f l`: the bytes read and written per byte in the levels.
fn level_io(levels: f64, growth: f64) -> f64 {
    levels - 1.0 + growth * levels
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let mut findings = Findings { table: vec![head()], ..Findings::default() };
    let mut rows = Vec::new();
    for value_bytes in VALUE_BYTES {
        let mut points = [Point::default(); WAYS.len()];
        for (point, name) in points.iter_mut().zip(WAYS) {
            *point = load(experiment, value_bytes, name, &mut findings)?;
        }
        findings.table.push(row(&points));
        rows.push(points);
    }
    let saved = |of: fn(&Point) -> f64| {
        let point = |[inline, separate]: &[Point; 2]| (inline.p, quotient(of(inline), of(separate)));
        rows.iter().map(point).collect::<Vec<_>>()
    };
    let (model, measured) = (saved(|point| point.model), saved(|point| point.measured));
    findings.remarks.push(remark(&model, &measured));
    let line = |name: &str, points| Line { name: name.to_owned(), points };
    let chart = LineChart {
        title: "I/O saved by separation".to_owned(),
        x_name: "p: share of key bytes in keys and values".to_owned(),
        y_name: "inline / separate".to_owned(),
        x_doubles: true,
        lines: vec![line("model", model), line("measured", measured)],
    };
    findings.charts.push(("parallax-model".to_owned(), chart));
    Ok(findings)
}

fn load(
    experiment: &mut Experiment<'_>,
    value_bytes: u64,
    placement_name: &str,
    findings: &mut Findings,
) -> Result<Point> {
    let data_bytes: u64 = experiment.scaled(1 << 19, 48 << 20, 2 << 30);
    let bytes_per_second = experiment.scaled(None, Some(8 << 20), Some(16 << 20));
    let placement: Placement = placement_name.parse()?;
    let pair_bytes = KEY_BYTES + value_bytes;
    let mut flags = experiment.flags()?;
    flags.workloads = vec![Workload::Load];
    flags.key_bytes = KEY_BYTES;
    flags.value_bytes = value_bytes;
    flags.records = Some(data_bytes / pair_bytes);
    flags.rate = bytes_per_second.map(|bytes: u64| bytes / pair_bytes);
    "leveled".clone_into(&mut flags.store.tree);
    flags.store.placement = Some(placement);
    flags.store.leaf_bytes = Some(leaf_bytes(experiment));
    flags.store.memory = (data_bytes / 16).max(MEMORY_MIN);
    flags.store.write_share = Some(WRITE_SHARE);
    let setting = format!("value={value_bytes} values={placement_name}");
    let scratch = experiment.scratch()?;
    let mut state = experiment.open(&flags, &scratch)?;
    let report = experiment.run_workload(&mut state, &setting, Workload::Load, true)?;
    findings.wrong_answers += wrong_answers(std::slice::from_ref(&report));
    let mut point = point_of(&report, KEY_BYTES as f64 / pair_bytes as f64);
    for stats in state.records().iter().map(testudo::Keyspace::stats) {
        let tree_bytes = (stats.tree.leaf_bytes + stats.tree.buffered_bytes) as f64;
        point.levels = stats.tree.height;
        point.in_tree = quotient(tree_bytes, report.user_bytes_written as f64);
        point.at_bottom = quotient(stats.tree.leaf_bytes as f64, tree_bytes);
    }
    state.close()?;
    let levels = point.levels.max(1) as f64;
    point.growth = (point.flushes.max(1) as f64).powf(1.0 / levels);
    let of_levels = level_io(levels, point.growth);
    point.model = if placement.is_inline() { of_levels } else { point.p * of_levels + 1.0 };
    experiment.result(&setting, &point)?;
    Ok(point)
}

fn point_of(report: &Report, p: f64) -> Point {
    let at_once = Settled {
        device_bytes_written: report.device_bytes_written,
        device_bytes_read: report.device_bytes_read,
        wal_bytes_written: report.wal_bytes_written,
        ..Settled::default()
    };
    let settled = report.settled.unwrap_or(at_once);
    let written = settled.device_bytes_written.saturating_sub(settled.wal_bytes_written);
    Point {
        value_bytes: report.value_bytes,
        p,
        flushes: report.flushes,
        measured: quotient((written + settled.device_bytes_read) as f64, report.user_bytes_written as f64),
        ..Point::default()
    }
}

fn head() -> Vec<String> {
    let names = [
        "value",
        "p",
        "in the tree",
        "at the bottom",
        "levels",
        "growth",
        "inline: model",
        "measured",
        "separate: model",
        "measured",
        "saved: model",
        "measured",
        "measured / model",
    ];
    names.map(str::to_owned).to_vec()
}

fn row([inline, separate]: &[Point; 2]) -> Vec<String> {
    let both = |of: fn(&Point) -> String| format!("{}, {}", of(inline), of(separate));
    let (model, measured) =
        (quotient(inline.model, separate.model), quotient(inline.measured, separate.measured));
    vec![
        format!("{} B", inline.value_bytes),
        format!("{:.2}", inline.p),
        both(|point| format!("{:.2}", point.in_tree)),
        both(|point| format!("{:.2}", point.at_bottom)),
        both(|point| point.levels.to_string()),
        both(|point| format!("{:.1}", point.growth)),
        format!("{:.1}", inline.model),
        format!("{:.1}", inline.measured),
        format!("{:.1}", separate.model),
        format!("{:.1}", separate.measured),
        format!("{model:.2}"),
        format!("{measured:.2}"),
        format!("{:.2}", quotient(measured, model)),
    ]
}

/// Formats whether the measurement follows p as the model does, and how far it is from the model.
fn remark(model: &[(f64, f64)], measured: &[(f64, f64)]) -> String {
    let rises = measured.is_sorted_by(|(_, more_keys), (_, fewer_keys)| more_keys <= fewer_keys);
    let parts = model.iter().zip(measured).map(|((_, model), (_, measured))| quotient(*measured, *model));
    let (low, high) = parts.fold((f64::MAX, 0.0), |(low, high), part| (part.min(low), part.max(high)));
    format!(
        "the smaller p, the more is saved{}; {low:.2} to {high:.2} times the model",
        if rises { "" } else { ", but not always" },
    )
}

#[cfg(test)]
mod tests;
