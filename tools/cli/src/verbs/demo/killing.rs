//! Fourth part of the tour: a writing process is killed with SIGKILL, and the surviving records are checked.
//!
//! **Invariants**
//! - The child has exited and been reaped before the store is opened again, in every case.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use testudo::{Db, Keyspace};
use testudo_env::Env;

use super::{
    Demo,
    writer::{KEYSPACES, RECORDS_PER_BATCH, key, value},
};
use crate::{failure::Failure, output::size::show_count};

const ROUNDS: u64 = 3;
const SYNC_EVERY: u64 = 32;
const LIFE_MILLIS: (u64, u64) = (100, 900);
const FIRST_REPORT_WITHIN: Duration = Duration::from_secs(30);

/// Kills the child when dropped.
struct Victim(Child);

impl Victim {
    fn kill(&mut self) {
        // The child may have exited already, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Demo<'_> {
    /// Kills the writer several times.
    pub(super) fn killing(&mut self, db: Db) -> Result<(), Failure> {
        self.report.section("killing", "A writing process, killed with SIGKILL")?;
        self.report.note(&format!(
            "A child writes batches of {RECORDS_PER_BATCH} numbered records to two keyspaces; one batch \
             in {SYNC_EVERY}"
        ))?;
        self.report.note("is synced and reported. The survivors must include every synced batch and be a")?;
        self.report.note("prefix of the written batches, without partial batches.")?;
        for name in KEYSPACES {
            db.keyspace(name, testudo::KeyspaceOptions::default)?;
        }
        db.close()?;
        let mut batches = 0;
        for round in 1..=ROUNDS {
            let synced = self.let_live_and_kill(batches)?.max(batches);
            let (db, opening) = self.measure(|demo| demo.open())?;
            let survived = self.surviving_batches(&db)?;
            self.report.check(survived >= synced, "a synced batch is lost")?;
            let text = format!(
                "{} batches synced since, {} survive; reopened in {} ms",
                show_count(synced.saturating_sub(batches)),
                show_count(survived.saturating_sub(batches)),
                opening.as_millis()
            );
            self.report.measurement(
                &format!("kill {round}"),
                &text,
                &format!("survived_batches_{round}"),
                survived,
            )?;
            batches = survived;
            db.close()?;
        }
        Ok(())
    }

    /// Runs the writer for a random time; returns the number of batches that it reported as synced.
    fn let_live_and_kill(&mut self, first_batch: u64) -> Result<u64, Failure> {
        let cannot = |error: std::io::Error| Failure::new(format!("demo: cannot start the writer: {error}"));
        let program = std::env::current_exe().map_err(cannot)?;
        let mut command = Command::new(program);
        command.arg("demo-writer").arg(&self.dir);
        command.args(["--first-batch", &first_batch.to_string(), "--sync-every", &SYNC_EVERY.to_string()]);
        command.args(["--memory", &self.memory_bytes.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut victim = Victim(command.spawn().map_err(cannot)?);
        let Some(reports) = victim.0.stdout.take() else {
            return Err(Failure::new("demo: the writer has no output"));
        };
        let (least, most) = LIFE_MILLIS;
        let life = Duration::from_millis(least + self.random.below(most - least));
        let synced = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&synced);
        thread::scope(|scope| {
            let reader = scope.spawn(move || read_reports(reports, &told));
            let started = self.env.monotonic();
            let waited = || self.env.monotonic().saturating_sub(started);
            while synced.load(Ordering::SeqCst) == 0
                && waited() < FIRST_REPORT_WITHIN
                && !reader.is_finished()
            {
                self.env.sleep(Duration::from_millis(5));
            }
            self.env.sleep(life);
            victim.kill();
        });
        self.go_on()?;
        match synced.load(Ordering::SeqCst) {
            0 => Err(Failure::new("demo: the writer never reported a synced batch")),
            synced => Ok(synced),
        }
    }

    /// Number of batches that survive completely; records every deviation from a prefix.
    fn surviving_batches(&mut self, db: &Db) -> Result<u64, Failure> {
        let mut counts = [0; 2];
        for (count, name) in counts.iter_mut().zip(KEYSPACES) {
            let Some(keyspace) = db.open_keyspace(name)? else {
                self.report.check(false, "a keyspace is missing")?;
                return Ok(0);
            };
            *count = self.prefix_records(&keyspace)?;
        }
        self.report.check(counts[0] == counts[1], "a batch survives in one keyspace only")?;
        let whole = counts[0].is_multiple_of(RECORDS_PER_BATCH);
        self.report.check(whole, "half a batch survives")?;
        Ok(counts[0] / RECORDS_PER_BATCH)
    }

    /// Number of records, which must be `0..` without holes and with the expected values.
    fn prefix_records(&mut self, keyspace: &Keyspace) -> Result<u64, Failure> {
        let mut count = 0;
        for entry in keyspace.iter()? {
            let entry = entry?;
            self.report.check(*entry.key() == key(count), "the surviving records have a hole")?;
            self.report.check(*entry.value()? == *value(count), "a surviving record has a wrong value")?;
            count += 1;
        }
        Ok(count)
    }
}

/// Stores the last report until the pipe ends; ignores a line truncated by the kill.
fn read_reports(reports: ChildStdout, last: &AtomicU64) {
    let mut reports = BufReader::new(reports);
    let mut line = String::new();
    while reports.read_line(&mut line).is_ok_and(|taken| taken > 0) {
        if let Some(number) = line.strip_suffix('\n').and_then(|line| line.parse().ok()) {
            last.store(number, Ordering::SeqCst);
        }
        line.clear();
    }
}
