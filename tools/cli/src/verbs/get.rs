//! `testudo get`: the value of one key.
//!
//! **Invariants**
//! - A key that is not there is exit code 1, with nothing but the JSON document (if asked for) on standard
//!   output.

use clap::Args;

use crate::{
    arguments::{RecordArguments, StoreArguments},
    context::Context,
    failure::{Failure, Outcome, Verdict},
    input::json_record::JsonRecord,
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
    #[arg(long, conflicts_with_all = ["value_format", "json"])]
    raw: bool,
}

/// Prints the value.
pub(crate) fn run(context: &mut Context, arguments: &GetArguments) -> Outcome {
    let GetArguments { store, record, .. } = arguments;
    let formats = record.formats;
    let key = formats.parse_key(arguments.key.as_bytes()).map_err(Failure::new)?;
    let db = store::open_for_reading(context, store)?;
    let keyspace = store.existing_keyspace(&db, &record.keyspace.name)?;
    let found = keyspace.get(&key).map_err(|error| store.failure(&error))?;
    let value = found.ok_or_else(|| store.no_key(&key, &record.keyspace.name))?;
    let console = &mut context.console;
    if context.json {
        console.json(&JsonRecord::new(&key, Some(&value), formats).map_err(Failure::new)?)?;
    } else if arguments.raw {
        console.write(&value)?;
    } else {
        let mut line = Vec::with_capacity(value.len() + 1);
        formats.show_value(&mut line, &value).map_err(Failure::new)?;
        line.push(b'\n');
        console.write(&line)?;
    }
    Ok(Verdict::Fine)
}
