//! `testudo merge`: merges an operand into the value of one key by the keyspace's merge operator.
//!
//! **Invariants**
//! - Exit code 0 means that the operand is durable.

use clap::Args;
use serde_json::json;
use testudo::{Db, Durability, Keyspace};

use crate::{
    arguments::{RecordArguments, StoreArguments},
    context::Context,
    failure::{Failure, Outcome, Verdict},
    input::format::{Format, Role},
    store,
};

/// Merge operator whose operands are numbers by default.
const ADD: &str = "add-u64";

/// Arguments of `testudo merge`.
#[derive(Args, Debug)]
pub(crate) struct MergeArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Key to change
    key: String,
    /// Operand in the format of values; with the operator add-u64, a number by default
    operand: String,
    #[command(flatten)]
    record: RecordArguments,
}

/// Writes the operand.
pub(crate) fn run(context: &mut Context, arguments: &MergeArguments) -> Outcome {
    let store = &arguments.store;
    let key = arguments.record.formats.parse_key(arguments.key.as_bytes()).map_err(Failure::new)?;
    let db = store::open_for_writing(context, store)?;
    let outcome = merge(&db, arguments, &key);
    store.close(db, outcome)?;
    if context.json {
        context.console.json(&json!({ "keyspace": arguments.record.keyspace.name }))?;
    }
    Ok(Verdict::Fine)
}

fn merge(db: &Db, arguments: &MergeArguments, key: &[u8]) -> Outcome {
    let store = &arguments.store;
    let keyspace = store.existing_keyspace(db, &arguments.record.keyspace.name)?;
    let mut batch = db.batch().durability(Durability::Sync);
    batch.merge(&keyspace, key, operand(&keyspace, arguments)?);
    batch.commit().map_err(|error| store.failure(&error))?;
    Ok(Verdict::Fine)
}

fn operand(keyspace: &Keyspace, arguments: &MergeArguments) -> Result<Vec<u8>, Failure> {
    let is_number = keyspace.options().merge_operator_name() == Some(ADD);
    let usual = if is_number { Format::U64 } else { Format::default() };
    let format = arguments.record.formats.chosen_value().unwrap_or(usual);
    format.parse(arguments.operand.as_bytes(), Role::Value).map_err(Failure::new)
}
