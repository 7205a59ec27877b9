//! `testudo get`: the value of one key.
//!
//! **Invariants**
//! - A key that is not there is exit code 1, with nothing but the JSON document (if asked for) on standard output.

use clap::Args;
use serde_json::json;

use crate::{
    arguments::{RecordArguments, StoreArguments},
    bytes_text::{escape, from_argument, show_into},
    context::Context,
    failure::{Outcome, Verdict, say},
    json_record::JsonRecord,
    store,
};

/// Arguments of `testudo get`.
#[derive(Args, Debug)]
pub(crate) struct GetArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// The key
    key: String,
    #[command(flatten)]
    record: RecordArguments,
    /// Write the bytes of the value and nothing else
    #[arg(long, conflicts_with_all = ["hex", "json"])]
    raw: bool,
}

/// Prints the value.
pub(crate) fn run(context: &mut Context, arguments: &GetArguments) -> Outcome {
    let GetArguments { store, record, .. } = arguments;
    let key = from_argument("key", &arguments.key, record.hex)?;
    let db = store::open_for_reading(context, store)?;
    let keyspace = store.existing_keyspace(&db, &record.keyspace)?;
    let found = keyspace.get(&key).map_err(|error| store.failure(&error))?;
    let console = &mut context.console;
    let Some(value) = found else {
        if store.json {
            console.json(&json!({ "found": false }))?;
        } else {
            say(&format!(
                "{}: no key '{}' in keyspace '{}'",
                store.dir.display(),
                escape(&key),
                record.keyspace
            ));
        }
        return Ok(Verdict::Negative);
    };
    if store.json {
        console.json(&JsonRecord::new(&key, Some(&value), record.hex))?;
    } else if arguments.raw {
        console.write(&value)?;
    } else {
        let mut line = Vec::with_capacity(value.len() + 1);
        show_into(&mut line, &value, record.hex);
        line.push(b'\n');
        console.write(&line)?;
    }
    Ok(Verdict::Fine)
}
