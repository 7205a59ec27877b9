//! Reorganizations saved by insert forecasts, by epoch length (TreeLine fig. 11), and by perfect ones. Keys
//! arrive in their recorded order, and pages start empty.
//!
//! Only the counting is that of stores. Each insert goes to its page immediately, and groups of pages are
//! reorganized as in the paper; `testudo bench paper treeline-forecast` runs stores (fig. 10).
//!
//! **Invariants**
//! - Epochs are those of `trees/lsm`; pages are only counted.

use std::collections::BTreeSet;

use serde::Serialize;
use testudo_base::{Result, num::usize_of};
use testudo_bench::{Experiment, Findings, Line, LineChart, key_sets};
use testudo_lsm::EpochSize;

use super::page_groups::{PAGE_ROOM_BYTES, SLOT_BYTES};
use crate::{
    groups::PageFill,
    growth::{Expected, Forecast, GrowingPages, GrowthCounts},
};

/// Bytes of a record, and the paper's goal and epsilon for it, in hundredths of a record.
const SHAPES: [(u64, u64, u64); 2] = [(64, 4_400, 500), (1024, 200, 50)];
/// Inserts of an epoch per part of a histogram.
const INSERTS_IN_PART: u64 = 5;

#[derive(Serialize)]
struct Point<'a> {
    keys: &'a str,
    record_bytes: u64,
    forecast: String,
    inserts: u64,
    reorganisations: u64,
    rewritten_pages: u64,
    pages: u64,
    overflow_pages: u64,
    groups: u64,
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let head = ["keys", "record", "forecast", "reorganizations", "", "pages rewritten", "pages", "overflow"];
    let mut findings = Findings { table: vec![head.map(str::to_owned).to_vec()], ..Findings::default() };
    let mut lines = Vec::new();
    for set in key_sets(experiment)? {
        for (record_bytes, goal, epsilon) in SHAPES {
            let bytes = record_bytes + SLOT_BYTES;
            let fill = PageFill::new(bytes * goal / 100, bytes * epsilon / 100, PAGE_ROOM_BYTES);
            let grown = |expected: Expected| {
                let mut pages = GrowingPages::new(fill, bytes, expected);
                set.keys.iter().for_each(|key| pages.insert(key));
                pages.counts()
            };
            let without = grown(Expected::Nothing);
            let mut results = vec![("none".to_owned(), without)];
            let mut line = Line { name: format!("{}, {record_bytes} B", set.name), points: Vec::new() };
            for divisor in [400, 100, 20] {
                let epoch_inserts = (without.inserts / divisor).max(100);
                let parts = usize_of(epoch_inserts / INSERTS_IN_PART);
                let size = EpochSize { inserts: epoch_inserts, parts };
                // The horizon is all inserts; forecasts beyond it would only cost space.
                let counts = grown(Expected::Forecast(Box::new(Forecast::new(size, divisor))));
                let share = part_of(&counts, &without);
                line.points
                    .push((epoch_inserts as f64 / without.inserts.max(1) as f64 * 100.0, share * 100.0));
                results.push((format!("epochs of {epoch_inserts}"), counts));
            }
            let future: BTreeSet<Vec<u8>> = set.keys.iter().cloned().collect();
            let perfect = grown(Expected::Future(future));
            results.push(("perfect".to_owned(), perfect));
            let best = results[1..results.len() - 1].iter().map(|(_, counts)| part_of(counts, &without));
            findings.remarks.push(format!(
                "{}, {record_bytes} B: forecasts save {:.0} % of reorganizations, perfect ones {:.0} %",
                set.name,
                (1.0 - best.fold(1.0, f64::min)) * 100.0,
                (1.0 - part_of(&perfect, &without)) * 100.0
            ));
            for (forecast, counts) in results {
                findings.table.push(row(&set.name, record_bytes, &forecast, &counts, &without));
                let setting = format!("keys={} record={record_bytes} forecast={forecast}", set.name);
                experiment.result(&setting, &point(&set.name, record_bytes, forecast, &counts))?;
            }
            lines.push(line);
        }
    }
    let chart = LineChart {
        title: "Reorganizations with forecasts, against epoch length".to_owned(),
        x_name: "epoch, % of all inserts".to_owned(),
        y_name: "% of those without forecasts".to_owned(),
        x_doubles: true,
        lines,
    };
    findings.charts.push(("treeline-epochs".to_owned(), chart));
    Ok(findings)
}

fn part_of(counts: &GrowthCounts, without: &GrowthCounts) -> f64 {
    counts.reorganisations as f64 / without.reorganisations.max(1) as f64
}

fn point<'a>(keys: &'a str, record_bytes: u64, forecast: String, counts: &GrowthCounts) -> Point<'a> {
    let GrowthCounts { inserts, reorganisations, rewritten_pages, pages, overflow_pages, groups } = *counts;
    Point {
        keys,
        record_bytes,
        forecast,
        inserts,
        reorganisations,
        rewritten_pages,
        pages,
        overflow_pages,
        groups,
    }
}

fn row(
    keys: &str,
    record_bytes: u64,
    forecast: &str,
    counts: &GrowthCounts,
    without: &GrowthCounts,
) -> Vec<String> {
    vec![
        keys.to_owned(),
        format!("{record_bytes} B"),
        forecast.to_owned(),
        counts.reorganisations.to_string(),
        format!("{:.2}", part_of(counts, without)),
        counts.rewritten_pages.to_string(),
        counts.pages.to_string(),
        counts.overflow_pages.to_string(),
    ]
}
