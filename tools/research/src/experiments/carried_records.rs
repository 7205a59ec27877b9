//! Page writes saved by records that stay in the write buffer (TreeLine §4.1, record caching), by
//! simulation: each full buffer is written into pages. A frequently updated record may stay in the next
//! buffer instead, if that saves the write of its page: all updated records of the page stay.
//!
//! **Invariants**
//! - Pages and records are only counted. A record that stays takes space in the buffer, and is logged again.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use testudo_base::{
    PAGE_BYTES, Result,
    num::{u64_of, usize_of},
};
use testudo_bench::{Experiment, Findings, Line, LineChart, Zipf, scatter, stride_of};
use testudo_env::SplitMix;

const RECORD_BYTES: u64 = 124;
const RECORDS_OF_A_PAGE: u64 = 30;
/// Bytes of a record in the log.
const LOGGED_BYTES: u64 = 140;
/// Updates in one buffer from which on a record may stay.
const UPDATES_MIN: u32 = 3;
/// Buffers that are filled.
const FLUSHES: u32 = 8;
const SKEWS: [f64; 3] = [0.8, 0.99, 1.2];
/// Inverse of the number of records in a buffer, as a fraction of all.
const BUFFER_PARTS: [u64; 2] = [40, 10];
/// Percentage of the buffer that may stay.
const STAYING_PERCENT: [u64; 4] = [0, 10, 25, 50];

#[derive(Debug, Serialize)]
struct Point {
    skew: f64,
    records: u64,
    buffer_records: u64,
    staying_percent: u64,
    updates: u64,
    page_writes: u64,
    logged_again: u64,
    /// Bytes of pages and of records logged again, per byte of updates.
    written: f64,
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let records: u64 = experiment.scaled(4_000, 300_000, 3_000_000);
    let head = ["skew", "buffer", "may stay", "pages / update", "logged again", "written / byte", "saved"];
    let mut findings = Findings { table: vec![head.map(str::to_owned).to_vec()], ..Findings::default() };
    let mut lines = Vec::new();
    for skew in SKEWS {
        for parts in BUFFER_PARTS {
            let mut line = Line { name: format!("skew {skew}, buffer 1/{parts}"), points: Vec::new() };
            let mut without = None;
            for staying_percent in STAYING_PERCENT {
                let point = simulate(skew, records, records / parts, staying_percent);
                let saved = 1.0 - point.written / *without.get_or_insert(point.written);
                let detail = format!("skew={skew} buffer=1/{parts} staying={staying_percent}");
                experiment.result(&detail, &point)?;
                line.points.push((staying_percent as f64, point.written));
                findings.table.push(vec![
                    skew.to_string(),
                    format!("1/{parts}"),
                    format!("{staying_percent} %"),
                    format!("{:.3}", point.page_writes as f64 / point.updates as f64),
                    format!("{:.3}", point.logged_again as f64 / point.updates as f64),
                    format!("{:.2}", point.written),
                    format!("{:.1} %", saved * 100.0),
                ]);
            }
            lines.push(line);
        }
    }
    let chart = LineChart {
        title: "Bytes written if frequently updated records stay in the buffer".to_owned(),
        x_name: "percentage of the buffer that may stay".to_owned(),
        y_name: "bytes written / user bytes".to_owned(),
        x_doubles: false,
        lines,
    };
    findings.charts.push(("treeline-carried".to_owned(), chart));
    Ok(findings)
}

fn simulate(skew: f64, records: u64, buffer_records: u64, staying_percent: u64) -> Point {
    let (zipf, stride) = (Zipf::with_skew(records, skew), stride_of(records));
    let mut random = SplitMix::new(1);
    let mut buffer: BTreeMap<u64, u32> = BTreeMap::new();
    let (mut updates, mut page_writes, mut logged_again) = (0, 0, 0);
    for _ in 0..FLUSHES {
        while u64_of(buffer.len()) < buffer_records {
            *buffer.entry(scatter(zipf.rank(&mut random), stride, records)).or_default() += 1;
            updates += 1;
        }
        let staying = staying_records(&buffer, usize_of(buffer_records * staying_percent / 100));
        let page_of = |record: &u64| record / RECORDS_OF_A_PAGE;
        let written: BTreeSet<u64> =
            buffer.keys().filter(|record| !staying.contains(record)).map(page_of).collect();
        page_writes += u64_of(written.len());
        // The page of a record that could stay may be written for another one: then it is written, too.
        buffer.retain(|record, _| !written.contains(&page_of(record)));
        buffer.values_mut().for_each(|count| *count = 0);
        logged_again += u64_of(buffer.len());
    }
    let bytes = page_writes * PAGE_BYTES + logged_again * LOGGED_BYTES;
    let written = bytes as f64 / (updates * RECORD_BYTES) as f64;
    Point { skew, records, buffer_records, staying_percent, updates, page_writes, logged_again, written }
}

/// Returns the most frequently updated records, at most `most`.
fn staying_records(buffer: &BTreeMap<u64, u32>, most: usize) -> BTreeSet<u64> {
    let frequent = buffer.iter().filter(|(_, count)| **count >= UPDATES_MIN);
    let mut frequent: Vec<(u32, u64)> = frequent.map(|(record, count)| (*count, *record)).collect();
    frequent.sort_unstable_by(|a, b| b.cmp(a));
    frequent.into_iter().take(most).map(|(_, record)| record).collect()
}
