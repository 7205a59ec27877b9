//! `testudo dump`: writes all records of a keyspace as text that `testudo load` reads back byte for byte.
//!
//! **Invariants**
//! - An existing file is never overwritten, and an incomplete dump leaves no file.
//! - A long value is written in chunks, in the same form as a short one, if the format allows that.

use std::{
    fs,
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::json;
use testudo::{BaseWithOperands, Entry, Keyspace};

use crate::{
    arguments::{RecordArguments, StoreArguments},
    context::{Context, Interruption},
    failure::{Failure, Outcome, Verdict},
    input::{
        bytes_text::to_hex,
        format::{Format, Role},
        json_record::JsonRecord,
        long_value::whole_letters,
    },
    output::{
        output_file,
        progress::{Progress, Unit},
        size::show_count,
    },
    store,
};

const OUTPUT_BUFFER_BYTES: usize = 256 << 10;
const RECORDS_BETWEEN_LOOKS: u64 = 1000;
/// Longer values are written in chunks.
const WHOLE_BYTES: u64 = 1 << 20;
/// Bytes of such a value per read.
const CHUNK_BYTES: usize = 64 << 10;

/// Arguments of `testudo dump`.
#[derive(Args, Debug)]
pub(crate) struct DumpArguments {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    record: RecordArguments,
    /// Record format; by default jsonl with --json or for a file named .jsonl, else tsv
    #[arg(long, value_enum)]
    format: Option<DumpFormat>,
    /// Include records whose merge operator fails or is not registered, with "base" and "operands" instead of
    /// a value; `load` rejects these lines. Always jsonl
    #[arg(long, conflicts_with = "format")]
    raw: bool,
    /// Write to this new file instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DumpFormat {
    /// Key, tab, value, escaped unless another format is selected
    Tsv,
    /// {"key": …, "value": …}, or key_hex and value_hex if the bytes are not UTF-8; a selected format
    /// determines the field names
    Jsonl,
}

/// Dumps the keyspace.
pub(crate) fn run(context: &mut Context, arguments: &DumpArguments) -> Outcome {
    let store = &arguments.store;
    let db = store::open_for_reading(context, store)?;
    let keyspace = store.existing_keyspace(&db, &arguments.record.keyspace.name)?;
    let Some(path) = &arguments.output else {
        let mut dump = Dump::new(context, arguments, &keyspace);
        dump.run(&mut context.console, None, |error| Failure::output(&error))?;
        return Ok(Verdict::Fine);
    };
    let interruption = context.catch_interruption()?;
    let failure = |error: io::Error| Failure::about(path.display(), error);
    let file = output_file::create(path)?;
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
            // The original failure is reported; a leftover file is visible by itself.
            let _ = fs::remove_file(path);
            return Err(failure);
        }
    };
    drop(dump);
    if context.json {
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
        Self { arguments, keyspace, format: arguments.format(context.json), progress }
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
            match self.form_of_chunks(&entry)? {
                None => out.write_all(&self.line(&entry)?).map_err(&failure)?,
                Some(form) => {
                    for chunk in self.chunks(&entry, form)? {
                        check(interruption)?;
                        out.write_all(&chunk?).map_err(&failure)?;
                    }
                }
            }
            records += 1;
            if records % RECORDS_BETWEEN_LOOKS == 0 {
                self.progress.set(records);
                check(interruption)?;
            }
        }
        Ok(records)
    }

    /// Format of a value that is written in chunks; `None` for other values, and for formats that need the
    /// whole value.
    fn form_of_chunks(&self, entry: &Entry) -> Result<Option<Format>, Failure> {
        if entry.base_with_operands().is_some() {
            return Ok(None);
        }
        let store = &self.arguments.store;
        let bytes = entry.value_len().map_err(|error| store.failure(&error))?;
        if bytes <= WHOLE_BYTES.min(store.max_value_bytes()) {
            return Ok(None);
        }
        let form = match (self.arguments.record.formats.chosen_value(), self.format) {
            (Some(form), _) => form,
            (None, DumpFormat::Tsv) => Format::Escaped,
            (None, DumpFormat::Jsonl) if self.is_text(entry)? => Format::Text,
            (None, DumpFormat::Jsonl) => Format::Hex,
        };
        Ok(Some(form).filter(|form| matches!(form, Format::Hex | Format::Escaped | Format::Text)))
    }

    /// Whether a long value is entirely UTF-8.
    fn is_text(&self, entry: &Entry) -> Result<bool, Failure> {
        let store = &self.arguments.store;
        let mut reader = entry.reader().map_err(|error| store.failure(&error))?;
        let (mut buffer, mut cut) = (vec![0; CHUNK_BYTES], Vec::new());
        loop {
            let bytes = reader.read(&mut buffer).map_err(|error| store.read_failure(error))?;
            if bytes == 0 {
                return Ok(cut.is_empty());
            }
            cut.extend_from_slice(&buffer[..bytes]);
            let whole = whole_letters(&cut);
            if std::str::from_utf8(&cut[..whole]).is_err() {
                return Ok(false);
            }
            cut.drain(..whole);
        }
    }

    /// Returns the line of an entry with a long value, in chunks.
    fn chunks(
        &self,
        entry: &Entry,
        form: Format,
    ) -> Result<impl Iterator<Item = Result<Vec<u8>, Failure>> + use<'_>, Failure> {
        let store = &self.arguments.store;
        let formats = self.arguments.record.formats;
        let mut reader = entry.reader().map_err(|error| store.failure(&error))?;
        let (mut head, end): (Vec<u8>, &[u8]) = match self.format {
            DumpFormat::Tsv => {
                let mut head = Vec::new();
                formats.show_key(&mut head, entry.key()).map_err(Failure::new)?;
                (head, b"\n")
            }
            DumpFormat::Jsonl => {
                let record = JsonRecord::new(entry.key(), None, formats).map_err(Failure::new)?;
                (json_bytes(&record)?, b"\"}\n")
            }
        };
        let is_json = self.format == DumpFormat::Jsonl;
        if is_json {
            head.pop();
            let name = match form {
                Format::Hex => "value_hex",
                Format::Escaped => "value_escaped",
                _ => "value",
            };
            head.extend_from_slice(format!(",\"{name}\":\"").as_bytes());
        } else {
            head.push(b'\t');
        }
        let (mut buffer, mut bytes, mut is_ended) = (vec![0; CHUNK_BYTES], Vec::new(), false);
        let mut next = move || -> Result<Option<Vec<u8>>, Failure> {
            if is_ended {
                return Ok(None);
            }
            let read = reader.read(&mut buffer).map_err(|error| store.read_failure(error))?;
            bytes.extend_from_slice(&buffer[..read]);
            is_ended = read == 0;
            // A character split by the chunk boundary is written with the next chunk.
            let whole = if is_ended { bytes.len() } else { whole_letters(&bytes) };
            let mut text = Vec::new();
            form.show(&mut text, &bytes[..whole], Role::Value).map_err(Failure::new)?;
            bytes.drain(..whole);
            if is_json {
                let quoted = json_bytes(&String::from_utf8_lossy(&text))?;
                text = quoted[1..quoted.len() - 1].to_vec();
            }
            Ok(Some(text))
        };
        let body = std::iter::from_fn(move || next().transpose());
        Ok(std::iter::once(Ok(head)).chain(body).chain(std::iter::once(Ok(end.to_vec()))))
    }

    fn line(&self, entry: &Entry) -> Result<Vec<u8>, Failure> {
        if let Some(parts) = entry.base_with_operands().filter(|_| self.arguments.raw) {
            let mut line = json_bytes(&raw_record(entry.key(), &parts))?;
            line.push(b'\n');
            return Ok(line);
        }
        let value = entry.value().map_err(|error| {
            let is_unmerged = entry.base_with_operands().is_some();
            let hint = if is_unmerged { "; `dump --raw` writes such records as stored" } else { "" };
            self.arguments.store.failure_at(entry.key(), &error, hint)
        })?;
        let formats = self.arguments.record.formats;
        let mut line = Vec::with_capacity(entry.key().len() + value.len() + 32);
        match self.format {
            DumpFormat::Tsv => {
                formats.show_key(&mut line, entry.key()).map_err(Failure::new)?;
                line.push(b'\t');
                formats.show_value(&mut line, &value).map_err(Failure::new)?;
            }
            DumpFormat::Jsonl => {
                let record = JsonRecord::new(entry.key(), Some(&value), formats).map_err(Failure::new)?;
                line = json_bytes(&record)?;
            }
        }
        line.push(b'\n');
        Ok(line)
    }
}

fn json_bytes(value: &impl Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(value).map_err(|error| Failure::new(format!("cannot write JSON: {error}")))
}

/// Fails if an interruption was requested.
fn check(interruption: Option<&Interruption>) -> Result<(), Failure> {
    match interruption.is_some_and(Interruption::is_raised) {
        true => Err(Failure::new("interrupted; no file was written")),
        false => Ok(()),
    }
}

impl DumpArguments {
    fn format(&self, json: bool) -> DumpFormat {
        let named_jsonl =
            self.output.as_deref().and_then(Path::extension).is_some_and(|name| name == "jsonl");
        let default = if json || self.raw || named_jsonl { DumpFormat::Jsonl } else { DumpFormat::Tsv };
        self.format.unwrap_or(default)
    }
}

/// Record as stored: text if the bytes are UTF-8, else hex.
fn raw_record(key: &[u8], parts: &BaseWithOperands<'_>) -> serde_json::Value {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned);
    let all_text: Result<Vec<_>, _> =
        parts.operands.iter().chain(&parts.base).map(|part| text(part)).collect();
    let mut record = match text(key) {
        Ok(key) => json!({ "key": key }),
        Err(_) => json!({ "key_hex": to_hex(key) }),
    };
    if all_text.is_ok() {
        let shown: Vec<_> = parts.operands.iter().map(|part| String::from_utf8_lossy(part)).collect();
        record["base"] = json!(parts.base.map(String::from_utf8_lossy));
        record["operands"] = json!(shown);
    } else {
        record["base_hex"] = json!(parts.base.map(to_hex));
        record["operands_hex"] = json!(parts.operands.iter().map(|part| to_hex(part)).collect::<Vec<_>>());
    }
    record
}
