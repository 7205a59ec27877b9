//! Replays a recorded history: batches of puts and deletes of source trees, or block reads and writes.
//!
//! **Invariants**
//! - A model holds every live key. Every read is checked against it, and at the end the whole store is
//!   compared in both directions, before and after it was closed and reopened.
//! - Each batch of the trace is exactly one batch of the store.

mod block;
mod git;
mod model;
pub(crate) mod trace;

use std::{path::Path, sync::Arc, time::Duration};

use model::{Model, write_value};
use testudo::{Db, Durability, Error, Keyspace, Result};
use testudo_base::{
    MAX_VALUE_BYTES,
    num::{u64_of, usize_of},
};
use testudo_db::maintenance::Stepping as _;
use testudo_env::Env;
use trace::{Operation, Trace};

use crate::{
    Context, Outcome, ReplayArgs,
    measure::process,
    report::{
        Report, Sample, Totals,
        complaints::Complaints,
        output::Output,
        size::{floor, quotient},
        tally::{Class, Tally},
    },
    subject::{Readings, scratch::Scratch},
};

const KEYSPACE: &str = "replay";
const SMOKE_OPERATIONS: u64 = 2_000;

/// Replays the trace.
pub(crate) fn run(args: &ReplayArgs, context: &Context) -> Result<Outcome> {
    let mut trace = Trace::open(&args.file, args.format)?;
    let mut output = Output::new(args.store.json.as_deref())?;
    let scratch = Scratch::new(&*context.env, args.store.dir.as_deref(), args.store.tmp.as_deref())?;
    let (db, keyspace) = open(args, context, scratch.path())?;
    if keyspace.iter()?.next().is_some() {
        return Err(Error::invalid("--dir already holds a replayed trace: name an empty directory"));
    }
    let mut report = new_report(args);
    let mut replayer = Replayer::new(args, context, &db, &keyspace);
    process::reset_peak_rss();
    let before = Sample::take(Readings::from(&db.stats()));
    let started = context.env.monotonic();
    replayer.replay(&mut trace)?;
    let after = Sample::take(Readings::from(&db.stats()));
    let Replayer { model, complaints, mut tally, .. } = replayer;
    tally.ended = tally.ended.max(started);
    report.measure(&Totals::of(&[tally], 1, started), &before, &after);
    report.interrupted = context.stopped();
    report.records = u64_of(model.len());
    report.space_amplification = quotient(after.store.disk_bytes as f64, model.live_bytes() as f64);

    model.compare(&keyspace, &complaints)?;
    db.check_invariants()?;
    drop(keyspace);
    db.close()?;
    let reopening = context.env.monotonic();
    let (db, keyspace) = open(args, context, scratch.path())?;
    report.reopen_seconds = Some((context.env.monotonic() - reopening).as_secs_f64());
    model.compare(&keyspace, &complaints)?;
    drop(keyspace);
    db.close()?;

    report.wrong_answers = complaints.count();
    output.result(&report)?;
    output.table(&[Report::table_head(), report.table_row()])?;
    Ok(Outcome::of(report.wrong_answers))
}

fn open(args: &ReplayArgs, context: &Context, dir: &Path) -> Result<(Db, Keyspace)> {
    let options = args.store.keyspace_options()?;
    let env: Arc<dyn Env> = context.env.clone();
    let durability = if args.sync { Durability::Sync } else { Durability::Buffered };
    let builder = Db::builder(dir).memory_bytes(args.store.memory).durability(durability).env(env);
    let db = builder.open()?;
    if let Some(share) = args.store.write_share {
        db.memory().set_write_share(share)?;
    }
    let keyspace = db.keyspace(KEYSPACE, || options)?;
    Ok((db, keyspace))
}

fn new_report(args: &ReplayArgs) -> Report {
    let file = args.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Report {
        engine: "testudo",
        tree: args.store.tree.clone(),
        workload: format!("replay:{}", file.split('.').next().unwrap_or_default()),
        distribution: "trace".to_owned(),
        keyspaces: 1,
        threads: 1,
        sync: args.sync,
        memory_bytes: args.store.memory,
        ..Report::default()
    }
}

/// Applies batches to the store and the model.
struct Replayer<'a> {
    args: &'a ReplayArgs,
    context: &'a Context,
    db: &'a Db,
    keyspace: &'a Keyspace,
    model: Model,
    complaints: Complaints,
    tally: Tally,
    /// Number of operations of the trace so far; serves as the sequence number of each write.
    operations: u64,
    value: Vec<u8>,
    last_reading: Duration,
}

impl<'a> Replayer<'a> {
    fn new(args: &'a ReplayArgs, context: &'a Context, db: &'a Db, keyspace: &'a Keyspace) -> Self {
        Self {
            args,
            context,
            db,
            keyspace,
            model: Model::default(),
            complaints: Complaints::default(),
            tally: Tally::new(),
            operations: 0,
            value: Vec::new(),
            last_reading: Duration::ZERO,
        }
    }

    fn replay(&mut self, trace: &mut Trace) -> Result<()> {
        let limit = match self.args.limit {
            Some(limit) => limit,
            None if self.args.store.smoke => SMOKE_OPERATIONS,
            None => u64::MAX,
        };
        let mut batch = Vec::new();
        while self.operations < limit && !self.context.stopped() && trace.next_batch(&mut batch)? {
            self.verify_some(&batch)?;
            match &batch[..] {
                [Operation::Get { key }] => {
                    self.operations += 1;
                    self.get(key)?;
                }
                [Operation::Fetch { key, bytes }] => {
                    self.get(key)?;
                    if self.model.contains(key) {
                        self.operations += 1;
                    } else {
                        self.write(&[Operation::Put { key: key.clone(), bytes: *bytes }])?;
                    }
                }
                writes => self.write(writes)?,
            }
        }
        self.tally.ended = self.context.env.monotonic();
        Ok(())
    }

    /// Reads and checks the keys of some writes before they are written.
    fn verify_some(&mut self, batch: &[Operation]) -> Result<()> {
        for (number, operation) in (self.operations..).zip(batch) {
            if number % self.args.verify_every == 0
                && let Operation::Put { key, .. } | Operation::Delete { key } = operation
            {
                self.get(key)?;
            }
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8]) -> Result<()> {
        self.last_reading = self.context.env.monotonic();
        let found = self.keyspace.get(key)?;
        self.lap(Class::Read, 1);
        self.tally.reads += 1;
        self.tally.read_bytes += found.as_ref().map_or(0, |value| u64_of(key.len() + value.len()));
        self.complaints.note(self.model.judge(key, found.as_deref()));
        Ok(())
    }

    /// Commits puts and deletes in one batch.
    fn write(&mut self, operations: &[Operation]) -> Result<()> {
        let mut batch = self.db.batch();
        for operation in operations {
            self.operations += 1;
            match operation {
                Operation::Put { key, bytes } => {
                    let scaled = floor((*bytes as f64 * self.args.value_scale).ceil()).min(MAX_VALUE_BYTES);
                    self.value.resize(usize_of(scaled), 0);
                    write_value(key, self.operations, &mut self.value);
                    batch.insert(self.keyspace, key, &self.value);
                    self.model.put(key, self.operations, self.value.len());
                    self.tally.written_bytes += u64_of(key.len() + self.value.len());
                }
                Operation::Delete { key } => {
                    batch.remove(self.keyspace, key);
                    self.model.delete(key);
                    self.tally.written_bytes += u64_of(key.len());
                }
                Operation::Get { .. } | Operation::Fetch { .. } => {
                    return Err(Error::invalid("a trace with a read inside a batch of writes"));
                }
            }
        }
        self.last_reading = self.context.env.monotonic();
        batch.commit()?;
        self.lap(Class::Write, u64_of(operations.len()));
        self.tally.writes += 1;
        Ok(())
    }

    /// Records only store calls: reading the trace and maintaining the model are not the store's work.
    fn lap(&mut self, class: Class, operations: u64) {
        let latency = self.context.env.monotonic().saturating_sub(self.last_reading);
        self.tally.record(class, operations, latency);
    }
}

#[cfg(test)]
mod tests;
