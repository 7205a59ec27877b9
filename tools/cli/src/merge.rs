//! `testudo merge`: changes the value of one key by an operand of the keyspace's merge operator.
//!
//! **Invariants**
//! - When it ends with exit code 0, the operand is on the device.

use clap::Args;
use serde_json::json;
use testudo::{Db, Durability, Keyspace};

use crate::{
    arguments::{RecordArguments, StoreArguments},
    bytes_text::from_argument,
    context::Context,
    failure::{Failure, Outcome, Verdict},
    store,
};

/// The operator of which operands are numbers.
const ADD: &str = "add-u64";

/// Arguments of `testudo merge`.
#[derive(Args, Debug)]
pub(crate) struct MergeArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// The key
    key: String,
    /// The operand; in a keyspace with the operator add-u64 a decimal number, unless it is hex
    operand: String,
    #[command(flatten)]
    record: RecordArguments,
}

/// Writes the operand.
pub(crate) fn run(context: &mut Context, arguments: &MergeArguments) -> Outcome {
    let store = &arguments.store;
    let key = from_argument("key", &arguments.key, arguments.record.hex)?;
    let db = store::open_for_writing(context, store, false)?;
    let outcome = merge(&db, arguments, &key);
    store.close(db, outcome)?;
    if store.json {
        context.console.json(&json!({ "keyspace": arguments.record.keyspace }))?;
    }
    Ok(Verdict::Fine)
}

fn merge(db: &Db, arguments: &MergeArguments, key: &[u8]) -> Outcome {
    let store = &arguments.store;
    let keyspace = store.existing_keyspace(db, &arguments.record.keyspace)?;
    let mut batch = db.batch().durability(Durability::Sync);
    batch.merge(&keyspace, key, operand(&keyspace, arguments)?);
    batch.commit().map_err(|error| store.failure(&error))?;
    Ok(Verdict::Fine)
}

fn operand(keyspace: &Keyspace, arguments: &MergeArguments) -> Result<Vec<u8>, Failure> {
    let text = &arguments.operand;
    if keyspace.options().merge_operator_name() != Some(ADD) || arguments.record.hex {
        return from_argument("operand", text, arguments.record.hex);
    }
    let number = text.parse::<u64>().map_err(|error| Failure::about(format!("operand '{text}'"), error))?;
    Ok(number.to_le_bytes().to_vec())
}
