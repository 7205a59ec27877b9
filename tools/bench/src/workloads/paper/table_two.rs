//! The asymptotic costs of the TurtleTree against the counters (TurtleKV table 2): half of `log2(N / χ)`
//! writes per record (see `write_memory.rs`), one page read per point query, and per scan one page read plus
//! one for each page of records.
//!
//! **Invariants**
//! - Queries are uniform and the memory is small, so almost every page of records comes from the device.

use testudo::Result;

use super::{
    Findings,
    experiment::{Experiment, wrong_answers},
    write_memory::writes_of_a_record,
};
use crate::{Distribution, Workload, report::size::quotient};

/// Approximate number of records of 124 bytes per page.
const RECORDS_IN_PAGE: f64 = 30.0;

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    let sizes: [u64; 3] = experiment.scaled(
        [5_000, 10_000, 20_000],
        [250_000, 500_000, 1_000_000],
        [5_000_000, 10_000_000, 20_000_000],
    );
    let head = ["records", "cost", "model", "measured", "measured / model"];
    let mut findings = Findings { table: vec![head.map(str::to_owned).to_vec()], ..Findings::default() };
    for records in sizes {
        let mut flags = experiment.flags()?;
        flags.workloads = vec![Workload::Load, Workload::C, Workload::E];
        flags.distribution = Some(Distribution::Uniform);
        flags.records = Some(records);
        flags.store.memory = (records * 124 / 20).max(4 << 20);
        flags.seconds = Some(experiment.scaled(0.05, 2.0, 20.0));
        let reports = experiment.measure(&format!("records={records}"), &flags)?;
        findings.wrong_answers += wrong_answers(&reports);
        let [load, point, scan] = &reports[..] else { continue };
        let chi = quotient(load.user_bytes_written as f64, load.flushes.max(1) as f64);
        let log = quotient(load.wal_bytes_written as f64, load.user_bytes_written as f64);
        let merges = writes_of_a_record(load.user_bytes_written as f64, chi);
        let written = load.settled.map_or(load.write_amplification, |settled| settled.write_amplification);
        let scanned = quotient(quotient(scan.user_bytes_read as f64, 124.0), scan.ops as f64);
        let rows = [
            ("bytes written / user bytes, log included", log + merges, written),
            ("page reads / point query", 1.0, point.page_reads_per_read),
            (
                "page reads / scan",
                1.0 + scanned / RECORDS_IN_PAGE,
                quotient(scan.page_reads as f64, scan.ops as f64),
            ),
        ];
        for (cost, model, measured) in rows {
            findings.table.push(vec![
                records.to_string(),
                cost.to_owned(),
                format!("{model:.2}"),
                format!("{measured:.2}"),
                format!("{:.2}", quotient(measured, model)),
            ]);
        }
    }
    Ok(findings)
}
