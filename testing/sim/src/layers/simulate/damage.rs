//! A copy of a simulated store continues with damage that no error reports: flipped bits, files of another
//! store, acknowledged writes that are lost or misdirected. Answers stay right, or are errors that name the
//! damage.
//!
//! **Invariants**
//! - Writes that later records prove durable are never lost silently; writes without such proof may be, but
//!   only from the end of the commit order.

use std::{path::PathBuf, sync::Arc};

use testudo_base::num::u64_of;
use testudo_env::{CrashPolicy, MemEnv, SplitMix};
use testudo_testkit::{
    Generator, Key, Profile, Rules, Runner, Script, Value, Weights, configuration::Configuration, op::Op,
};

use super::{
    SimOpener,
    disk::Disk,
    fault::{Activity, Armed, Fault},
};
use crate::LayerReport;

/// Operations with the damage.
const OPS: usize = 30;
/// Maximum writes before one is lost.
const COUNTDOWN_MAX: u64 = 20;

/// Runs the copy; returns its report and its digest.
pub(super) fn run_damaged(
    configuration: &Configuration,
    original: &Runner<'_>,
    profile: &Profile,
    seed: u64,
) -> Result<(LayerReport, u64), String> {
    let disk = Disk::new(true);
    let opener = SimOpener { engine: configuration.opener.clone(), disk: disk.clone() };
    let image = original.machine().crash_image(&CrashPolicy::KEEP_ALL, seed);
    let rules =
        Rules { ops_between_checks: 1, tolerate_faults: true, tolerate_damage: true, ..Rules::default() };
    let runner = Runner::resume(&opener, image, original.model().clone());
    let runner = runner.with_overlay(Arc::new(disk.clone())).with_rules(rules);
    let mut copy =
        Copy { configuration, runner, disk: disk.clone(), random: SplitMix::new(seed), done: String::new() };
    copy.live(profile).map_err(|wrong| {
        let trace = disk.state().trace.join("\n  ");
        format!("a damaged copy, {}: {wrong}\nits events:\n  {trace}", copy.done)
    })?;
    let mut report = LayerReport::default();
    let state = disk.state();
    state.strikes.iter().for_each(|(name, count)| report.add(name, *count));
    report.add("damaged stores", 1);
    report.add(if copy.runner.has_ended() { "damaged stores refused" } else { "damaged stores served" }, 1);
    report.add("operations of damaged stores", u64_of(copy.runner.report().ops));
    Ok((report, state.digest))
}

struct Copy<'a> {
    configuration: &'a Configuration,
    runner: Runner<'a>,
    disk: Disk,
    random: SplitMix,
    /// The damage done to it.
    done: String,
}

impl Copy<'_> {
    fn live(&mut self, profile: &Profile) -> Result<(), String> {
        // Opening records what is durable; the last record, itself unsynced, proves all synced ones before
        // it. Later records are not proven yet, and damage to them looks like a torn tail after a power loss.
        let tail = Op::Insert { keyspace: 0, key: Key::of("tail"), value: Value { seed: 1, length: 50 } };
        // The manifest creates keyspaces outside of the log's order, so all are created first.
        let creations = (0..profile.keyspace_count).map(|keyspace| Op::Create { keyspace });
        for op in creations.chain([Op::Reopen, Op::Persist]) {
            self.op(&op)?;
        }
        self.runner.distrust();
        for op in [tail, Op::Step { count: 1 }] {
            self.op(&op)?;
        }
        self.damage()?;
        let weights = Weights { arm: 0, drop: 0, crash: 60, reopen: 60, kill: 60, ..profile.weights.clone() };
        let profile = Profile { weights, nested_percent: 0, ..profile.clone() };
        let script = Generator::new(&profile, self.random.next_u64()).script(OPS);
        let last = [Op::Verify, Op::Reopen, Op::Verify, Op::Kill, Op::Verify];
        Script(script.0.into_iter().chain(last).collect()).0.iter().try_for_each(|op| self.op(op))
    }

    fn op(&mut self, op: &Op) -> Result<(), String> {
        {
            let mut state = self.disk.state();
            state.activity = Activity::of(op);
            state.trace.push(op.to_string());
        }
        self.runner.op(op).map_err(|wrong| format!("{op}: {wrong}"))
    }

    fn damage(&mut self) -> Result<(), String> {
        match self.random.below(4) {
            0 | 1 => self.flip(),
            2 => self.swap_file(),
            _ => {
                let fault = if self.random.percent(50) { Fault::LostWrite } else { Fault::Misdirected };
                let armed = Armed::random(fault, COUNTDOWN_MAX, &mut self.random);
                self.disk.state().armed = Some(armed);
                self.say(armed.describe());
                Ok(())
            }
        }
    }

    fn say(&mut self, done: String) {
        self.disk.state().trace.push(done.clone());
        self.done = done;
    }

    /// Flips bits of one byte: a nonzero one, or any.
    fn flip(&mut self) -> Result<(), String> {
        let machine = Arc::clone(self.runner.machine());
        let Some((path, bytes)) = self.pick_file(&machine) else { return Ok(()) };
        let full: Vec<u64> =
            (0..).zip(&bytes).filter(|(_, byte)| **byte != 0).map(|(offset, _)| offset).collect();
        let Some(&offset) = self.pick(&full) else { return Ok(()) };
        let mask = 1 << self.random.below(8);
        machine.corrupt(&path, offset, mask).map_err(|error| error.to_string())?;
        self.disk.state().record("bit flip", name_of(&path));
        self.say(format!("{} at {offset} ^ {mask:#04x}", path.display()));
        Ok(())
    }

    /// Replaces a file by that of another store while the store is closed.
    fn swap_file(&mut self) -> Result<(), String> {
        let other = Runner::new(&self.configuration.opener, self.random.next_u64());
        let other = fill(other)?;
        self.op(&Op::Kill)?;
        let machine = Arc::clone(self.runner.machine());
        if let Some((path, _)) = self.pick_file(&machine)
            && let Ok(bytes) = other.file_bytes(&path)
        {
            // The store is open, as if a file was restored under it.
            machine.replace(&path, &bytes).map_err(|error| error.to_string())?;
            self.disk.state().record("foreign file", name_of(&path));
            self.say(format!("{} is another store's", path.display()));
        }
        Ok(())
    }

    fn pick_file(&mut self, machine: &MemEnv) -> Option<(PathBuf, Vec<u8>)> {
        let files = machine.all_files();
        let path = self.pick(&files)?.clone();
        let bytes = machine.file_bytes(&path).ok()?;
        Some((path, bytes))
    }

    fn pick<'v, T>(&mut self, all: &'v [T]) -> Option<&'v T> {
        if all.is_empty() {
            return None;
        }
        all.get(testudo_base::num::usize_of(self.random.below(u64_of(all.len()))))
    }
}

/// Returns a machine with another store after some writes.
fn fill(mut runner: Runner<'_>) -> Result<Arc<MemEnv>, String> {
    let weights = Weights { crash: 0, arm: 0, kill: 0, ..Weights::crashing() };
    let profile = Profile { weights, ..Profile::crashing() };
    let script = Generator::new(&profile, 1).script(60);
    runner.run_ops(&script).map_err(|failure| failure.to_string())?;
    Ok(Arc::clone(runner.machine()))
}

/// Kind of a file, for the report.
fn name_of(path: &std::path::Path) -> &'static str {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ["superblock", "manifest", "data", "wal"]
        .into_iter()
        .find(|kind| name.starts_with(kind))
        .unwrap_or("other file")
}
