//! `testudo info`: describes the store.

use clap::Args;
use serde_json::json;
use testudo_storage::FORMAT_VERSION;

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
    store_files::list_store_files,
};

/// Arguments of `testudo info`.
#[derive(Args, Debug)]
pub(crate) struct InfoArguments {
    #[command(flatten)]
    store: StoreArguments,
}

/// Prints the identity, the keyspaces and the files.
pub(crate) fn run(context: &mut Context, arguments: &InfoArguments) -> Outcome {
    let store = &arguments.store;
    let inspection = inspect(context, store)?;
    inspection.say(context)?;
    let files = list_store_files(context, &store.dir)?;
    let (stats, store_id) = (&inspection.stats, inspection.store_id.clone());
    let keyspaces: Vec<_> =
        inspection.keyspaces.iter().map(|keyspace| (&keyspace.name, &keyspace.stats.tree.name)).collect();
    let disk_bytes: u64 = files.iter().map(|file| file.allocated_bytes).sum();
    if context.json {
        let keyspaces: Vec<_> =
            keyspaces.iter().map(|(name, tree)| json!({ "keyspace": name, "tree": tree })).collect();
        let mut document = json!({
            "directory": store.dir.display().to_string(), "store_id": store_id,
            "format_version": FORMAT_VERSION, "seqno": stats.log.seqno, "live_bytes": stats.space.live_bytes,
            "disk_bytes": disk_bytes, "keyspaces": keyspaces, "files": files,
        });
        inspection.describe(&mut document);
        context.console.json(&document)?;
        return Ok(Verdict::Fine);
    }
    let names: Vec<String> =
        keyspaces.iter().map(|(name, tree)| format!("{} ({tree})", escape(name.as_bytes()))).collect();
    let lines = [
        ("directory", store.dir.display().to_string()),
        ("store id", store_id),
        ("format version", FORMAT_VERSION.to_string()),
        ("seqno", show_count(stats.log.seqno)),
        ("live data", show_size(stats.space.live_bytes)),
        ("on the device", show_size(disk_bytes)),
        ("keyspaces", if names.is_empty() { "none".to_owned() } else { names.join(", ") }),
    ];
    for (what, text) in lines {
        context.console.line(format_args!("{what:<15} {text}"))?;
    }
    let row = |file: &crate::store_files::StoreFile| {
        vec![file.name.clone(), show_size(file.bytes), show_size(file.allocated_bytes)]
    };
    let rows: Vec<Vec<String>> = files.iter().map(row).collect();
    let columns = [("file", Align::Left), ("length", Align::Right), ("on the device", Align::Right)];
    context.console.table(&columns, &rows)?;
    Ok(Verdict::Fine)
}
