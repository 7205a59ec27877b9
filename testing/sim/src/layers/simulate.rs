//! The whole engine with its background work stepped; a seed mixes operations and faults.
//!
//! One run performs reads, writes, flushes, jobs, drops, snapshots, reopens, kills and power losses, also
//! during recovery and creation. Meanwhile calls fail, the disk fills up and slows down, the clock jumps, and
//! another owner tries to open the store. Occasionally a copy of the store continues alone with damage that
//! no error reports: see `damage`.
//!
//! **Invariants**
//! - Runs of one seed are byte-identical: the digest covers all I/O and answers.
//! - Errors count as answers only between the arming of a fault and the reopen after it.
//! - Invariants are checked after every operation, the content against the model after every open.

mod damage;
mod disk;
mod fault;

use std::{sync::Arc, time::Duration};

use testudo_base::{Error, ErrorKind, Result, checksum::checksum64};
use testudo_env::{CrashPolicy, Env, MemEnv, SplitMix};
use testudo_testkit::{
    Generator, Overlay, Profile, Rules, Runner, Script, ValueSizes, Weights,
    configuration::{Configuration, crash_configurations},
    engine_store::EngineOpener,
    op::{Crash, Op},
    store::{Opener, Store},
};

use self::{
    disk::Disk,
    fault::{Activity, Armed, Fault},
};
use crate::{
    LayerFailure, LayerReport, Limits,
    sweep::{Enough, Outcome, chosen, counted, judge, require, require_share, search},
};

pub(crate) const NAME: &str = "simulate";
pub(crate) const UNIT: &str = "ops";

/// Operations of one run.
const OP_COUNT: u64 = 1_200;
const OPS_SHORT: u64 = 150_000;
/// Minimum operations that reach every phase.
const OPS_LEAST: u64 = 60_000;
/// Chance of an event before each operation.
const EVENT_PERCENT: u8 = 8;
/// Maximum calls before a fault strikes.
const COUNTDOWN_MAX: u64 = 24;
/// Maximum operations of a disturbance.
const TROUBLE_OPS_MAX: u64 = 40;
/// As above, for a fault that waits for a rare call, such as one on log segments.
const PATIENT_OPS_MAX: u64 = 400;
/// Lines of the trace that a failure shows.
const TRACE_LINES: usize = 12;

/// Phases in which faults must have struck in the short form.
const PHASES: [&str; 10] = [
    "creation",
    "recovery",
    "log write",
    "log segment",
    "manifest edit",
    "rotation",
    "flush",
    "background step",
    "close",
    "read",
];

/// Result of a run, in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Counters of the run.
    pub report: LayerReport,
    /// Digest of all its I/O and answers.
    pub digest: u64,
}

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen(NAME, limits, crash_configurations())?;
    let enough = Enough { unit: UNIT, count: limits.share_or(OPS_SHORT).max(OPS_LEAST) };
    search(
        limits,
        &configurations,
        enough,
        |report| is_covered(limits, report),
        |configuration, seed| {
            judge(NAME, Some(&configuration.name), Some(seed), || {
                run_seed(configuration, seed).map(|run| run.report)
            })
        },
    )
}

/// Checks that faults struck in every phase, and that everything else happened often enough.
fn is_covered(limits: &Limits, report: &LayerReport) -> std::result::Result<(), LayerFailure> {
    for phase in PHASES {
        let struck = counted(phase, usize::from(reached(report, phase) > 0));
        require(NAME, limits, &struck, &[(phase, 1)])?;
    }
    let least = [("damaged stores", 100), ("second opens refused", 50), ("crash images", 500)];
    require_share(NAME, limits, report, &least)
}

/// Faults that struck in a phase.
fn reached(report: &LayerReport, phase: &str) -> u64 {
    let of_phase = |(name, _): &(&String, &u64)| name.ends_with(&format!("× {phase}"));
    report.counts.iter().filter(of_phase).map(|(_, count)| count).sum()
}

/// Opens the engine and notifies the disk of it.
#[derive(Debug)]
struct SimOpener {
    engine: EngineOpener,
    disk: Disk,
}

impl Opener for SimOpener {
    fn open(&self, env: Arc<dyn Env>) -> Result<Box<dyn Store>> {
        let before = std::mem::replace(&mut self.disk.state().activity, Activity::Open);
        let opened = self.engine.open(env);
        self.disk.state().activity = before;
        opened
    }

    fn work_without_operators(&self, env: Arc<dyn Env>) -> Result<()> {
        self.engine.work_without_operators(env)
    }
}

/// Script profile of a seed: small records, or large ones with the minimum memory.
fn profile(seed: u64) -> Profile {
    let weights = Weights { crash: 60, arm: 90, verify: 10, snapshot: 60, step: 1500, ..Weights::crashing() };
    let values = match seed % 3 {
        0 => ValueSizes { page: 400, huge: 20, huge_bytes: 60_000, ..ValueSizes::default() },
        _ => ValueSizes { huge: 1, huge_bytes: 30_000, ..ValueSizes::default() },
    };
    Profile { weights, values, key_count: 150, ..Profile::default() }
}

/// Performs one run.
pub fn run_seed(configuration: &Configuration, seed: u64) -> std::result::Result<Run, String> {
    let disk = Disk::new(false);
    let opener = SimOpener { engine: configuration.opener.clone(), disk: disk.clone() };
    let rules = Rules { ops_between_checks: 1, ..Rules::default() };
    let runner = Runner::new(&opener, seed).with_overlay(Arc::new(disk.clone())).with_rules(rules);
    let mut simulation = Simulation {
        configuration,
        runner,
        disk: disk.clone(),
        random: SplitMix::new(seed ^ 0x5eed),
        trouble: None,
        report: LayerReport::default(),
    };
    simulation.perform(seed).map_err(|wrong| {
        let trace = simulation.disk.state().trace.clone();
        let start = trace.len().saturating_sub(TRACE_LINES);
        format!("{wrong}\nlast events:\n  {}", trace[start..].join("\n  "))
    })?;
    let mut report = simulation.report;
    report.merge(simulation.runner.report().into());
    let state = disk.state();
    state.strikes.iter().for_each(|(name, count)| report.add(name, *count));
    report.add("runs", 1);
    Ok(Run { digest: checksum64(format!("{report}").as_bytes(), state.digest), report })
}

struct Simulation<'a> {
    configuration: &'a Configuration,
    runner: Runner<'a>,
    disk: Disk,
    random: SplitMix,
    /// Operations until the current disturbance is over.
    trouble: Option<u64>,
    report: LayerReport,
}

impl Simulation<'_> {
    fn perform(&mut self, seed: u64) -> std::result::Result<(), String> {
        let profile = profile(seed);
        let mut generator = Generator::new(&profile, seed);
        // Some runs begin with a fault or a power loss during creation of the store.
        match self.random.below(4) {
            0 => {
                let fault = Fault::told(&mut self.random);
                let armed = Armed { fault, file: "", countdown: self.random.below(4), lasting: false };
                self.arm(armed);
            }
            1 => {
                let crash =
                    Crash { policy: CrashPolicy::random(seed), seed, nested: vec![self.random.below(20)] };
                let after = self.random.below(20);
                self.op(&Op::Arm { after, crash })?;
            }
            _ => {}
        }
        for step in 0..OP_COUNT {
            let op = generator.op();
            let fail = |wrong: String| format!("step {step}, {op}: {wrong}");
            if self.random.percent(EVENT_PERCENT) {
                self.event(&profile).map_err(|wrong| format!("before step {step}: {wrong}"))?;
            }
            self.op(&op).map_err(fail)?;
            self.pass_trouble().map_err(fail)?;
        }
        self.end_trouble().map_err(|wrong| format!("after all steps: {wrong}"))?;
        let script = Script(vec![Op::Verify, Op::Reopen, Op::Verify]);
        script
            .0
            .iter()
            .try_for_each(|op| self.op(op))
            .map_err(|wrong| format!("the last comparison: {wrong}"))
    }

    fn op(&mut self, op: &Op) -> std::result::Result<(), String> {
        {
            let mut state = self.disk.state();
            state.activity = Activity::of(op);
            state.trace.push(op.to_string());
        }
        self.runner.op(op)
    }

    /// Causes an event outside of the operations.
    fn event(&mut self, profile: &Profile) -> std::result::Result<(), String> {
        match self.random.below(10) {
            0..=3 if self.trouble.is_none() => {
                let fault = Fault::told(&mut self.random);
                let mut armed = Armed::random(fault, COUNTDOWN_MAX, &mut self.random);
                armed.lasting = self.random.percent(25);
                self.arm(armed);
            }
            4 if self.trouble.is_none() => self.fill_disk(),
            5 => self.disk.state().is_slow ^= true,
            6 => self.jump_clock(),
            7 => return self.open_twice(),
            8 | 9 if self.trouble.is_none() => return self.damage_a_copy(profile),
            _ => {}
        }
        Ok(())
    }

    fn arm(&mut self, armed: Armed) {
        self.disk.state().armed = Some(armed);
        let ops_max = if armed.fault.strikes_rare_calls() { PATIENT_OPS_MAX } else { TROUBLE_OPS_MAX };
        self.begin_trouble(&armed.describe(), ops_max);
    }

    fn fill_disk(&mut self) {
        let machine = self.runner.machine();
        let room = self.random.below(400_000);
        machine.space_limit(Some((machine.used_bytes() + room).saturating_sub(50_000)));
        self.disk.state().record("full disk", "from here on");
        self.begin_trouble(&format!("the disk has {room} bytes of room, less 50,000"), TROUBLE_OPS_MAX);
    }

    fn begin_trouble(&mut self, what: &str, ops_max: u64) {
        self.disk.state().trace.push(what.into());
        self.runner.tolerate_faults();
        self.trouble = Some(1 + self.random.below(ops_max));
    }

    fn pass_trouble(&mut self) -> std::result::Result<(), String> {
        match &mut self.trouble {
            Some(0) => self.end_trouble(),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Heals the device and reopens the store, which may have had to refuse writes permanently.
    fn end_trouble(&mut self) -> std::result::Result<(), String> {
        if self.trouble.take().is_none() {
            return Ok(());
        }
        self.disk.state().trace.push("the device is healed".into());
        self.disk.heal();
        self.runner.machine().space_limit(None);
        let end = if self.random.percent(50) { Op::Reopen } else { Op::Kill };
        self.op(&end)?;
        self.runner.require_health();
        Ok(())
    }

    fn jump_clock(&mut self) {
        let days = self.random.below(4_000);
        let seconds = i64::try_from(days).unwrap_or(0) * 86_400;
        let mut state = self.disk.state();
        state.clock_error = if self.random.percent(50) { -seconds } else { seconds };
        if self.random.percent(30) {
            self.runner.machine().sleep(Duration::from_secs(days * 3_600));
        }
        state.record("clock jump", "anywhere");
    }

    /// Opens the directory a second time: must be refused before any write.
    fn open_twice(&mut self) -> std::result::Result<(), String> {
        if !self.runner.is_open() || self.trouble.is_some() || self.runner.is_armed() {
            return Ok(());
        }
        let machine: &Arc<MemEnv> = self.runner.machine();
        let before = machine.operation_count();
        let second = self.configuration.opener.open(Arc::clone(machine) as Arc<dyn Env>);
        let is_locked = |error: &Error| error.kind() == ErrorKind::Locked;
        if !second.as_ref().is_err_and(is_locked) || machine.operation_count() != before {
            return Err("a second open was not refused as Locked before anything was written".into());
        }
        self.report.merge(counted("second opens refused", 1));
        Ok(())
    }

    /// Lets a copy of the store continue with damage, then continues this run without it.
    fn damage_a_copy(&mut self, profile: &Profile) -> std::result::Result<(), String> {
        if !self.runner.is_open() || self.runner.is_armed() {
            return Ok(());
        }
        let seed = self.random.next_u64();
        let (report, digest) = damage::run_damaged(self.configuration, &self.runner, profile, seed)?;
        self.report.merge(report);
        let mut state = self.disk.state();
        state.digest = checksum64(&digest.to_le_bytes(), state.digest);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
