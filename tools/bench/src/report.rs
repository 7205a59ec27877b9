//! The result of one workload or trace: one line of JSON, one row of the table.
//!
//! Amplifications are ratios of device traffic to user traffic within the workload: bytes written to keys and
//! values written, bytes read to keys and values returned, occupied bytes to all live records.
//!
//! **Invariants**
//! - Counters are differences over the workload; sizes are sampled right after it.
//! - A ratio whose divisor is zero is zero.

pub(crate) mod complaints;
pub(crate) mod histogram;
pub(crate) mod line_chart;
pub(crate) mod output;
pub(crate) mod rate_over_time;
pub(crate) mod size;
pub(crate) mod tally;

use std::{collections::BTreeMap, time::Duration};

use crate::{
    measure::process::{self, ProcessIo},
    report::{
        histogram::{Histogram, Percentiles},
        rate_over_time::OverTime,
        size::{human_bytes, human_count, quotient},
        tally::{Class, Tally},
    },
    subject::{PageCounts, PageWork, Readings},
    workloads::ycsb::{BackupResult, SwitchResult},
};
use serde::Serialize;

/// Length of the periods at the beginning and the end of a workload with their own rates.
const TEN_SECONDS: Duration = Duration::from_secs(10);

/// Readings taken before and after a workload.
pub(crate) struct Sample {
    pub(crate) store: Readings,
    cpu_seconds: f64,
    pub(crate) io: Option<ProcessIo>,
}

impl Sample {
    pub(crate) fn take(store: Readings) -> Self {
        Self { store, cpu_seconds: process::cpu_seconds(), io: process::io() }
    }
}

/// The full result of one workload.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) engine: &'static str,
    pub(crate) tree: String,
    pub(crate) workload: String,
    pub(crate) distribution: String,
    pub(crate) records: u64,
    pub(crate) key_bytes: u64,
    pub(crate) value_bytes: u64,
    pub(crate) keyspaces: usize,
    pub(crate) threads: usize,
    /// Threads, included in `threads`, that updated records throughout.
    #[serde(skip_serializing_if = "is_none")]
    pub(crate) writers: usize,
    pub(crate) sync: bool,
    /// Records were loaded in key order, by one thread, with the store's method for ordered loads.
    #[serde(skip_serializing_if = "is_not")]
    pub(crate) ordered_load: bool,
    /// Percentage of the inserts that came in key order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sequential_share: Option<u8>,
    /// Duration of the warm-up before the measurement.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) warmup_seconds: f64,
    /// Updates per second concurrent with the measured operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) updates_beside: Option<u64>,
    /// Hot range as a fraction of all keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hot_fraction: Option<f64>,
    pub(crate) memory_bytes: u64,
    pub(crate) ops: u64,
    pub(crate) seconds: f64,
    pub(crate) ops_per_second: f64,
    /// Rates of the first and the last ten seconds, warm-up included; of the whole time if it is shorter.
    pub(crate) first_10s_rate: f64,
    pub(crate) last_10s_rate: f64,
    /// Rate in each second, warm-up included; with --reopen-each and with concurrent updates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) rate_by_second: Vec<f64>,
    /// Pages read from the device for queries in each of those seconds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) page_reads_by_second: Vec<f64>,
    /// Peak of the store's live bytes in each second of such a workload, without warm-up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) live_bytes_by_second: Vec<u64>,
    pub(crate) latency_us: Percentiles,
    /// With --rate: latency of the calls alone, without the time an operation started late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) call_latency_us: Option<Percentiles>,
    /// Mean latency of the first and the last thousand peeks at the front of a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_looks_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_looks_us: Option<f64>,
    pub(crate) latency_us_by_class: BTreeMap<&'static str, Percentiles>,
    pub(crate) ops_by_class: BTreeMap<&'static str, u64>,
    pub(crate) user_bytes_written: u64,
    pub(crate) user_bytes_read: u64,
    pub(crate) device_bytes_written: u64,
    pub(crate) device_bytes_read: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) process_bytes_written: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) process_bytes_read: Option<u64>,
    pub(crate) write_amplification: f64,
    /// Write amplification without the log's bytes, for stores that count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) write_amplification_without_log: Option<f64>,
    pub(crate) read_amplification: f64,
    pub(crate) space_amplification: f64,
    /// Peak while the workload ran.
    pub(crate) space_amplification_peak: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) settled: Option<Settled>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) space_amplification_settled: Option<f64>,
    pub(crate) disk_bytes: u64,
    pub(crate) peak_disk_bytes: u64,
    pub(crate) wal_bytes_written: u64,
    pub(crate) flushes: u64,
    pub(crate) page_reads: u64,
    /// Reads of larger units, by long scans and background work.
    pub(crate) stream_reads: u64,
    pub(crate) page_reads_per_read: f64,
    pub(crate) cache_hits: u64,
    pub(crate) cache_misses: u64,
    pub(crate) syncs: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) commits_per_second: Option<f64>,
    pub(crate) max_stall_ms: f64,
    pub(crate) throttled_ms: f64,
    pub(crate) jobs: u64,
    /// Bytes read and written by the largest background job since the store was opened, and their limit.
    pub(crate) job_bytes_max: u64,
    pub(crate) job_bytes_limit: u64,
    pub(crate) cpu_seconds: f64,
    pub(crate) cpu_us_per_op: f64,
    pub(crate) peak_rss_bytes: u64,
    /// Part of `peak_rss_bytes` in the driver's list of records in key order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_order_bytes: Option<u64>,
    /// Pages of treeline trees at the end that have been replaced since their run was written, and overflow
    /// pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replaced_pages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) overflow_pages: Option<u64>,
    /// The same of index pages, and of records that cannot be updated page by page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) index_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) continued_bytes: Option<u64>,
    /// Work of treeline trees during the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pages_replaced: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pages_overflowed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) page_inserts: Option<u64>,
    /// Groups of pages that were moved to be near each other, and pages that were split or joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) groups_moved: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) groups_reorganized: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) forecast_hits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) runs_rewritten: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) direct_flushes: Option<u64>,
    /// Time to reopen the store after it was closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reopen_seconds: Option<f64>,
    /// With --reopen-each: time to open the store before the workload and to close it afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) open_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) close_seconds: Option<f64>,
    /// Tree switches during the workload; `tree` is the first tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tree_switches: Option<SwitchResult>,
    /// Number of snapshots held during the workload, one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) snapshots_held: Option<u64>,
    /// Division of the memory, where divisions are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) division: Option<String>,
    /// Set on the last line of a run that made a backup.
    #[serde(flatten)]
    pub(crate) backup: Option<BackupResult>,
    /// A backup was made during the workload; the process measurements include its reads and writes.
    #[serde(skip)]
    pub(crate) is_backed_up: bool,
    /// The run was stopped before the workload was complete.
    pub(crate) interrupted: bool,
    pub(crate) wrong_answers: u64,
}

/// Measurements after background work settled, from the start of the workload.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Settled {
    /// Time until background work settled.
    pub(crate) seconds: f64,
    pub(crate) device_bytes_written: u64,
    /// As counted by the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) process_bytes_written: Option<u64>,
    pub(crate) write_amplification: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) write_amplification_without_log: Option<f64>,
    /// Without the reads of the checks in between.
    pub(crate) device_bytes_read: u64,
    pub(crate) wal_bytes_written: u64,
    /// Without the CPU time of the checks in between.
    pub(crate) cpu_seconds: f64,
    pub(crate) space_amplification: f64,
}

/// Sum over all threads of a workload.
pub(crate) struct Totals {
    /// By class, of all threads.
    latency: Vec<Histogram>,
    calls: Histogram,
    /// Of the counted threads only.
    pub(crate) operations: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) longest_gap: Duration,
    pub(crate) seconds: f64,
}

impl Totals {
    /// Sums the `tallies` of threads that were started at `started`; only the first `counted` of them
    /// contribute to `operations`.
    pub(crate) fn of(tallies: &[Tally], counted: usize, started: Duration) -> Self {
        let mut latency = vec![Histogram::new(); Class::ALL.len()];
        let mut calls = Histogram::new();
        for tally in tallies {
            calls.merge(&tally.calls);
            for (sum, part) in latency.iter_mut().zip(&tally.latency) {
                sum.merge(part);
            }
        }
        let sum = |field: fn(&Tally) -> u64| tallies.iter().map(field).sum();
        let ended = tallies.iter().map(|tally| tally.ended).max().unwrap_or(started);
        Self {
            latency,
            calls,
            operations: tallies.iter().take(counted).map(|tally| tally.operations).sum(),
            reads: sum(|tally| tally.reads),
            writes: sum(|tally| tally.writes),
            read_bytes: sum(|tally| tally.read_bytes),
            written_bytes: sum(|tally| tally.written_bytes),
            longest_gap: tallies.iter().map(|tally| tally.longest_gap).max().unwrap_or_default(),
            seconds: ended.saturating_sub(started).as_secs_f64(),
        }
    }

    /// Returns the time at which all threads were done, and the number of operations.
    pub(crate) fn end(&self, started: Duration) -> (Duration, u64) {
        (started + Duration::from_secs_f64(self.seconds), self.operations)
    }
}

impl Report {
    /// Fills in the measurements between `before` and `after`.
    pub(crate) fn measure(&mut self, totals: &Totals, before: &Sample, after: &Sample) {
        let mut combined = Histogram::new();
        for ((_, name), histogram) in Class::ALL.iter().zip(&totals.latency) {
            if histogram.count() > 0 {
                combined.merge(histogram);
                self.latency_us_by_class.insert(name, histogram.percentiles());
                self.ops_by_class.insert(name, histogram.count());
            }
        }
        self.latency_us = combined.percentiles();
        self.call_latency_us = (totals.calls.count() > 0).then(|| totals.calls.percentiles());
        self.ops = totals.operations;
        self.seconds = totals.seconds;
        self.ops_per_second = quotient(totals.operations as f64, totals.seconds);
        self.user_bytes_written = totals.written_bytes;
        self.user_bytes_read = totals.read_bytes;
        self.max_stall_ms = totals.longest_gap.as_secs_f64() * 1e3;
        self.cpu_seconds = after.cpu_seconds - before.cpu_seconds;
        self.cpu_us_per_op = quotient(self.cpu_seconds * 1e6, totals.operations as f64);
        self.peak_rss_bytes = process::peak_rss_bytes().unwrap_or(0);
        if self.sync {
            self.commits_per_second = Some(quotient(totals.writes as f64, totals.seconds));
        }
        self.count_device(totals, before, after);
    }

    fn count_device(&mut self, totals: &Totals, before: &Sample, after: &Sample) {
        let difference =
            |field: fn(&Readings) -> u64| field(&after.store).saturating_sub(field(&before.store));
        self.device_bytes_written = difference(|stats| stats.device_bytes_written);
        self.device_bytes_read = difference(|stats| stats.device_bytes_read);
        self.wal_bytes_written = difference(|stats| stats.wal_bytes_written);
        self.flushes = difference(|stats| stats.flushes);
        self.page_reads = difference(|stats| stats.page_reads);
        self.stream_reads = difference(|stats| stats.stream_reads);
        self.cache_hits = difference(|stats| stats.cache_hits);
        self.cache_misses = difference(|stats| stats.cache_misses);
        self.syncs = difference(|stats| stats.syncs);
        self.throttled_ms = difference(|stats| stats.throttled_micros) as f64 / 1e3;
        self.jobs = difference(|stats| stats.jobs);
        self.job_bytes_max = after.store.job_bytes_max;
        self.job_bytes_limit = after.store.job_bytes_limit;
        self.disk_bytes = after.store.disk_bytes;
        self.write_amplification = quotient(self.device_bytes_written as f64, totals.written_bytes as f64);
        self.write_amplification_without_log =
            without_log(self.device_bytes_written, self.wal_bytes_written, totals.written_bytes);
        self.read_amplification = quotient(self.device_bytes_read as f64, totals.read_bytes as f64);
        self.page_reads_per_read = quotient(self.page_reads as f64, totals.reads as f64);
        if let (Some(before), Some(after)) = (before.io, after.io) {
            let (written, read) =
                (after.write_bytes - before.write_bytes, after.read_bytes - before.read_bytes);
            self.process_bytes_written = Some(written);
            self.process_bytes_read = Some(read);
            self.warn_of_difference("written", self.device_bytes_written, written);
            self.warn_of_difference("read", self.device_bytes_read, read);
        }
    }

    /// Warns if the store's own count and the kernel's differ, since the ratios are then unreliable.
    fn warn_of_difference(&self, direction: &str, counted: u64, seen: u64) {
        if !self.is_backed_up && counted.abs_diff(seen) > (counted.max(seen) / 10).max(4 << 20) {
            eprintln!(
                "warning: workload {}: the store counted {} {direction}, the kernel {}",
                self.workload,
                human_bytes(counted),
                human_bytes(seen)
            );
        }
    }

    pub(crate) fn table_head() -> Vec<String> {
        let names = [
            "workload",
            "ops",
            "ops/s",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
            "max ms",
            "w-amp",
            "r-amp",
            "pages/read",
            "space",
            "peak RSS",
            "CPU µs/op",
            "stall ms",
            "wrong",
        ];
        names.map(str::to_owned).to_vec()
    }

    /// Fills in the rates over time; with `in_full`, also the rate of every second.
    pub(crate) fn note_rates(&mut self, rates: &OverTime<'_>, in_full: bool) {
        self.first_10s_rate = rates.operations.first(TEN_SECONDS);
        self.last_10s_rate = rates.operations.last(TEN_SECONDS);
        if in_full {
            self.rate_by_second = rates.operations.by_second();
            self.page_reads_by_second = rates.page_reads.by_second();
        }
    }

    /// Sets the page counts: the sums over keyspaces that have them, `None` if none has. `before`: their work
    /// before the workload.
    pub(crate) fn note_pages(&mut self, counts: Option<PageCounts>, before: PageWork) {
        let Some(PageCounts { replaced, overflow, index_bytes, continued_bytes, work }) = counts else {
            return;
        };
        let PageWork {
            replaced: pages_replaced,
            overflowed,
            joined,
            moved_groups,
            inserts,
            forecast_hits,
            rewritten_runs,
            direct_flushes,
        } = work.since(before);
        (self.replaced_pages, self.overflow_pages) = (Some(replaced), Some(overflow));
        (self.index_bytes, self.continued_bytes) = (Some(index_bytes), Some(continued_bytes));
        (self.pages_replaced, self.pages_overflowed) = (Some(pages_replaced), Some(overflowed));
        (self.groups_moved, self.groups_reorganized) = (Some(moved_groups), Some(overflowed + joined));
        (self.page_inserts, self.forecast_hits) = (Some(inserts), Some(forecast_hits));
        (self.runs_rewritten, self.direct_flushes) = (Some(rewritten_runs), Some(direct_flushes));
    }

    /// Returns a line about a workload with its own opening and closing: its rates at the beginning and the
    /// end, and how long opening and closing took.
    pub(crate) fn line_of_openings(&self) -> Option<String> {
        let (opened, closed) = (self.open_seconds?, self.close_seconds?);
        Some(format!(
            "{}: opened in {opened:.2} s, first_10s_rate {}/s, last_10s_rate {}/s, closed in {closed:.2} s\n",
            self.workload,
            human_count(self.first_10s_rate),
            human_count(self.last_10s_rate),
        ))
    }

    /// Returns a line about the latency of the calls alone, which the table has no column for; with --rate.
    pub(crate) fn line_of_calls(&self) -> Option<String> {
        let Percentiles { p50, p99, p999, max, .. } = self.call_latency_us?;
        let max = max / 1e3;
        let name = &self.workload;
        Some(format!(
            "{name}: latency of calls alone: p50 {p50:.1} µs, p99 {p99:.1} µs, p99.9 {p999:.1} µs, max \
             {max:.1} ms\n"
        ))
    }

    pub(crate) fn table_row(&self) -> Vec<String> {
        let Percentiles { p50, p99, p999, max, .. } = self.latency_us;
        let name =
            if self.interrupted { format!("{} (stopped)", self.workload) } else { self.workload.clone() };
        vec![
            name,
            human_count(self.ops as f64),
            human_count(self.ops_per_second),
            format!("{p50:.1}"),
            format!("{p99:.1}"),
            format!("{p999:.1}"),
            format!("{:.1}", max / 1e3),
            format!("{:.2}", self.write_amplification),
            format!("{:.2}", self.read_amplification),
            format!("{:.3}", self.page_reads_per_read),
            format!("{:.3}", self.space_amplification),
            human_bytes(self.peak_rss_bytes),
            format!("{:.2}", self.cpu_us_per_op),
            format!("{:.1}", self.max_stall_ms),
            self.wrong_answers.to_string(),
        ]
    }
}

/// Returns the write amplification of a store without its log, if the store counts the log.
pub(crate) fn without_log(written: u64, log: u64, user_written: u64) -> Option<f64> {
    (log > 0).then(|| quotient(written.saturating_sub(log) as f64, user_written as f64))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_not(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(value: &usize) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

#[cfg(test)]
mod tests;
