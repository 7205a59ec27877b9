//! `testudo del`: removes one key.
//!
//! **Invariants**
//! - When it ends with exit code 0, the key was there and its removal is on the device.

use clap::Args;
use serde_json::json;
use testudo::{Db, Durability};

use crate::{
    arguments::{RecordArguments, StoreArguments},
    bytes_text::{escape, from_argument},
    context::Context,
    failure::{Outcome, Verdict, say},
    store,
};

/// Arguments of `testudo del`.
#[derive(Args, Debug)]
pub(crate) struct DelArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// The key
    key: String,
    #[command(flatten)]
    record: RecordArguments,
}

/// Removes the record.
pub(crate) fn run(context: &mut Context, arguments: &DelArguments) -> Outcome {
    let DelArguments { store, record, .. } = arguments;
    let key = from_argument("key", &arguments.key, record.hex)?;
    let db = store::open_for_writing(context, store, false)?;
    let outcome = delete(&db, arguments, &key);
    let verdict = store.close(db, outcome)?;
    if store.json {
        context.console.json(&json!({ "found": verdict == Verdict::Fine }))?;
    } else if verdict == Verdict::Negative {
        say(&format!("{}: no key '{}' in keyspace '{}'", store.dir.display(), escape(&key), record.keyspace));
    }
    Ok(verdict)
}

fn delete(db: &Db, arguments: &DelArguments, key: &[u8]) -> Outcome {
    let store = &arguments.store;
    let keyspace = store.existing_keyspace(db, &arguments.record.keyspace)?;
    if !keyspace.contains_key(key).map_err(|error| store.failure(&error))? {
        return Ok(Verdict::Negative);
    }
    let mut batch = db.batch().durability(Durability::Sync);
    batch.remove(&keyspace, key);
    batch.commit().map_err(|error| store.failure(&error))?;
    Ok(Verdict::Fine)
}
