//! `testudo put`: sets the value of one key.
//!
//! **Invariants**
//! - Exit code 0 means that the record is durable.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use clap::{ArgGroup, Args};
use serde_json::json;
use testudo::Durability;
use testudo_base::num::u64_of;

use crate::{
    arguments::{RecordArguments, StoreArguments},
    context::Context,
    failure::{Failure, Outcome, Verdict},
    output::progress::{Progress, Unit},
    store,
};

/// Arguments of `testudo put`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("source").required(true).args(["value", "stdin", "file"]))]
pub(crate) struct PutArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Key to set
    key: String,
    /// Value of the key
    value: Option<String>,
    #[command(flatten)]
    record: RecordArguments,
    /// Read the bytes of the value from standard input, unchanged
    #[arg(long)]
    stdin: bool,
    /// Read the bytes of the value from this file, unchanged. It may be longer than fits in the store's
    /// memory, up to 4 GiB
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Create the store, the directories above it and the keyspace if they do not exist
    #[arg(long)]
    create: bool,
}

/// Writes the record.
pub(crate) fn run(context: &mut Context, arguments: &PutArguments) -> Outcome {
    let store = &arguments.store;
    let formats = arguments.record.formats;
    let key = formats.parse_key(arguments.key.as_bytes()).map_err(Failure::new)?;
    if let Some(path) = &arguments.file {
        return run_with_file(context, arguments, &key, path);
    }
    let value = match &arguments.value {
        Some(value) => formats.parse_value(value.as_bytes()).map_err(Failure::new)?,
        None => read_value(store)?,
    };
    store.check_value(u64_of(value.len())).map_err(Failure::new)?;
    let db = store::open_or_create(context, store, arguments.create)?;
    let outcome = put(&db, arguments, &key, &value);
    store.close(db, outcome)?;
    answer(context, arguments, u64_of(value.len()))
}

fn answer(context: &mut Context, arguments: &PutArguments, value_bytes: u64) -> Outcome {
    if context.json {
        let keyspace = &arguments.record.keyspace.name;
        context.console.json(&json!({ "keyspace": keyspace, "value_bytes": value_bytes }))?;
    }
    Ok(Verdict::Fine)
}

/// Writes a file as the value, in chunks.
fn run_with_file(context: &mut Context, arguments: &PutArguments, key: &[u8], path: &Path) -> Outcome {
    let store = &arguments.store;
    let about_file = |error: io::Error| Failure::about(path.display(), error);
    let file = open_input(path).map_err(about_file)?;
    let metadata = file.metadata().map_err(about_file)?;
    if !metadata.is_file() {
        return Err(Failure::about(path.display(), "is not a file of known length; see --stdin"));
    }
    let length = metadata.len();
    let db = store::open_or_create(context, store, arguments.create)?;
    let progress = Progress::new(context, "put", Some(length), Unit::Bytes);
    let outcome = put_file(&db, arguments, key, (progress.of_reader(file), length));
    store.close(db, outcome)?;
    answer(context, arguments, length)
}

fn put_file(
    db: &testudo::Db,
    arguments: &PutArguments,
    key: &[u8],
    (file, length): (impl Read, u64),
) -> Outcome {
    let store = &arguments.store;
    let keyspace = store.keyspace(db, &arguments.record.keyspace.name, arguments.create)?;
    let written = keyspace.insert_reader(key, length, file);
    written.and_then(|()| db.persist(Durability::Sync)).map_err(|error| store.failure(&error))?;
    Ok(Verdict::Fine)
}

#[expect(clippy::disallowed_methods, reason = "a file named by the user does not belong to a store")]
fn open_input(path: &Path) -> io::Result<File> {
    File::open(path)
}

fn put(db: &testudo::Db, arguments: &PutArguments, key: &[u8], value: &[u8]) -> Outcome {
    let store = &arguments.store;
    let keyspace = store.keyspace(db, &arguments.record.keyspace.name, arguments.create)?;
    let mut batch = db.batch().durability(Durability::Sync);
    batch.insert(&keyspace, key, value);
    batch.commit().map_err(|error| store.failure(&error))?;
    Ok(Verdict::Fine)
}

/// Reads the value from standard input, up to one byte beyond the maximum.
fn read_value(store: &StoreArguments) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    let mut limited = io::stdin().take(store.max_value_bytes() + 1);
    limited.read_to_end(&mut value).map_err(|error| Failure::about("standard input", error))?;
    let bytes = u64_of(value.len());
    if bytes > store.max_value_bytes() {
        let length = format!("more than {}", store.max_value_bytes());
        return Err(Failure::about("standard input", store.value_too_long(&length, bytes)));
    }
    Ok(value)
}
