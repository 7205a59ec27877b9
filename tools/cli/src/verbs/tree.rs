//! `testudo tree`: prints the policy and the outline of a keyspace's tree.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;

use crate::{
    arguments::{KeyspaceArgument, StoreArguments},
    context::Context,
    failure::{Outcome, Verdict},
    inspection::inspect,
    output::{
        size::{show_count, show_size},
        table::Align,
    },
};

/// Arguments of `testudo tree`.
#[derive(Args, Debug)]
pub(crate) struct TreeArguments {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
    /// Print every node, tier and leaf in key order instead of sums by depth
    #[arg(long)]
    full: bool,
}

/// Sums over outline lines of the same depth and kind.
#[derive(Default)]
struct Sum {
    lines: u64,
    parts: u64,
    bytes: u64,
    entries: u64,
}

/// Prints the settings of the tree, then its outline.
pub(crate) fn run(context: &mut Context, arguments: &TreeArguments) -> Outcome {
    let store = &arguments.store;
    let inspection = inspect(context, store)?;
    let keyspace = inspection.keyspace(store, &arguments.keyspace.name)?;
    let (outline, tree) = (&keyspace.outline, keyspace.options.get_tree());
    inspection.say(context)?;
    let console = &mut context.console;
    if context.json {
        let mut settings = json!({ "tree": tree.to_string() });
        for (name, value) in tree.settings() {
            settings[name] = json!(value);
        }
        inspection.describe(&mut settings);
        console.json(&settings)?;
    } else {
        let shown = tree.settings().into_iter().map(|(name, value)| match name.strip_suffix("_bytes") {
            Some(_) => format!("{name} {}", show_size(value)),
            None => format!("{name} {}", show_count(value)),
        });
        console.line(format_args!("{tree}: {}", shown.collect::<Vec<_>>().join(", ")))?;
    }
    if arguments.full {
        for line in outline {
            if context.json {
                console.json(&json!({
                    "depth": line.depth, "what": line.what, "parts": line.count,
                    "bytes": line.bytes, "entries": line.entries,
                }))?;
                continue;
            }
            let indent = 2 * usize::try_from(line.depth).unwrap_or(0);
            let (parts, bytes) = (show_count(line.count), show_size(line.bytes));
            let entries = show_count(line.entries);
            let what = line.what;
            console.line(format_args!("{:indent$}{what}: {parts} parts, {bytes}, {entries} entries", ""))?;
        }
        return Ok(Verdict::Fine);
    }
    let mut sums: BTreeMap<(u32, &str), Sum> = BTreeMap::new();
    for line in outline {
        let sum = sums.entry((line.depth, line.what)).or_default();
        sum.lines += 1;
        sum.parts += line.count;
        sum.bytes += line.bytes;
        sum.entries += line.entries;
    }
    if context.json {
        for ((depth, what), sum) in &sums {
            console.json(&json!({
                "depth": depth, "what": what, "count": sum.lines, "parts": sum.parts,
                "bytes": sum.bytes, "entries": sum.entries,
            }))?;
        }
        return Ok(Verdict::Fine);
    }
    let row = |(&(depth, what), sum): (&(u32, &str), &Sum)| {
        let stats =
            [show_count(sum.lines), show_count(sum.parts), show_size(sum.bytes), show_count(sum.entries)];
        [depth.to_string(), what.to_owned()].into_iter().chain(stats).collect()
    };
    let rows: Vec<Vec<String>> = sums.iter().map(row).collect();
    let columns = [
        ("depth", Align::Right),
        ("what", Align::Left),
        ("count", Align::Right),
        ("parts", Align::Right),
        ("bytes", Align::Right),
        ("entries", Align::Right),
    ];
    console.table(&columns, &rows)?;
    Ok(Verdict::Fine)
}
