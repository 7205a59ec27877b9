//! `testudo ls`: lists the keyspaces with their trees and sizes.
//!
//! Entries are those of trees and write buffers, including older versions and tombstones that are not merged
//! away yet. `testudo count` counts records.

use clap::Args;
use serde_json::json;
use testudo::KeyspaceInspection;

use crate::{
    arguments::StoreArguments,
    context::Context,
    failure::{Outcome, Verdict},
    input::bytes_text::escape,
    inspection::inspect,
    output::{
        size::{show_count, show_size},
        table::Align,
    },
};

/// Arguments of `testudo ls`.
#[derive(Args, Debug)]
pub(crate) struct LsArguments {
    #[command(flatten)]
    store: StoreArguments,
}

/// Prints the keyspaces.
pub(crate) fn run(context: &mut Context, arguments: &LsArguments) -> Outcome {
    let inspection = inspect(context, &arguments.store)?;
    inspection.say(context)?;
    let mut rows = Vec::new();
    for KeyspaceInspection { name, stats, .. } in &inspection.keyspaces {
        let entries = stats.tree.entries + stats.memtables.entries;
        if context.json {
            let mut document = json!({
                "keyspace": name, "tree": stats.tree.name, "entries": entries,
                "tree_entries": stats.tree.entries, "buffer_entries": stats.memtables.entries,
                "tombstones": stats.tree.tombstones,
                "stored_bytes": stats.tree.stored_bytes, "memtable_bytes": stats.memtables.bytes,
            });
            inspection.describe(&mut document);
            context.console.json(&document)?;
            continue;
        }
        let counts = [entries, stats.tree.entries, stats.memtables.entries].map(show_count);
        let sizes = [stats.tree.stored_bytes, stats.memtables.bytes].map(show_size);
        let names = [escape(name.as_bytes()), stats.tree.name.clone()];
        rows.push(names.into_iter().chain(counts).chain(sizes).collect());
    }
    if !context.json {
        let columns = [
            ("keyspace", Align::Left),
            ("tree", Align::Left),
            ("entries", Align::Right),
            ("in trees", Align::Right),
            ("in buffers", Align::Right),
            ("stored", Align::Right),
            ("in memory", Align::Right),
        ];
        context.console.table(&columns, &rows)?;
        if !rows.is_empty() {
            let note = "entries include older versions and removals; `testudo count` counts records";
            context.console.line(format_args!("{note}"))?;
        }
    }
    Ok(Verdict::Fine)
}
