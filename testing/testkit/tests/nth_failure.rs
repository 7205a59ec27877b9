//! A small script with the n-th I/O call failing, for every n, once and for good. Errors are answers here;
//! wrong answers, panics and the loss of what was acknowledged as durable are not.

use std::sync::Arc;

use testudo_env::{CrashPolicy, Env, FaultError, FaultPlan, MemEnv};
use testudo_testkit::{
    Failure, Report, Runner, Script,
    campaign::catch,
    configuration::{Configuration, crash_configurations},
    read_state,
    store::Opener,
};

/// About sixty ops that go through every kind of file.
const SCRIPT: &str = include_str!("scripts/nth_failure.txt");

/// Runs the script under the plan; returns the report and whether a call failed.
fn run(opener: &dyn Opener, script: &Script, plan: &FaultPlan) -> Result<(Report, bool), Failure> {
    catch(script, || {
        let (mut runner, faulty) = Runner::new(opener, 1).with_faults();
        faulty.set_plan(Some(plan.clone()));
        runner.run_ops(script)?;
        let struck = !faulty.failures().is_empty() || runner.fault_was_healed();
        // What a power loss leaves now must hold everything that was acknowledged as durable.
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

fn every_failure(plan_of: impl Fn(u64) -> FaultPlan) {
    let script: Script = SCRIPT.parse().expect("a script");
    for Configuration { name, opener, .. } in crash_configurations() {
        let mut total = Report::default();
        for skip in 0.. {
            let plan = plan_of(skip);
            let (report, struck) =
                run(&opener, &script, &plan).unwrap_or_else(|failure| panic!("{name}, {plan:?}: {failure}"));
            total += report;
            if !struck {
                println!("{name}: {skip} calls, {} errors tolerated", total.tolerated_errors);
                assert!(skip > 100, "the script makes more calls than {skip}");
                break;
            }
        }
    }
}

#[test]
fn any_call_may_fail_once() {
    every_failure(|skip| FaultPlan::once(skip, FaultError::Device));
}

#[test]
fn any_call_may_fail_once_with_half_a_write_done() {
    every_failure(|skip| FaultPlan::once(skip, FaultError::Device).with_partial_writes());
}

#[test]
fn the_device_may_fail_for_good_at_any_call() {
    every_failure(|skip| FaultPlan::once(skip, FaultError::Device).for_good());
}

#[test]
fn the_device_may_be_full_from_any_call_on() {
    every_failure(|skip| FaultPlan::once(skip, FaultError::NoSpace).for_good());
}
