//! Every short script over a small alphabet, with a power loss at every I/O operation, and another one at
//! every I/O operation of the recovery. Creation and manifest rotation are covered in the same way.
//!
//! Power losses within the last op of every script, over all scripts up to a length, cover power losses
//! everywhere in all of them. A second loss is tried on all trees after scripts of two ops, and on the first
//! tree after all scripts, of which a short run takes one in four. A tenth of it tries each script of two ops
//! on one tree in three.
//!
//! **Invariants**
//! - The store opens after any of these losses and holds an allowed prefix.
//! - The seed of a failure is the number of its script.

use std::sync::Arc;

use testudo_base::num::u64_of;
use testudo_env::{CrashPolicy, Env, MemEnv, TornMode};
use testudo_testkit::{
    Runner, Script,
    configuration::{Configuration, crash_configurations},
    model::Model,
    op::Op,
    read_state,
    store::Opener,
};

use crate::{
    Amount, LayerReport, Limits,
    sweep::{Outcome, chosen_by_size, counted, judge, require_share, sweep},
};

pub(crate) const NAME: &str = "exhaustive";

/// Ops of the scripts.
const ALPHABET: [&str; 9] = [
    "insert 0 a 1:40",
    "remove 0 a",
    "batch synced 0/b=2:40 1/b=3:5000",
    "persist",
    "flush",
    "step 2",
    "drop 1",
    "create 1",
    "reopen",
];
/// Initial state of every script: two keyspaces, flushed and logged records, a killed process.
const START: &str = "
    create 0
    create 1
    batch synced 0/a=7:300 1/a=8:300
    flush
    batch synced 0/c=9:100 1/c=10:100
    insert 0 d 11:100
";
const LENGTH_SHORT: u32 = 3;
const LENGTH_LONG: u32 = 4;
/// Maximum length of scripts after which a second loss is tried on all trees.
const NESTED_LENGTH: usize = 2;
/// Stride through longer scripts in a short run. It is coprime to the number of letters, so that every letter
/// occurs at every position.
const NESTED_STRIDE_SHORT: u64 = 4;
/// A tenth of the short run tries a second loss after a script of two ops on one in this many trees.
const TREES_TENTH: u64 = 3;
/// Data that survives a power loss.
const POLICIES: [CrashPolicy; 3] =
    [CrashPolicy::LOSE_ALL, CrashPolicy::KEEP_ALL, CrashPolicy { keep_percent: 50, torn: TornMode::Mix }];
/// The policy under which recovery loses power as well.
const NESTED_POLICY: CrashPolicy = POLICIES[2];
/// Flushes after which the manifest must have been rotated.
const ROTATION_ROUNDS_MAX: u32 = 20_000;

/// A machine and the allowed content of a store on it.
struct Start {
    machine: Arc<MemEnv>,
    model: Model,
}

/// One script and its settings.
struct Item<'a> {
    configuration: &'a Configuration,
    number: u64,
    is_nested: bool,
}

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen_by_size(NAME, limits, crash_configurations())?;
    let length = if limits.amount == Amount::Short { LENGTH_SHORT } else { LENGTH_LONG };
    let count = (1..=length).map(|length| u64_of(ALPHABET.len()).pow(length)).sum();
    let numbers = limits.seed.map_or(0..count, |number| number..number + 1);
    let (every, every_nested) = (limits.one_in(1), limits.one_in(NESTED_STRIDE_SHORT));
    let every_brief = if limits.is_tenth() { TREES_TENTH } else { 1 };
    let items = configurations.iter().zip(0_u64..).flat_map(|(configuration, index)| {
        // Try different longer scripts on each tree.
        let is_tried = move |number: &u64| is_brief(*number) || (number + index).is_multiple_of(every);
        numbers.clone().filter(is_tried).map(move |number| Item {
            configuration,
            number,
            is_nested: is_brief(number) && (number + index).is_multiple_of(every_brief)
                || index == 0 && number.is_multiple_of(every_nested),
        })
    });
    let mut report = sweep(limits, items, None, |item| {
        let name = &item.configuration.name;
        judge(NAME, Some(name), Some(item.number), || every_loss_of_script(&item))
    })?;
    if limits.seed.is_none() {
        report.merge(sweep(limits, &configurations, None, |configuration| {
            judge(NAME, Some(&configuration.name), None, || {
                let mut report = every_loss_of_creation(configuration)?;
                report.merge(every_loss_of_rotation(configuration)?);
                Ok(report)
            })
        })?);
    }
    let least = [("scripts", 2_000), ("losses", 20_000), ("losses in recovery", 50_000), ("rotations", 3)];
    require_share(NAME, limits, &report, &least)?;
    Ok(report)
}

/// Whether a second loss is tried on all trees after this script.
fn is_brief(number: u64) -> bool {
    script_of(number).len() <= NESTED_LENGTH
}

/// Returns the script of a number: scripts of one op first, then of two, and so on.
fn script_of(mut number: u64) -> Vec<&'static str> {
    let base = u64_of(ALPHABET.len());
    let (mut length, mut count) = (1, base);
    while number >= count {
        number -= count;
        length += 1;
        count *= base;
    }
    let letter = |place: u32| ALPHABET[testudo_base::num::usize_of(number / base.pow(place) % base)];
    (0..length).map(letter).collect()
}

fn started(configuration: &Configuration) -> Result<Start, String> {
    let script: Script = START.parse()?;
    let mut runner = Runner::new(&configuration.opener, 1);
    runner.run_ops(&script).map_err(|failure| failure.to_string())?;
    Ok(Start {
        machine: runner.machine().crash_image(&CrashPolicy::KEEP_ALL, 1),
        model: runner.model().clone(),
    })
}

fn every_loss_of_script(item: &Item<'_>) -> Result<LayerReport, String> {
    let lines = script_of(item.number);
    let start = started(item.configuration)?;
    let script: Script = lines.join("\n").parse()?;
    let mut report = every_loss(&item.configuration.opener, &start, &script, item.is_nested)
        .map_err(|wrong| format!("{wrong}\nthe script, after `{}`:\n{script}", START.trim()))?;
    report.merge(counted("scripts", 1));
    Ok(report)
}

fn every_loss_of_creation(configuration: &Configuration) -> Result<LayerReport, String> {
    let opener = &configuration.opener;
    let mut report = LayerReport::default();
    for after in 0.. {
        let machine = MemEnv::new(1);
        machine.crash_after(after);
        let opened = opener.open(Arc::clone(&machine) as Arc<dyn Env>);
        if !machine.is_crashed() {
            opened.map_err(|error| format!("creation: {error:?}"))?;
            return Ok(report);
        }
        drop(opened);
        let context = |wrong| format!("creation, a loss after {after} operations: {wrong}");
        report.merge(judge_images(opener, &machine, &Model::default(), after, true).map_err(context)?);
    }
    Ok(report)
}

fn every_loss_of_rotation(configuration: &Configuration) -> Result<LayerReport, String> {
    let start = before_rotation(configuration)?;
    let script: Script = "insert 0 a 1:10\nflush".parse()?;
    let mut report = every_loss(&configuration.opener, &start, &script, true)
        .map_err(|wrong| format!("rotation of the manifest: {wrong}"))?;
    report.merge(counted("rotations", 1));
    Ok(report)
}

/// Returns a machine whose manifest is rotated by the next flush.
fn before_rotation(configuration: &Configuration) -> Result<Start, String> {
    const NAME_BEFORE: &str = "manifest-0000000001";
    let mut runner = Runner::new(&configuration.opener, 1);
    runner.op(&Op::Create { keyspace: 0 })?;
    for round in 0..ROTATION_ROUNDS_MAX {
        let (machine, model) =
            (runner.machine().crash_image(&CrashPolicy::KEEP_ALL, 1), runner.model().clone());
        let script: Script = format!("insert 0 {} {round}:50\nflush", round % 7).parse()?;
        runner.run_ops(&script).map_err(|failure| failure.to_string())?;
        if !runner.machine().all_files().iter().any(|path| path.ends_with(NAME_BEFORE)) {
            return Ok(Start { machine, model });
        }
    }
    Err("the manifest was never rotated".into())
}

/// Loses power after every I/O operation of the script's last op.
fn every_loss(
    opener: &dyn Opener,
    start: &Start,
    script: &Script,
    is_nested: bool,
) -> Result<LayerReport, String> {
    let mut report = LayerReport::default();
    let Some((last, before)) = script.0.split_last() else { return Ok(report) };
    for after in 0.. {
        let machine = start.machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
        let mut runner = Runner::resume(opener, machine, start.model.clone());
        before.iter().try_for_each(|op| runner.op(op))?;
        if !runner.lose_power_within(last, after)? {
            break;
        }
        let context = |wrong| format!("a loss after {after} operations of the last op: {wrong}");
        let images = judge_images(opener, runner.machine(), runner.model(), after, is_nested);
        report.merge(images.map_err(context)?);
    }
    Ok(report)
}

/// Opens every image that the loss may have left, under every policy; if nested, with a second loss at every
/// I/O operation.
fn judge_images(
    opener: &dyn Opener,
    dead: &MemEnv,
    model: &Model,
    seed: u64,
    is_nested: bool,
) -> Result<LayerReport, String> {
    let mut report = LayerReport::default();
    for policy in POLICIES {
        let image = dead.crash_image(&policy, seed);
        judge_image(opener, image, model).map_err(|wrong| format!("{policy:?}: {wrong}"))?;
        report.merge(counted("losses", 1));
    }
    if !is_nested {
        return Ok(report);
    }
    let image = dead.crash_image(&NESTED_POLICY, seed);
    for after in 0.. {
        let machine = image.crash_image(&CrashPolicy::KEEP_ALL, 1);
        machine.crash_after(after);
        let opened = opener.open(Arc::clone(&machine) as Arc<dyn Env>);
        if !machine.is_crashed() {
            break;
        }
        drop(opened);
        let second = machine.crash_image(&NESTED_POLICY, seed + after);
        judge_image(opener, second, model)
            .map_err(|wrong| format!("and another one after {after} operations of the recovery: {wrong}"))?;
        report.merge(counted("losses in recovery", 1));
    }
    Ok(report)
}

fn judge_image(opener: &dyn Opener, image: Arc<MemEnv>, model: &Model) -> Result<(), String> {
    let store = opener.open(image as Arc<dyn Env>).map_err(|error| format!("open: {error:?}"))?;
    store.check_invariants().map_err(|error| format!("invariants: {error:?}"))?;
    let found = read_state(&*store).map_err(|error| format!("read: {error:?}"))?;
    model.clone().recover(&found).map(drop)
}

#[cfg(test)]
mod tests;
