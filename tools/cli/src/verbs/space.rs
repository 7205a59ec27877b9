//! `testudo space`: breaks down the bytes on the device by use and by keyspace.

use clap::Args;
use serde_json::{Map, Value, json};
use testudo::KeyspaceStats;
use testudo_base::num::u64_of;

use crate::{
    arguments::StoreArguments,
    context::Context,
    failure::{Outcome, Verdict},
    input::bytes_text::escape,
    inspection::inspect,
    output::{size::show_size, table::Align},
    store_files::{StoreFile, list_store_files},
};

/// Arguments of `testudo space`.
#[derive(Args, Debug)]
pub(crate) struct SpaceArguments {
    #[command(flatten)]
    store: StoreArguments,
}

/// Bytes of values outside the runs of a keyspace, by class.
fn values_by_class(stats: &KeyspaceStats) -> [(&'static str, u64); 4] {
    let dead_large = stats.values.dead_bytes - stats.values.dead_transient_bytes;
    let large = stats.values.bytes - stats.values.transient_bytes;
    [
        ("large_live", large - dead_large),
        ("large_dead", dead_large),
        ("medium_live", stats.values.transient_bytes - stats.values.dead_transient_bytes),
        ("medium_dead", stats.values.dead_transient_bytes),
    ]
}

/// Prints the sizes.
pub(crate) fn run(context: &mut Context, arguments: &SpaceArguments) -> Outcome {
    let store = &arguments.store;
    let inspection = inspect(context, store)?;
    inspection.say(context)?;
    let files = list_store_files(context, &store.dir)?;
    let stats = &inspection.stats;
    let allocated = |belongs: &dyn Fn(&str) -> bool| -> u64 {
        files.iter().filter(|file| belongs(&file.name)).map(|file| file.allocated_bytes).sum()
    };
    let wal = allocated(&|name| name.starts_with("wal-"));
    let manifest = allocated(&|name| name.starts_with("manifest-") || name == "superblock");
    let uses = [
        ("live", "data in use", stats.space.live_bytes),
        ("free", "data file, free for reuse", stats.space.free_bytes),
        ("held", "data file, kept for snapshots or the last durable state", stats.space.held_bytes),
        ("wal", "write-ahead log", wal),
        ("manifest", "manifest and superblock", manifest),
    ];
    let total: u64 = files.iter().map(|file: &StoreFile| file.allocated_bytes).sum();
    let keyspaces: Vec<_> =
        inspection.keyspaces.iter().map(|keyspace| (keyspace.name.clone(), &keyspace.stats)).collect();
    if context.json {
        let mut document: Map<_, _> =
            uses.iter().map(|(name, _, bytes)| (format!("{name}_bytes"), json!(bytes))).collect();
        document.insert("disk_bytes".to_owned(), json!(total));
        let values: Map<_, _> = keyspaces
            .iter()
            .filter(|(_, stats)| stats.values.bytes > 0)
            .map(|(name, stats)| {
                let bytes =
                    values_by_class(stats).map(|(class, bytes)| (format!("{class}_bytes"), json!(bytes)));
                (name.clone(), json!(Map::from_iter(bytes)))
            })
            .collect();
        let keyspaces: Map<_, _> =
            keyspaces.into_iter().map(|(name, stats)| (name, json!(stats.tree.stored_bytes))).collect();
        document.insert("keyspaces".to_owned(), json!(keyspaces));
        document.insert("values".to_owned(), json!(values));
        let mut document = Value::Object(document);
        inspection.describe(&mut document);
        context.console.json(&document)?;
        return Ok(Verdict::Fine);
    }
    let mut rows: Vec<Vec<String>> = uses
        .iter()
        .map(|(name, what, bytes)| vec![(*name).to_owned(), show_size(*bytes), (*what).to_owned()])
        .collect();
    let file_count = u64_of(files.len());
    rows.push(vec!["total".to_owned(), show_size(total), format!("on the device, {file_count} files")]);
    for (name, stats) in keyspaces {
        let name = escape(name.as_bytes());
        rows.push(vec![name.clone(), show_size(stats.tree.stored_bytes), "keyspace".to_owned()]);
        for (class, bytes) in values_by_class(stats).into_iter().filter(|(_, bytes)| *bytes > 0) {
            let what = format!("of that, values outside its runs: {}", class.replace('_', ", "));
            rows.push(vec![name.clone(), show_size(bytes), what]);
        }
    }
    let columns = [("use", Align::Left), ("bytes", Align::Right), ("what", Align::Left)];
    context.console.table(&columns, &rows)?;
    Ok(Verdict::Fine)
}
