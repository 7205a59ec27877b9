//! `testudo stat`: prints every counter and gauge of the store.
//!
//! Counters start when the store is opened: by the process that writes it, if there is one, otherwise by this
//! verb a moment ago. Gauges (sizes, seqnos) describe the state of the store.

use clap::Args;
use serde_json::{Map, Value, json};
use testudo::stats::{Metric, MetricUnit, MetricValue};

use crate::{
    arguments::{StoreArguments, parse_name},
    context::Context,
    failure::{Outcome, Verdict},
    inspection::{Inspection, inspect},
    output::size::{show_count, show_size},
};

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
        let metrics = inspection.keyspace(store, name)?.stats.metrics();
        return print(context, &inspection, &metrics, None);
    }
    let keyspaces = inspection.keyspaces.iter();
    let keyspaces = keyspaces.map(|keyspace| (keyspace.name.clone(), json_of(&keyspace.stats.metrics())));
    print(context, &inspection, &inspection.stats.metrics(), Some(keyspaces.collect()))
}

/// Returns the statistics as a JSON object.
fn json_of(metrics: &[Metric<'_>]) -> Value {
    metrics.iter().map(|metric| (metric.name, json!(metric.value))).collect()
}

fn print(
    context: &mut Context,
    inspection: &Inspection,
    metrics: &[Metric<'_>],
    keyspaces: Option<Map<String, Value>>,
) -> Outcome {
    if context.json {
        let mut document = match keyspaces {
            Some(keyspaces) => json!({ "store": json_of(metrics), "keyspaces": keyspaces }),
            None => json_of(metrics),
        };
        inspection.describe(&mut document);
        context.console.json(&document)?;
        return Ok(Verdict::Fine);
    }
    inspection.say(context)?;
    let is_open = inspection.is_in_use();
    let applies = |metric: &&Metric<'_>| metric.value != MetricValue::Text(None);
    let is_shown = |metric: &&Metric<'_>| is_open || !is_zero(metric.value);
    if !is_open {
        let left_out = metrics.iter().filter(applies).filter(|metric| !is_shown(metric)).count();
        context.console.line(format_args!(
            "not open in any process, so nothing is counted: {left_out} zero statistics are \
             omitted (--json shows them)"
        ))?;
    }
    let mut group = "";
    for metric in metrics.iter().filter(applies).filter(is_shown) {
        if metric.group != group {
            group = metric.group;
            context.console.line(format_args!("{group}"))?;
        }
        context.console.line(format_args!("  {:<28}{:>20}", metric.name, text_of(metric)))?;
    }
    Ok(Verdict::Fine)
}

fn is_zero(value: MetricValue<'_>) -> bool {
    matches!(value, MetricValue::Number(0) | MetricValue::Flag(false))
}

fn text_of(metric: &Metric<'_>) -> String {
    match metric.value {
        MetricValue::Number(bytes) if metric.unit == MetricUnit::Bytes => show_size(bytes),
        MetricValue::Number(count) => show_count(count),
        MetricValue::Text(Some(text)) => text.to_owned(),
        other => json!(other).to_string(),
    }
}
