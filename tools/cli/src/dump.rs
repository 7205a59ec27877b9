//! `testudo dump`: all records of a keyspace as text that `testudo load` reads back byte for byte.
//!
//! **Invariants**
//! - A file that exists is never overwritten, and a dump that did not end leaves no file.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use serde_json::json;
use testudo::{Entry, Keyspace};

use crate::{
    arguments::StoreArguments,
    bytes_text::escape_into,
    context::{Context, Interruption},
    failure::{Failure, Outcome, Verdict},
    json_record::JsonRecord,
    progress::{Progress, Unit},
    size::show_count,
    store,
};

const OUTPUT_BUFFER_BYTES: usize = 256 << 10;
const RECORDS_BETWEEN_LOOKS: u64 = 1000;

/// Arguments of `testudo dump`.
#[derive(Args, Debug)]
pub(crate) struct DumpArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Keyspace
    #[arg(long, value_name = "NAME", default_value = "default")]
    keyspace: String,
    /// How records are written; by default jsonl with --json or for a file named .jsonl, else tsv
    #[arg(long, value_enum)]
    format: Option<DumpFormat>,
    /// Write to this new file in place of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DumpFormat {
    /// Key, tab, value; \t \n \r \\ \xNN are escapes
    Tsv,
    /// {"key": …, "value": …}, or key_hex and value_hex where the bytes are not UTF-8
    Jsonl,
}

/// Dumps the keyspace.
pub(crate) fn run(context: &mut Context, arguments: &DumpArguments) -> Outcome {
    let store = &arguments.store;
    let db = store::open_for_reading(context, store)?;
    let keyspace = store.existing_keyspace(&db, &arguments.keyspace)?;
    let Some(path) = &arguments.output else {
        let mut dump = Dump::new(context, arguments, &keyspace);
        dump.run(&mut context.console, None, |error| Failure::output(&error))?;
        return Ok(Verdict::Fine);
    };
    let interruption = context.catch_interruption()?;
    let failure = |error: io::Error| Failure::about(path.display(), error);
    let file = create_output(path).map_err(failure)?;
    let mut dump = Dump::new(context, arguments, &keyspace);
    let mut out = BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, file);
    let written = dump.run(&mut out, Some(&interruption), failure).and_then(|records| {
        let file = out.into_inner().map_err(|error| failure(error.into_error()))?;
        file.sync_all().map_err(failure)?;
        Ok(records)
    });
    let records = match written {
        Ok(records) => records,
        Err(failure) => {
            // The failure itself is what the person must know; a file that stays behind shows itself.
            let _ = fs::remove_file(path);
            return Err(failure);
        }
    };
    drop(dump);
    if store.json {
        let output = path.display().to_string();
        context.console.json(&json!({ "records": records, "output": output }))?;
    } else {
        context.console.line(format_args!("{} records in {}", show_count(records), path.display()))?;
    }
    Ok(Verdict::Fine)
}

struct Dump<'a> {
    arguments: &'a DumpArguments,
    keyspace: &'a Keyspace,
    format: DumpFormat,
    progress: Progress,
}

impl<'a> Dump<'a> {
    fn new(context: &Context, arguments: &'a DumpArguments, keyspace: &'a Keyspace) -> Self {
        let progress = Progress::new(context, "dump", None, Unit::Records);
        Self { arguments, keyspace, format: arguments.format(), progress }
    }

    fn run(
        &mut self,
        out: &mut impl Write,
        interruption: Option<&Interruption>,
        failure: impl Fn(io::Error) -> Failure,
    ) -> Result<u64, Failure> {
        let store = &self.arguments.store;
        let mut records = 0;
        for entry in self.keyspace.iter().map_err(|error| store.failure(&error))? {
            let entry = entry.map_err(|error| store.failure(&error))?;
            let line = self.line(&entry)?;
            out.write_all(&line).map_err(&failure)?;
            records += 1;
            if records % RECORDS_BETWEEN_LOOKS == 0 {
                self.progress.set(records);
                if interruption.is_some_and(Interruption::is_raised) {
                    return Err(Failure::new("interrupted; no file was written"));
                }
            }
        }
        Ok(records)
    }

    fn line(&self, entry: &Entry) -> Result<Vec<u8>, Failure> {
        let value = entry.value().map_err(|error| self.arguments.store.failure(&error))?;
        let mut line = Vec::with_capacity(entry.key().len() + value.len() + 32);
        match self.format {
            DumpFormat::Tsv => {
                escape_into(&mut line, entry.key());
                line.push(b'\t');
                escape_into(&mut line, &value);
            }
            DumpFormat::Jsonl => {
                serde_json::to_writer(&mut line, &JsonRecord::new(entry.key(), Some(&value), false))
                    .map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?
            }
        }
        line.push(b'\n');
        Ok(line)
    }
}

impl DumpArguments {
    fn format(&self) -> DumpFormat {
        let named_jsonl =
            self.output.as_deref().and_then(Path::extension).is_some_and(|name| name == "jsonl");
        let default = if self.store.json || named_jsonl { DumpFormat::Jsonl } else { DumpFormat::Tsv };
        self.format.unwrap_or(default)
    }
}

fn create_output(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().write(true).create_new(true).open(path)
}
