//! `testudo put`: sets the value of one key.
//!
//! **Invariants**
//! - When it ends with exit code 0, the record is on the device.

use std::io::{self, Read};

use clap::{ArgGroup, Args};
use serde_json::json;
use testudo::Durability;
use testudo_base::num::u64_of;

use crate::{
    arguments::{RecordArguments, StoreArguments},
    context::Context,
    failure::{Failure, Outcome, Verdict},
    store,
};

/// Arguments of `testudo put`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("source").required(true).args(["value", "stdin"]))]
pub(crate) struct PutArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// The key
    key: String,
    /// The value
    value: Option<String>,
    #[command(flatten)]
    record: RecordArguments,
    /// Take the bytes of the value from standard input, as they are
    #[arg(long)]
    stdin: bool,
    /// Create the store, the directories above it and the keyspace if they do not exist
    #[arg(long)]
    create: bool,
}

/// Puts the record.
pub(crate) fn run(context: &mut Context, arguments: &PutArguments) -> Outcome {
    let store = &arguments.store;
    let formats = arguments.record.formats;
    let key = formats.parse_key(arguments.key.as_bytes()).map_err(Failure::new)?;
    let value = match &arguments.value {
        Some(value) => formats.parse_value(value.as_bytes()).map_err(Failure::new)?,
        None => read_value(store)?,
    };
    store.check_value(u64_of(value.len())).map_err(Failure::new)?;
    let db = store::open_for_writing(context, store, arguments.create)?;
    let outcome = put(&db, arguments, &key, &value);
    store.close(db, outcome)?;
    if context.json {
        let value_bytes = value.len();
        context
            .console
            .json(&json!({ "keyspace": arguments.record.keyspace.name, "value_bytes": value_bytes }))?;
    }
    Ok(Verdict::Fine)
}

fn put(db: &testudo::Db, arguments: &PutArguments, key: &[u8], value: &[u8]) -> Outcome {
    let store = &arguments.store;
    let keyspace = store.keyspace(db, &arguments.record.keyspace.name, arguments.create)?;
    let mut batch = db.batch().durability(Durability::Sync);
    batch.insert(&keyspace, key, value);
    batch.commit().map_err(|error| store.failure(&error))?;
    Ok(Verdict::Fine)
}

/// Standard input, but no more of it than shows that it is too long.
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
