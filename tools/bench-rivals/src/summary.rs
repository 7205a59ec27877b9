//! Results of all rounds as a table: medians, their spread and ratios to a baseline engine.
//!
//! **Invariants**
//! - All byte counts are the kernel's for the process; none are self-reported by an engine.
//! - The median of two is their mean; the spread is the lowest and the highest rate.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use testudo_bench::{human_bytes, human_count};

use crate::engine::Engine;

/// Results by workload, in order of arrival, and engine.
pub(crate) struct Summary {
    engines: Vec<Engine>,
    workloads: Vec<String>,
    results: BTreeMap<(String, Engine), Vec<Value>>,
    notes: BTreeSet<String>,
    wrong_answers: u64,
}

impl Summary {
    /// Creates a summary; `engines` is their order in the table.
    pub(crate) fn new(engines: &[Engine]) -> Self {
        Self {
            engines: engines.to_vec(),
            workloads: Vec::new(),
            results: BTreeMap::new(),
            notes: BTreeSet::new(),
            wrong_answers: 0,
        }
    }

    /// Adds one result.
    pub(crate) fn add(&mut self, engine: Engine, result: &Value) {
        let workload = result["workload"].as_str().unwrap_or_default().to_owned();
        if !self.workloads.contains(&workload) {
            self.workloads.push(workload.clone());
        }
        self.wrong_answers += result["wrong_answers"].as_u64().unwrap_or(1);
        if result["ordered_load"] == true {
            self.notes.insert(format!("{} was loaded in key order by one thread", engine.name()));
        }
        self.results.entry((workload, engine)).or_default().push(result.clone());
    }

    /// Notes that the memory of a run was not limited.
    pub(crate) fn note_no_limit(&mut self, reason: &str) {
        self.notes.insert(format!("the memory limit was NOT enforced, see the peaks: {reason}"));
    }

    /// Notes that a run started with warm caches.
    pub(crate) fn note_warm_caches(&mut self) {
        self.notes.insert("the caches of the machine could not be emptied before each run".to_owned());
    }

    /// Notes that a run did not finish.
    pub(crate) fn note_unfinished(&mut self, engine: Engine, reason: &str) {
        self.notes.insert(format!("{} did not finish: {reason}", engine.name()));
    }

    pub(crate) fn wrong_answers(&self) -> u64 {
        self.wrong_answers
    }

    /// Caveats for readers of the table, one per line.
    pub(crate) fn limits(&self) -> String {
        self.notes.iter().map(|note| format!("note: {note}\n")).collect()
    }

    /// Returns the engine that the ratios refer to.
    fn baseline(&self) -> Engine {
        let rocksdb = self.engines.iter().find(|engine| **engine == Engine::Rocksdb);
        rocksdb.or(self.engines.first()).copied().unwrap_or(Engine::Testudo)
    }

    /// Returns the header and rows of the table.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let head = [
            "workload",
            "engine",
            "ops/s",
            "least",
            "most",
            "ratio",
            "first 10 s",
            "last 10 s",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
            "stall ms",
            "CPU µs/op",
            "written",
            "w-amp",
            "read B/op",
            "space",
            "peak RSS",
            "reopen s",
            "survives",
            "wrong",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for workload in &self.workloads {
            let base = self.of(workload, self.baseline()).filter(|results| !is_ordered(results)).map(rate);
            for engine in &self.engines {
                if let Some(results) = self.of(workload, *engine) {
                    rows.push(row(workload, *engine, results, base));
                }
            }
        }
        rows
    }

    fn of(&self, workload: &str, engine: Engine) -> Option<&[Value]> {
        self.results.get(&(workload.to_owned(), engine)).map(Vec::as_slice)
    }
}

fn row(workload: &str, engine: Engine, results: &[Value], base: Option<f64>) -> Vec<String> {
    let median_of = |pointer: &str| median(results, |result| number(result, pointer));
    let rates: Vec<f64> = results.iter().map(|result| number(result, "/ops_per_second")).collect();
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    let ratio = base.filter(|base| *base > 0.0 && !is_ordered(results)).map(|base| rate(results) / base);
    // Loads and the last workload: totals after settling; all others: totals so far.
    let is_settled = results.iter().all(|result| result["settled"].is_object());
    let written = if is_settled { "/settled/process_bytes_written" } else { "/process_bytes_written" };
    let space = if is_settled { "/settled/space_amplification" } else { "/space_amplification" };
    let per = |dividend: f64, divisor: f64| if divisor > 0.0 { dividend / divisor } else { 0.0 };
    let write_amplification =
        median(results, |result| per(number(result, written), number(result, "/user_bytes_written")));
    let read_per_op =
        median(results, |result| per(number(result, "/process_bytes_read"), number(result, "/ops")));
    let has = |pointer: &str| results.iter().all(|result| result.pointer(pointer).is_some());
    vec![
        workload.to_owned(),
        engine.name(),
        human_count(rate(results)),
        human_count(least),
        human_count(most),
        ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        human_count(median_of("/first_10s_rate")),
        human_count(median_of("/last_10s_rate")),
        format!("{:.1}", median_of("/latency_us/p50")),
        format!("{:.1}", median_of("/latency_us/p99")),
        format!("{:.1}", median_of("/latency_us/p999")),
        format!("{:.1}", median_of("/max_stall_ms")),
        format!("{:.2}", median_of("/cpu_us_per_op")),
        human_bytes(whole(median_of(written))),
        format!("{write_amplification:.2}"),
        human_count(read_per_op),
        format!("{:.3}", median_of(space)),
        human_bytes(whole(median_of("/peak_rss_bytes"))),
        if has("/reopen_seconds") { format!("{:.2}", median_of("/reopen_seconds")) } else { String::new() },
        results.first().and_then(|result| result["survives"].as_str()).unwrap_or_default().to_owned(),
        results.iter().map(|result| number(result, "/wrong_answers")).sum::<f64>().to_string(),
    ]
}

/// Whether this is a load in key order, which is not comparable.
fn is_ordered(results: &[Value]) -> bool {
    results.iter().any(|result| result["ordered_load"] == true)
}

fn rate(results: &[Value]) -> f64 {
    median(results, |result| number(result, "/ops_per_second"))
}

fn number(result: &Value, pointer: &str) -> f64 {
    result.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded for display")]
fn whole(value: f64) -> u64 {
    value as u64
}

fn median(results: &[Value], of: impl Fn(&Value) -> f64) -> f64 {
    let mut values: Vec<f64> = results.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (count, middle) if count % 2 == 1 => values[middle],
        (_, middle) => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests;
