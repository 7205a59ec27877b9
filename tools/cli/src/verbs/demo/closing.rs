//! Last part of the tour: verifies everything and summarizes the measurements.

use std::{fs, time::Duration};

use testudo::{Db, DbStats, VerifyLevel};

use super::{Demo, synthetic::record_bytes};
use crate::{
    failure::Failure,
    output::size::{show_count, show_size},
};

/// Measurements of the store before the kills, which reset its counters.
pub(super) struct Totals {
    stats: DbStats,
}

impl Totals {
    /// Takes the measurements.
    pub(super) fn of(db: &Db) -> Result<Self, Failure> {
        Ok(Self { stats: db.stats() })
    }
}

impl Demo<'_> {
    /// Verifies everything on disk.
    pub(super) fn verify(&mut self) -> Result<(), Failure> {
        self.report.section("verify", "Everything on disk, checked")?;
        let db = self.open()?;
        let (report, time) = self.measure(|_| Ok(db.verify(VerifyLevel::Full)))?;
        match report {
            Ok(report) => {
                for finding in &report.findings {
                    self.report.check(false, &format!("verification: {finding}"))?;
                }
                let text = format!(
                    "{}: {} keyspaces, {} entries in trees, {} in write buffers, {}, in {:.1} s",
                    if report.is_valid() { "valid" } else { "DAMAGED" },
                    report.keyspaces,
                    show_count(report.entries),
                    show_count(report.buffered_entries),
                    show_size(report.bytes),
                    time.as_secs_f64()
                );
                self.report.measurement("verify --full", &text, "sound", report.is_valid())?;
            }
            Err(error) => self.report.check(false, &format!("verification: {error}"))?,
        }
        let stats = db.stats();
        let live = stats.space.live_bytes;
        let text =
            format!("{} on the device, {} of it live", show_size(stats.space.disk_bytes), show_size(live));
        self.report.measurement("space", &text, "disk_bytes", stats.space.disk_bytes)?;
        Ok(db.close()?)
    }

    /// Prints the summary.
    pub(super) fn close(&mut self, totals: &Totals, time: Duration) -> Result<(), Failure> {
        let stats = &totals.stats;
        self.report.section("summary", "Summary")?;
        let writes = format!(
            "{} writes, {} of records",
            show_count(stats.writes.count),
            show_size(stats.writes.bytes)
        );
        self.report.measurement("written", &writes, "user_bytes_written", stats.writes.bytes)?;
        let ratio = stats.io.bytes_written as f64 / stats.writes.bytes.max(1) as f64;
        let text = format!("{ratio:.2}, write-ahead log included");
        self.report.measurement("write amplification", &text, "write_amplification", ratio)?;
        self.memory(stats)?;
        let synthetic = record_bytes(self.records);
        self.report.measurement("synthetic records", &show_size(synthetic), "synthetic_bytes", synthetic)?;
        let seconds = time.as_secs_f64();
        self.report.measurement("time", &format!("{seconds:.1} s"), "seconds", seconds)?;
        match self.report.wrong() {
            0 => self.report.note("\nEvery answer was correct."),
            wrong => self.report.note(&format!("\n{wrong} WRONG ANSWERS.")),
        }
    }

    fn memory(&mut self, stats: &DbStats) -> Result<(), Failure> {
        let text = format!(
            "{} in total: {} for write buffers, {} for cached pages ({} used)",
            show_size(stats.memory.budget_bytes),
            show_size(stats.write_memory.bytes),
            show_size(stats.page_cache.capacity_bytes),
            show_size(stats.page_cache.used_bytes),
        );
        self.report.measurement("memory of the store", &text, "memory_bytes", stats.memory.budget_bytes)?;
        match peak_resident_bytes() {
            Some(peak) => {
                let text = format!("{} at peak, including the history and its model", show_size(peak));
                self.report.measurement("memory of the process", &text, "peak_rss_bytes", peak)
            }
            None => Ok(()),
        }
    }
}

/// Peak resident memory of this process, if the system reports it.
fn peak_resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
