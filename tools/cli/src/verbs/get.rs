//! `testudo get`: prints the value of one key.
//!
//! **Invariants**
//! - A missing key is exit code 1, with nothing on standard output except the JSON document, if requested.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::json;
use testudo::Keyspace;

use crate::{
    arguments::{RecordArguments, StoreArguments},
    context::Context,
    failure::{Failure, Outcome, Verdict},
    input::json_record::JsonRecord,
    output::{
        output_file,
        progress::{Progress, Unit},
    },
    store,
};

/// Bytes of a value per read.
const CHUNK_BYTES: usize = 64 << 10;

/// Arguments of `testudo get`.
#[derive(Args, Debug)]
pub(crate) struct GetArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Key to read
    key: String,
    #[command(flatten)]
    record: RecordArguments,
    /// Write only the bytes of the value, which may be longer than fits in the store's memory
    #[arg(long, conflicts_with_all = ["value_format", "json"])]
    raw: bool,
    /// Write the bytes of the value to this new file and print nothing. The value may be longer than fits in
    /// the store's memory
    #[arg(long, value_name = "FILE", conflicts_with_all = ["value_format", "raw"])]
    output: Option<PathBuf>,
}

/// Prints the value.
pub(crate) fn run(context: &mut Context, arguments: &GetArguments) -> Outcome {
    let GetArguments { store, record, .. } = arguments;
    let formats = record.formats;
    let key = formats.parse_key(arguments.key.as_bytes()).map_err(Failure::new)?;
    let db = store::open_for_reading(context, store)?;
    let keyspace = store.existing_keyspace(&db, &record.keyspace.name)?;
    if let Some(path) = &arguments.output {
        return write_file(context, arguments, (&keyspace, &key), path);
    }
    if arguments.raw {
        return write_raw(context, arguments, (&keyspace, &key));
    }
    let found = keyspace.get(&key).map_err(|error| store.failure(&error))?;
    let value = found.ok_or_else(|| store.no_key(&key, &record.keyspace.name))?;
    let console = &mut context.console;
    if context.json {
        console.json(&JsonRecord::new(&key, Some(&value), formats).map_err(Failure::new)?)?;
    } else {
        let mut line = Vec::with_capacity(value.len() + 1);
        formats.show_value(&mut line, &value).map_err(Failure::new)?;
        line.push(b'\n');
        console.write(&line)?;
    }
    Ok(Verdict::Fine)
}

/// Writes the bytes of the value to standard output, in chunks.
fn write_raw(
    context: &mut Context,
    arguments: &GetArguments,
    (keyspace, key): (&Keyspace, &[u8]),
) -> Outcome {
    let GetArguments { store, record, .. } = arguments;
    let found = keyspace.get_reader(key).map_err(|error| store.failure(&error))?;
    let mut reader = found.ok_or_else(|| store.no_key(key, &record.keyspace.name))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let bytes = reader.read(&mut chunk).map_err(|error| store.read_failure(error))?;
        if bytes == 0 {
            return Ok(Verdict::Fine);
        }
        context.console.write(&chunk[..bytes])?;
    }
}

/// Writes the value to a file, in chunks.
fn write_file(
    context: &mut Context,
    arguments: &GetArguments,
    (keyspace, key): (&Keyspace, &[u8]),
    path: &Path,
) -> Outcome {
    let GetArguments { store, record, .. } = arguments;
    let found = keyspace.get_reader(key).map_err(|error| store.failure(&error))?;
    let reader = found.ok_or_else(|| store.no_key(key, &record.keyspace.name))?;
    let progress = Progress::new(context, "get", Some(reader.value_len()), Unit::Bytes);
    let mut reader = progress.of_reader(reader);
    let about_file = |error: io::Error| Failure::about(path.display(), error);
    let mut file = output_file::create(path)?;
    let copied = io::copy(&mut reader, &mut file).and_then(|bytes| file.sync_all().map(|()| bytes));
    let value_bytes = copied.map_err(|error| {
        // A partial value is worse than none.
        let _ = std::fs::remove_file(path);
        about_file(error)
    })?;
    // Clears the progress bar before the answer is printed.
    drop(reader);
    if context.json {
        let output = path.display().to_string();
        context.console.json(&json!({ "output": output, "value_bytes": value_bytes }))?;
    }
    Ok(Verdict::Fine)
}
