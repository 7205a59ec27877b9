//! `testudo put`: sets the value of one key.
//!
//! **Invariants**
//! - When it ends with exit code 0, the record is on the device.

use std::io::{self, Read};

use clap::{ArgGroup, Args};
use serde_json::json;
use testudo::Durability;
use testudo_base::{MAX_VALUE_BYTES, num::u64_of};

use crate::{
    arguments::{RecordArguments, StoreArguments},
    bytes_text::from_argument,
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
    /// Create the store and the keyspace if they do not exist
    #[arg(long)]
    create: bool,
}

/// Puts the record.
pub(crate) fn run(context: &mut Context, arguments: &PutArguments) -> Outcome {
    let store = &arguments.store;
    let key = from_argument("key", &arguments.key, arguments.record.hex)?;
    let value = match &arguments.value {
        Some(value) => from_argument("value", value, arguments.record.hex)?,
        None => read_value()?,
    };
    let db = store::open_for_writing(context, store, arguments.create)?;
    let outcome = put(&db, arguments, &key, &value);
    store.close(db, outcome)?;
    if store.json {
        let value_bytes = value.len();
        context
            .console
            .json(&json!({ "keyspace": arguments.record.keyspace, "value_bytes": value_bytes }))?;
    }
    Ok(Verdict::Fine)
}

fn put(db: &testudo::Db, arguments: &PutArguments, key: &[u8], value: &[u8]) -> Outcome {
    let store = &arguments.store;
    let keyspace = store.keyspace(db, &arguments.record.keyspace, arguments.create)?;
    let mut batch = db.batch().durability(Durability::Sync);
    batch.insert(&keyspace, key, value);
    batch.commit().map_err(|error| store.failure(&error))?;
    Ok(Verdict::Fine)
}

fn read_value() -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    let mut limited = io::stdin().take(MAX_VALUE_BYTES + 1);
    limited.read_to_end(&mut value).map_err(|error| Failure::about("standard input", error))?;
    if u64_of(value.len()) > MAX_VALUE_BYTES {
        return Err(Failure::about(
            "standard input",
            format!("is longer than a value may be, {MAX_VALUE_BYTES} bytes"),
        ));
    }
    Ok(value)
}
