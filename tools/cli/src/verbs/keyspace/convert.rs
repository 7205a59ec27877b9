//! `testudo keyspace convert`: changes a keyspace's tree or placement, and optionally waits for the move.

use std::time::Duration;

use serde_json::json;
use testudo::{Db, KeyspaceStats, Placement, TreePreset, stats::MovingStats};
use testudo_env::Env;

use crate::{
    arguments::StoreArguments,
    context::Context,
    failure::{Failure, Outcome, Verdict},
    input::bytes_text::escape,
    output::progress::{Progress, Unit},
    store,
};

/// Interval of progress updates.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Target of a conversion.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) tree: Option<TreePreset>,
    /// Placement of values, if it differs from the preset's.
    pub(super) placement: Option<Placement>,
    /// Whether to wait until the whole keyspace has moved.
    pub(super) waits: bool,
}

/// Converts the keyspace called `name`.
pub(super) fn run(context: &mut Context, store: &StoreArguments, name: &str, target: &Target) -> Outcome {
    let interruption = context.catch_interruption()?;
    let db = store::open_for_writing(context, store)?;
    let is_over = || interruption.is_raised();
    let stats = store.close_after(db, |db| convert(context, db, store, (name, target), is_over))?;
    let (tree, MovingStats { from: moving_from, moved_bytes, left_bytes, .. }) =
        (&stats.tree.name, &stats.moving);
    if context.json {
        let mut document = json!({ "keyspace": name, "tree": tree, "moving_from": moving_from });
        if let Some(placement) = target.placement.or(target.tree.and_then(|preset| preset.placement())) {
            document["placement"] = json!(placement.to_string());
        }
        if moving_from.is_some() {
            document["moved_bytes"] = json!(moved_bytes);
            document["left_bytes"] = json!(left_bytes);
        }
        context.console.json(&document)?;
    } else if moving_from.as_ref() == Some(tree) {
        let name = escape(name.as_bytes());
        context.console.line(format_args!(
            "values of '{name}' move back to their keys while the store is open for writing"
        ))?;
    } else if let Some(from) = moving_from {
        let name = escape(name.as_bytes());
        context.console.line(format_args!(
            "'{name}' is moving from {from} to {tree} while the store is open for writing"
        ))?;
    }
    if target.waits && moving_from.is_some() {
        return Err(Failure::new("interrupted; the move resumes when the store is next opened for writing"));
    }
    Ok(Verdict::Fine)
}

/// Sets tree and placement, and waits if requested; returns the statistics afterwards.
fn convert(
    context: &Context,
    db: &Db,
    store: &StoreArguments,
    (name, target): (&str, &Target),
    is_over: impl Fn() -> bool,
) -> Result<KeyspaceStats, Failure> {
    let keyspace = store.existing_keyspace(db, name)?;
    if let Some(tree) = target.tree {
        keyspace.set_tree(tree).map_err(|error| store.failure(&error))?;
    }
    if let Some(placement) = target.placement {
        keyspace.set_placement(placement).map_err(|error| store.failure(&error))?;
    }
    let mut progress = Progress::new(context, "convert", Some(0), Unit::Bytes);
    loop {
        let stats = keyspace.stats();
        if !target.waits || stats.moving.from.is_none() || is_over() {
            return Ok(stats);
        }
        // Returns the error if background work has failed.
        db.persist(testudo::Durability::Buffered).map_err(|error| store.failure(&error))?;
        progress.set_total(stats.moving.moved_bytes + stats.moving.left_bytes);
        progress.set(stats.moving.moved_bytes);
        context.env.sleep(LOOK_EVERY);
    }
}
