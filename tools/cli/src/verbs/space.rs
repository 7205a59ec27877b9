//! `testudo space`: where the bytes on the device are, by use and by keyspace.

use clap::Args;
use serde_json::{Map, Value, json};
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
        ("live", "data in use", stats.live_bytes),
        ("free", "data file, free to be used again", stats.free_bytes),
        ("held", "data file, kept for snapshots or the last durable state", stats.held_bytes),
        ("wal", "write-ahead log", wal),
        ("manifest", "manifest and superblock", manifest),
    ];
    let total: u64 = files.iter().map(|file: &StoreFile| file.allocated_bytes).sum();
    let keyspaces: Vec<_> = inspection
        .keyspaces
        .iter()
        .map(|keyspace| (keyspace.name.clone(), keyspace.stats.stored_bytes))
        .collect();
    if context.json {
        let mut document: Map<_, _> =
            uses.iter().map(|(name, _, bytes)| (format!("{name}_bytes"), json!(bytes))).collect();
        document.insert("disk_bytes".to_owned(), json!(total));
        let keyspaces: Map<_, _> = keyspaces.into_iter().map(|(name, bytes)| (name, json!(bytes))).collect();
        document.insert("keyspaces".to_owned(), json!(keyspaces));
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
    rows.extend(
        keyspaces
            .into_iter()
            .map(|(name, bytes)| vec![escape(name.as_bytes()), show_size(bytes), "keyspace".to_owned()]),
    );
    let columns = [("use", Align::Left), ("bytes", Align::Right), ("what", Align::Left)];
    context.console.table(&columns, &rows)?;
    Ok(Verdict::Fine)
}
