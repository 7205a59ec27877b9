//! Third part of the tour: many small records in random order, more than fit in memory.

use std::thread;

use testudo::{Db, DbStats, Keyspace, KeyspaceOptions};
use testudo_base::num::{u64_of, usize_of};

use super::{Demo, made_up, tour::per_second};
use crate::{
    context::Interruption,
    failure::Failure,
    output::size::{show_count, show_size},
};

const KEY_BYTES: u64 = 24;
const VALUE_BYTES: usize = 100;
const WRITERS: u64 = 2;
const POINT_READS_MAX: u64 = 200_000;
const RECORDS_BETWEEN_LOOKS: u64 = 4096;

impl Demo<'_> {
    /// Loads, reads and scans the records.
    pub(super) fn synthetic(&mut self, db: &Db) -> Result<(), Failure> {
        let records = self.records;
        let title =
            format!("{} records of {KEY_BYTES} + {VALUE_BYTES} bytes in random order", show_count(records));
        self.report.section("synthetic", &title)?;
        let keyspace = db.keyspace("synthetic", KeyspaceOptions::default)?;
        let before = db.stats();
        let ((), time) = self.measure(|demo| load(&keyspace, records, &demo.interruption))?;
        self.go_on()?;
        let rate = per_second(records, time.as_secs_f64());
        let text = format!("{} records/s from {WRITERS} threads", show_count(rate));
        self.report.measurement("load", &text, "load_records_per_second", rate)?;
        let (_, flushing) = self.measure(|_| Ok(db.flush()?))?;
        let text = format!("{:.2} s until all records are in the tree", flushing.as_secs_f64());
        self.report.measurement("flush", &text, "flush_seconds", flushing.as_secs_f64())?;
        self.amplification(&before, &db.stats())?;
        self.random_reads(&keyspace, records)?;
        self.whole_scan(&keyspace, records)
    }

    fn amplification(&mut self, before: &DbStats, after: &DbStats) -> Result<(), Failure> {
        let user = after.writes.bytes - before.writes.bytes;
        let device = after.io.bytes_written - before.io.bytes_written;
        let ratio = device as f64 / user.max(1) as f64;
        let text = format!("{ratio:.2}: {} written for {} of records", show_size(device), show_size(user));
        self.report.measurement("write amplification", &text, "write_amplification", ratio)?;
        let stall = after.stalls.max_micros as f64 / 1000.0;
        self.report.measurement("longest write stall", &format!("{stall:.1} ms"), "max_stall_ms", stall)
    }

    fn random_reads(&mut self, keyspace: &Keyspace, records: u64) -> Result<(), Failure> {
        let reads = POINT_READS_MAX.min(records);
        let ((), time) = self.measure(|demo| {
            for number in 0..reads {
                let picked = demo.random.below(records);
                let found = keyspace.get(made_up::scattered_key(picked))?;
                let right = found.is_some_and(|value| made_up::is_value(&value, picked, VALUE_BYTES));
                demo.report.check(right, "a synthetic record has a wrong value")?;
                if number % RECORDS_BETWEEN_LOOKS == 0 {
                    demo.go_on()?;
                }
            }
            Ok(())
        })?;
        let rate = per_second(reads, time.as_secs_f64());
        let text = format!("{} reads/s from one thread", show_count(rate));
        self.report.measurement("random reads", &text, "reads_per_second", rate)
    }

    fn whole_scan(&mut self, keyspace: &Keyspace, records: u64) -> Result<(), Failure> {
        let (count, time) = self.measure(|demo| {
            let (mut count, mut last) = (0, Vec::new());
            for entry in keyspace.iter()? {
                let entry = entry?;
                demo.report.check(count == 0 || *entry.key() > last[..], "a scan is out of order")?;
                last.clear();
                last.extend_from_slice(entry.key());
                demo.report
                    .check(entry.value()?.len() == VALUE_BYTES, "a scanned value has a wrong length")?;
                count += 1;
            }
            Ok(count)
        })?;
        self.report.check(count == records, "a scan has too many or too few records")?;
        let rate = per_second(count, time.as_secs_f64());
        let text = format!("{} records/s", show_count(rate));
        self.report.measurement("whole scan", &text, "scan_records_per_second", rate)
    }
}

/// Inserts records `0..records` from several threads.
fn load(keyspace: &Keyspace, records: u64, interruption: &Interruption) -> Result<(), Failure> {
    let write = |writer: u64| -> testudo::Result<()> {
        for number in (writer..records).step_by(usize_of(WRITERS)) {
            keyspace.insert(made_up::scattered_key(number), made_up::value(number, VALUE_BYTES))?;
            if number % RECORDS_BETWEEN_LOOKS == writer && interruption.is_raised() {
                break;
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        writers.into_iter().try_for_each(|writer| match writer.join() {
            Ok(result) => result.map_err(Failure::from),
            Err(_) => Err(Failure::new("demo: a writing thread panicked")),
        })
    })
}

/// Total bytes of keys and values of `records` records.
pub(super) fn record_bytes(records: u64) -> u64 {
    records * (KEY_BYTES + u64_of(VALUE_BYTES))
}
