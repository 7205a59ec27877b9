//! `testudo load`: puts the records of a file, or of standard input, in batches.
//!
//! **Invariants**
//! - Batches are atomic and applied in the order of the file; what is stored is always a prefix of the file.
//! - A value that is longer than a quarter of the memory is put alone, in pieces.
//! - When it ends with exit code 0, every record is on the device.
//! - A bad line, a failed write or Ctrl-C stops it after a whole batch; the message says which lines are
//!   stored.

mod record_format;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use testudo::{Batch, Db, Durability, Keyspace};
use testudo_base::num::u64_of;

use self::record_format::RecordFormat;
use crate::{
    arguments::{RecordArguments, StoreArguments},
    context::{Context, Interruption},
    failure::{Failure, Outcome, Verdict},
    input::line_reader::LineReader,
    output::{
        progress::{Progress, Unit},
        size::show_count,
    },
    store,
};

const BATCH_RECORDS: usize = 1000;
/// Large values end a batch early, so that it takes little memory.
const BATCH_BYTES: usize = 1 << 20;

/// Arguments of `testudo load`.
#[derive(Args, Debug)]
pub(crate) struct LoadArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// File of records, - for standard input
    file: PathBuf,
    #[command(flatten)]
    record: RecordArguments,
    /// How records are written; by default told from the file's name: .tsv, .jsonl, else lines
    #[arg(long, value_enum)]
    format: Option<RecordFormat>,
    /// Create the store, the directories above it and the keyspace if they do not exist
    #[arg(long)]
    create: bool,
}

/// Loads the file.
pub(crate) fn run(context: &mut Context, arguments: &LoadArguments) -> Outcome {
    let store = &arguments.store;
    let interruption = context.catch_interruption()?;
    let format = arguments.format.unwrap_or_else(|| RecordFormat::of_file(&arguments.file));
    format.check(arguments.record.formats).map_err(Failure::new)?;
    let mut lines = LineReader::open(context, &arguments.file, &interruption)?;
    let stopwatch = context.stopwatch();
    let db = store::open_or_create(context, store, arguments.create)?;
    let loaded = load(context, arguments, &db, &mut lines, &interruption);
    let (records, outcome) = match loaded {
        Ok(records) => (records, Ok(Verdict::Fine)),
        Err(failure) => (0, Err(failure)),
    };
    store.close(db, outcome)?;
    let seconds = stopwatch.elapsed().as_secs_f64();
    if context.json {
        let bytes_read = lines.position();
        let document = json!({ "records": records, "bytes_read": bytes_read, "seconds": seconds });
        context.console.json(&document)?;
    } else {
        context.console.line(format_args!("{} records in {seconds:.1} s", show_count(records)))?;
    }
    Ok(Verdict::Fine)
}

/// Loads all records; gives their number.
fn load(
    context: &Context,
    arguments: &LoadArguments,
    db: &Db,
    lines: &mut LineReader,
    interruption: &Interruption,
) -> Result<u64, Failure> {
    let keyspace = arguments.store.keyspace(db, &arguments.record.keyspace.name, arguments.create)?;
    let format = arguments.format.unwrap_or_else(|| RecordFormat::of_file(&arguments.file));
    let formats = arguments.record.formats;
    let mut progress = Progress::new(context, "load", lines.total_bytes(), Unit::Bytes);
    let mut loader = Loader::new(db, &keyspace, lines.name());
    loop {
        let interrupted = interruption.is_raised();
        let number = lines.number() + 1;
        let parsed = match lines.next_line() {
            Ok(line) if !interrupted => line.map(|line| format.parse(line, number, formats)).transpose(),
            Ok(_) => Ok(None),
            Err(reason) => Err(reason),
        };
        match parsed {
            Ok(Some(Some((key, value)))) => {
                if u64_of(value.len()) <= arguments.store.max_value_bytes() {
                    loader.add(number, &key, &value)?;
                } else {
                    loader.add_long(number, &key, &value)?;
                }
            }
            Ok(Some(None)) => loader.last_line = number,
            Ok(None) => break,
            Err(reason) => return Err(loader.bad_line(number, &reason)),
        }
        if loader.batch.is_empty() {
            progress.set(lines.position());
        }
    }
    loader.commit()?;
    db.persist(Durability::Sync).map_err(|error| arguments.store.failure(&error))?;
    if interruption.is_raised() {
        return Err(Failure::new(format!("interrupted; {}", loader.what_is_stored())));
    }
    Ok(loader.stored_records)
}

/// Collects records into batches.
struct Loader<'a> {
    db: &'a Db,
    keyspace: &'a Keyspace,
    source: String,
    batch: Batch,
    batch_bytes: usize,
    last_line: u64,
    stored_records: u64,
    stored_line: u64,
}

impl<'a> Loader<'a> {
    fn new(db: &'a Db, keyspace: &'a Keyspace, source: &str) -> Self {
        let source = source.to_owned();
        Self {
            db,
            keyspace,
            source,
            batch: db.batch(),
            batch_bytes: 0,
            last_line: 0,
            stored_records: 0,
            stored_line: 0,
        }
    }

    fn add(&mut self, line: u64, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        if !self.batch.has_room_for(key.len(), value.len()) {
            self.commit()?;
        }
        self.batch.insert(self.keyspace, key, value);
        self.batch_bytes += key.len() + value.len();
        self.last_line = line;
        if self.batch.len() >= BATCH_RECORDS || self.batch_bytes >= BATCH_BYTES {
            self.commit()?;
        }
        Ok(())
    }

    /// A value for which batches have no room.
    fn add_long(&mut self, line: u64, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.commit()?;
        let written = self.keyspace.insert_reader(key, u64_of(value.len()), value);
        written.map_err(|error| self.bad_line(line, &error.to_string()))?;
        self.last_line = line;
        self.stored_records += 1;
        self.stored_line = line;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        let batch = std::mem::replace(&mut self.batch, self.db.batch());
        let records = u64_of(batch.len());
        if let Err(error) = batch.commit() {
            let (first, last) = (self.stored_line + 1, self.last_line);
            let stored = self.what_is_stored();
            return Err(Failure::new(format!("{} lines {first} to {last}: {error}; {stored}", self.source)));
        }
        self.batch_bytes = 0;
        self.stored_records += records;
        self.stored_line = self.last_line;
        Ok(())
    }

    fn bad_line(&self, number: u64, reason: &str) -> Failure {
        Failure::new(format!("{} line {number}: {reason}; {}", self.source, self.what_is_stored()))
    }

    /// Makes durable what was committed and says how far that reaches.
    fn what_is_stored(&self) -> String {
        let (records, line) = (self.stored_records, self.stored_line);
        match self.db.persist(Durability::Sync) {
            _ if line == 0 => "nothing of it is stored".to_owned(),
            Ok(()) => format!("the {records} records of lines 1 to {line} are stored"),
            Err(_) => format!("of the {records} records of lines 1 to {line} the last ones may be missing"),
        }
    }
}
