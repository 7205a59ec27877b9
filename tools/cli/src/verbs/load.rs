//! `testudo load`: inserts the records of a file or of standard input in batches.
//!
//! **Invariants**
//! - Batches are atomic and applied in file order; the stored records are always a prefix of the file.
//! - A value longer than a quarter of the memory is written alone, by `insert_reader`. No line longer than
//!   1 MiB is held in memory.
//! - Exit code 0 means that every record is durable.
//! - A bad line, a failed write or Ctrl-C stops the load after a whole batch; the message says which lines
//!   are stored.

mod long_record;
mod record_format;

use std::{io::Read, path::PathBuf};

use clap::Args;
use serde_json::json;
use testudo::{Batch, Db, Durability, Keyspace};
use testudo_base::num::u64_of;

use self::record_format::RecordFormat;
use crate::{
    arguments::{RecordArguments, StoreArguments},
    context::{Context, Interruption},
    failure::{Failure, Outcome, Verdict},
    input::{
        line_reader::{Line, LineReader, Newline},
        spool::Spool,
    },
    output::{
        progress::{Progress, Unit},
        size::show_count,
    },
    store,
};

const BATCH_RECORDS: usize = 1000;
/// Large values end a batch early, to bound its memory.
const BATCH_BYTES: usize = 1 << 20;

/// Arguments of `testudo load`.
#[derive(Args, Debug)]
pub(crate) struct LoadArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// File of records; - for standard input
    file: PathBuf,
    #[command(flatten)]
    record: RecordArguments,
    /// Record format; required unless implied by the file name: .tsv, .jsonl, .ndjson
    #[arg(long, value_enum)]
    format: Option<RecordFormat>,
    /// Line ending. By default, a line feed ends a line and a file with signs of other line endings is
    /// rejected
    #[arg(long, value_enum)]
    newline: Option<Newline>,
    /// Create the store, the directories above it and the keyspace if they do not exist
    #[arg(long)]
    create: bool,
}

/// Loads the file.
pub(crate) fn run(context: &mut Context, arguments: &LoadArguments) -> Outcome {
    let store = &arguments.store;
    let interruption = context.catch_interruption()?;
    let format = arguments.format.or_else(|| RecordFormat::of_file(&arguments.file));
    // In JSON, neither a carriage return nor a byte order mark can be part of a record.
    let newline = if format == Some(RecordFormat::Jsonl) { Some(Newline::Crlf) } else { None };
    let newline = arguments.newline.or(newline);
    let mut lines = LineReader::open(context, &arguments.file, &interruption, newline)?;
    let format = format.ok_or_else(|| {
        let reason = "its name implies no record format; choose --format lines (each line a key, its \
                      number the value), tsv (key, tab, value) or jsonl";
        Failure::about(lines.name(), reason)
    })?;
    format.check(arguments.record.formats).map_err(Failure::new)?;
    let stopwatch = context.stopwatch();
    let db = store::open_or_create(context, store, arguments.create)?;
    let loaded = load(context, arguments, &db, (&mut lines, format), &interruption);
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

/// Loads all records; returns their number.
fn load(
    context: &Context,
    arguments: &LoadArguments,
    db: &Db,
    (lines, format): (&mut LineReader, RecordFormat),
    interruption: &Interruption,
) -> Result<u64, Failure> {
    let keyspace = arguments.store.keyspace(db, &arguments.record.keyspace.name, arguments.create)?;
    let formats = arguments.record.formats;
    let mut progress = Progress::new(context, "load", lines.total_bytes(), Unit::Bytes);
    let mut loader = Loader::new(db, &keyspace, lines.name());
    loop {
        let number = lines.number() + 1;
        let parsed = lines.next_line().and_then(|line| match line {
            None => Ok(Parsed::End),
            Some(Line::Whole(line)) => Ok(match format.parse(line, number, formats)? {
                Some((key, value)) => Parsed::Whole(key, value),
                None => Parsed::Blank,
            }),
            Some(Line::Long(line)) => long_record::parse(context, format, line, formats)
                .map(|(key, value)| Parsed::Long(key, value)),
        });
        // Interrupted input may end in the middle of a line.
        if interruption.is_raised() {
            break;
        }
        match parsed {
            Ok(Parsed::Whole(key, value)) => loader.add_whole(arguments, number, (&key[..], &value[..]))?,
            Ok(Parsed::Long(key, value)) => loader.add_long(arguments, number, (&key[..], value))?,
            Ok(Parsed::Blank) => loader.last_line = number,
            Ok(Parsed::End) => break,
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

/// Parsed line.
enum Parsed {
    Whole(Vec<u8>, Vec<u8>),
    Long(Vec<u8>, Spool),
    Blank,
    End,
}

/// Batches records.
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

    fn add_whole(
        &mut self,
        arguments: &LoadArguments,
        line: u64,
        (key, value): (&[u8], &[u8]),
    ) -> Result<(), Failure> {
        match u64_of(value.len()) <= arguments.store.max_value_bytes() {
            true => self.add(line, key, value),
            false => self.add_alone(line, key, (value, u64_of(value.len()))),
        }
    }

    /// Adds the record of a line that was not held in memory.
    fn add_long(
        &mut self,
        arguments: &LoadArguments,
        line: u64,
        (key, mut value): (&[u8], Spool),
    ) -> Result<(), Failure> {
        let length = value.len();
        let reader = value.reader();
        let mut reader = reader.map_err(|reason| self.bad_line(line, &reason))?;
        if length > arguments.store.max_value_bytes() {
            return self.add_alone(line, key, (reader, length));
        }
        let mut value = Vec::new();
        let read = reader.read_to_end(&mut value);
        read.map_err(|error| self.bad_line(line, &error.to_string()))?;
        self.add(line, key, &value)
    }

    /// Adds a value that is too long for a batch.
    fn add_alone(&mut self, line: u64, key: &[u8], (value, length): (impl Read, u64)) -> Result<(), Failure> {
        self.commit()?;
        let written = self.keyspace.insert_reader(key, length, value);
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

    /// Makes the committed records durable and describes them.
    fn what_is_stored(&self) -> String {
        let (records, line) = (self.stored_records, self.stored_line);
        match self.db.persist(Durability::Sync) {
            _ if line == 0 => "nothing is stored".to_owned(),
            Ok(()) => format!("the {records} records of lines 1 to {line} are stored"),
            Err(_) => format!("the last of the {records} records of lines 1 to {line} may be missing"),
        }
    }
}
