//! `testudo stat`: prints every counter and gauge of the store.
//!
//! Counters start when the store is opened: by the process that writes it, if there is one, otherwise by this
//! verb a moment ago. Gauges (sizes, seqnos) describe the state of the store.

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    arguments::{StoreArguments, parse_name},
    context::Context,
    failure::{Failure, Outcome, Verdict},
    inspection::{Inspection, inspect},
    output::size::{show_count, show_size},
};

/// Groups of statistics, by prefixes of their names; the first match applies.
const GROUPS: [(&str, &[&str]); 7] = [
    (
        "memory",
        &[
            "memory",
            "memtable",
            "cache",
            "record_cache",
            "record_due",
            "write_memory",
            "metadata",
            "iterator",
            "flush_distance",
            "gap",
        ],
    ),
    ("warm restart and warm merges", &["restore", "warmed"]),
    ("reads", &["record_", "page_read", "stream_read", "device_bytes_read", "tombstones_passed"]),
    (
        "writes",
        &[
            "user",
            "dropped",
            "folded",
            "wal_bytes",
            "wal_syncs",
            "value_log",
            "data_bytes",
            "manifest_bytes_written",
            "hot_set",
            "device_bytes_written",
        ],
    ),
    (
        "space",
        &[
            "data_file",
            "live",
            "free",
            "held",
            "disk",
            "wal_live",
            "manifest_bytes",
            "stored",
            "value_",
            "transient_value",
            "dead_value",
            "dead_transient_value",
            "large_values",
            "retained",
            "replaced",
            "overflow",
            "reserve",
            "whole_reserve",
        ],
    ),
    (
        "background",
        &[
            "flushes",
            "flush_",
            "max_flush",
            "flushed_bytes",
            "jobs",
            "throttled",
            "write_stalls",
            "max_stall",
        ],
    ),
    (
        "state",
        &[
            "seqno",
            "durable_seqno",
            "flushed_seqno",
            "keyspaces",
            "snapshots",
            "tree",
            "moving",
            "moved",
            "left",
            "height",
            "frozen_levels",
            "nodes",
            "leaves",
            "buffered",
            "leaf_",
            "entries",
            "tombstones",
        ],
    ),
];
/// Group of all other statistics.
const OTHER: &str = "other";

/// Arguments of `testudo stat`.
#[derive(Args, Debug)]
pub(crate) struct StatArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Show this keyspace instead of the whole store
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    keyspace: Option<String>,
}

/// Prints the statistics.
pub(crate) fn run(context: &mut Context, arguments: &StatArguments) -> Outcome {
    let store = &arguments.store;
    let inspection = inspect(context, store)?;
    if let Some(name) = &arguments.keyspace {
        let stats = stats_of(&inspection.keyspace(store, name)?.stats)?;
        return print(context, &inspection, &stats, None);
    }
    let mut keyspaces = Map::new();
    for keyspace in &inspection.keyspaces {
        keyspaces.insert(keyspace.name.clone(), Value::Object(stats_of(&keyspace.stats)?));
    }
    print(context, &inspection, &stats_of(&inspection.stats)?, Some(keyspaces))
}

/// Returns the statistics as a JSON object.
pub(crate) fn stats_of(stats: &impl Serialize) -> Result<Map<String, Value>, Failure> {
    match serde_json::to_value(stats) {
        Ok(Value::Object(stats)) => Ok(stats),
        Ok(_) => Err(Failure::new("the statistics are not an object")),
        Err(error) => Err(Failure::new(format!("cannot write the statistics as JSON: {error}"))),
    }
}

fn print(
    context: &mut Context,
    inspection: &Inspection,
    stats: &Map<String, Value>,
    keyspaces: Option<Map<String, Value>>,
) -> Outcome {
    if context.json {
        let mut document = match keyspaces {
            Some(keyspaces) => json!({ "store": stats, "keyspaces": keyspaces }),
            None => json!(stats),
        };
        inspection.describe(&mut document);
        context.console.json(&document)?;
        return Ok(Verdict::Fine);
    }
    inspection.say(context)?;
    let is_open = inspection.is_in_use();
    let is_shown = |value: &Value| !value.is_null() && (is_open || value.as_u64() != Some(0));
    if !is_open {
        let left_out = stats.values().filter(|value| !value.is_null() && !is_shown(value)).count();
        context.console.line(format_args!(
            "not open in any process, so nothing is counted: {left_out} zero statistics are \
             omitted (--json shows them)"
        ))?;
    }
    for title in GROUPS.iter().map(|(title, _)| *title).chain([OTHER]) {
        let members = stats.iter().filter(|(name, value)| group_of(name) == title && is_shown(value));
        for (order, (name, value)) in members.enumerate() {
            if order == 0 {
                context.console.line(format_args!("{title}"))?;
            }
            context.console.line(format_args!("  {name:<28}{:>20}", format_stat(name, value)))?;
        }
    }
    Ok(Verdict::Fine)
}

/// Group of the statistic called `name`.
fn group_of(name: &str) -> &'static str {
    let mut groups = GROUPS.iter();
    let group = groups.find(|(_, starts)| starts.iter().any(|start| name.starts_with(start)));
    group.map_or(OTHER, |(title, _)| title)
}

fn format_stat(name: &str, value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_u64() {
            Some(bytes) if name.contains("bytes") => show_size(bytes),
            Some(count) => show_count(count),
            None => number.to_string(),
        },
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
