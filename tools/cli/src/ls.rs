//! `testudo ls`: the keyspaces with their trees and sizes.
//!
//! The number of entries is what the trees and write buffers hold, older versions and tombstones that are not yet
//! merged away included; `testudo scan --count` counts exactly.

use clap::Args;
use serde_json::json;

use crate::{
    arguments::StoreArguments,
    context::Context,
    failure::{Outcome, Verdict},
    size::{show_count, show_size},
    store,
    table::{Align, lay_out},
};

/// Arguments of `testudo ls`.
#[derive(Args, Debug)]
pub(crate) struct LsArguments {
    #[command(flatten)]
    store: StoreArguments,
}

/// Prints the keyspaces.
pub(crate) fn run(context: &mut Context, arguments: &LsArguments) -> Outcome {
    let store = &arguments.store;
    let db = store::open_for_reading(context, store)?;
    let mut rows = Vec::new();
    for name in db.keyspace_names() {
        let stats = store.existing_keyspace(&db, &name)?.stats();
        if store.json {
            context.console.json(&json!({
                "keyspace": name, "tree": stats.tree, "entries": stats.entries, "tombstones": stats.tombstones,
                "stored_bytes": stats.stored_bytes, "memtable_bytes": stats.memtable_bytes,
            }))?;
            continue;
        }
        let sizes =
            [show_count(stats.entries), show_size(stats.stored_bytes), show_size(stats.memtable_bytes)];
        rows.push([name, stats.tree.to_string()].into_iter().chain(sizes).collect());
    }
    if !store.json {
        let columns = [
            ("keyspace", Align::Left),
            ("tree", Align::Left),
            ("entries", Align::Right),
            ("stored", Align::Right),
            ("in memory", Align::Right),
        ];
        for line in lay_out(&columns, &rows) {
            context.console.line(format_args!("{line}"))?;
        }
    }
    Ok(Verdict::Fine)
}
