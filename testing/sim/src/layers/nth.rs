//! A small script with the n-th I/O call failing, for every n, once and permanently. Errors are accepted
//! answers; wrong answers, panics and the loss of writes acknowledged as durable are not.
//!
//! **Invariants**
//! - n increases until the script makes fewer than n calls.

use std::sync::Arc;

use testudo_base::num::usize_of;
use testudo_env::{CrashPolicy, Env, FaultError, FaultPlan, IoClass, MemEnv};
use testudo_testkit::{
    Failure, Report, Runner, Script,
    campaign::catch,
    configuration::{Configuration, crash_configurations},
    read_state,
    store::Opener,
};

use crate::{
    LayerReport, Limits,
    sweep::{Outcome, chosen_by_size, counted, judge, require_share, sweep},
};

pub(crate) const NAME: &str = "nth";

/// About sixty ops that use every kind of file.
const SCRIPT: &str = include_str!("scripts/nth.txt");

/// Runs the script under the plan; returns the report and whether a call failed.
fn run_plan(opener: &dyn Opener, script: &Script, plan: &FaultPlan) -> Result<(Report, bool), Failure> {
    catch(script, || {
        let (mut runner, faulty) = Runner::new(opener, 1).with_faults();
        faulty.set_plan(Some(plan.clone()));
        runner.run_ops(script)?;
        let struck = !faulty.failures().is_empty() || runner.fault_was_healed();
        // An image of a power loss now must hold everything acknowledged as durable.
        for policy in [CrashPolicy::LOSE_ALL, CrashPolicy::random(plan.skip)] {
            let image = runner.machine().crash_image(&policy, plan.skip);
            check_image(opener, &runner, image).map_err(|message| Failure {
                step: script.0.len(),
                op: format!("a crash under {policy:?} after the script"),
                message,
            })?;
        }
        faulty.set_plan(None);
        Ok((runner.run(&Script::default())?, struck))
    })
}

fn check_image(opener: &dyn Opener, runner: &Runner<'_>, image: Arc<MemEnv>) -> Result<(), String> {
    let store = opener.open(image as Arc<dyn Env>).map_err(|error| format!("open: {error:?}"))?;
    let found = read_state(&*store).map_err(|error| format!("read: {error:?}"))?;
    store.check_invariants().map_err(|error| format!("invariants: {error:?}"))?;
    runner.model().clone().recover(&found).map(drop)
}

/// A kind of failure, and the plan for a failure of the n-th call.
type Plan = (&'static str, fn(u64) -> FaultPlan);

/// The kinds of failures of the n-th call.
fn plans() -> Vec<Plan> {
    vec![
        ("EIO once", |n| FaultPlan::once(n, FaultError::Device)),
        ("EIO once, half written", |n| FaultPlan::once(n, FaultError::Device).with_partial_writes()),
        ("EIO permanently", |n| FaultPlan::once(n, FaultError::Device).for_good()),
        ("ENOSPC once", |n| FaultPlan::once(n, FaultError::NoSpace)),
        ("ENOSPC permanently", |n| FaultPlan::once(n, FaultError::NoSpace).for_good()),
        ("EMFILE once", |n| FaultPlan::once(n, FaultError::NoDescriptor).of_class(IoClass::Open)),
        ("ENOSPC at a reservation", |n| FaultPlan::once(n, FaultError::NoSpace).of_class(IoClass::Allocate)),
        ("EIO at a reservation", |n| FaultPlan::once(n, FaultError::Device).of_class(IoClass::Allocate)),
    ]
}

/// Items that a plan is divided into, so that threads share it evenly.
const PARTS: u64 = 8;

/// Tries these calls, up to the first that is never made.
fn every_failure(
    configuration: &Configuration,
    kind: &str,
    plan_of: fn(u64) -> FaultPlan,
    calls: impl Iterator<Item = u64>,
) -> Outcome {
    let script: Script = SCRIPT.parse().expect("a script");
    let mut total = LayerReport::default();
    for number in calls {
        let plan = plan_of(number);
        let (report, struck) = judge(NAME, Some(&configuration.name), None, || {
            run_plan(&configuration.opener, &script, &plan).map_err(|failure| format!("{plan:?}: {failure}"))
        })?;
        total.merge(report.into());
        if !struck {
            break;
        }
        total.merge(counted(kind, 1));
    }
    Ok(total)
}

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen_by_size(NAME, limits, crash_configurations())?;
    let plans = plans();
    let every = limits.one_in(1);
    let items = configurations.iter().zip(0_u64..).flat_map(|(configuration, number)| {
        let of_plan =
            move |(plan, kind)| (0..PARTS).map(move |part| (configuration, plan, part, number + kind));
        plans.iter().zip(0_u64..).flat_map(of_plan)
    });
    let report = sweep(limits, items, None, |(configuration, (kind, plan_of), part, shift)| {
        // Try different calls for each tree and each plan.
        let calls = (part..).step_by(usize_of(PARTS)).map(|call| call * every + shift % every);
        every_failure(configuration, kind, *plan_of, calls)
    })?;
    let least: Vec<_> =
        plans.iter().map(|(kind, _)| (*kind, if kind.contains("reserv") { 6 } else { 30 })).collect();
    require_share(NAME, limits, &report, &least)?;
    Ok(report)
}
