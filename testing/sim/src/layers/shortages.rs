//! A small script in which calls fail for a temporary lack of descriptors, memory, a larger file size limit
//! or another resource. The store resumes by itself, regardless of the call.
//!
//! **Invariants**
//! - The store is not reopened: it must not have failed permanently.
//! - Syncs fail permanently whatever the error number, and locks and threads are requested only at the
//!   opening. All other classes of calls are tried, starting at each of their calls.

use std::sync::Arc;

use testudo_base::errno::{TREATMENTS, Treatment};
use testudo_env::{CrashPolicy, Env, FaultError, FaultPlan, IoClass};
use testudo_testkit::{
    Failure, Report, Runner, Script,
    campaign::catch,
    configuration::{Configuration, crash_configurations},
    read_state,
    store::Opener,
};

use crate::{
    Amount, LayerReport, Limits,
    sweep::{Outcome, chosen_by_size, counted, judge, require, sweep},
};

pub(crate) const NAME: &str = "shortages";

/// The script of the layer `nth`.
const SCRIPT: &str = include_str!("scripts/nth.txt");
/// Ops that must succeed once the shortage is over.
const AFTERWARDS: &str = "\
step 8
create 3
insert 3 a 31:100
batch synced 3/b=32:3000 3/c=33:10
flush
step 8
insert 3 d 34:9000
persist
verify
";
/// Number of consecutive failures: fewer than the immediate retries, and more.
const DURATIONS: [u64; 2] = [3, 25];
/// Calls that may fail transiently.
const CLASSES: [IoClass; 10] = [
    IoClass::Read,
    IoClass::Write,
    IoClass::Open,
    IoClass::Create,
    IoClass::Rename,
    IoClass::Remove,
    IoClass::List,
    IoClass::SetLen,
    IoClass::Allocate,
    IoClass::Metadata,
];
/// Stride through the calls, and number of configurations, in the short form.
const STRIDE_SHORT: u64 = 37;
const CONFIGURATIONS_SHORT: usize = 3;
/// Stride of each item's calls in the long form, where threads share the calls of a class.
const PARTS_LONG: u64 = 4;

/// Error numbers to try: all in the long form.
fn numbers(limits: &Limits) -> Vec<(i32, &'static str)> {
    let waits = TREATMENTS.iter().filter(|(_, _, treatment)| *treatment == Treatment::Wait);
    let numbers = waits.map(|(errno, name, _)| (errno.raw_os_error(), *name));
    let is_short = limits.amount == Amount::Short;
    numbers.filter(|(_, name)| !is_short || matches!(*name, "EMFILE" | "EFBIG")).collect()
}

/// Runs the script under the plan; returns the report and whether a call failed.
fn run_plan(opener: &dyn Opener, plan: &FaultPlan) -> Result<(Report, bool), Failure> {
    let script: Script = SCRIPT.parse().expect("a script");
    let afterwards: Script = AFTERWARDS.parse().expect("a script");
    catch(&script, || {
        let (mut runner, faulty) = Runner::new(opener, 1).with_faults();
        runner.require_resuming();
        faulty.set_plan(Some(plan.clone()));
        runner.run_ops(&script)?;
        let struck = !faulty.failures().is_empty() || runner.fault_was_healed();
        faulty.set_plan(None);
        runner.require_health();
        runner.run_ops(&afterwards)?;
        let image = runner.machine().crash_image(&CrashPolicy::LOSE_ALL, plan.skip);
        let wrong = |message| Failure { step: script.0.len(), op: "a crash afterwards".into(), message };
        let store = opener.open(image as Arc<dyn Env>).map_err(|error| wrong(format!("open: {error:?}")))?;
        let found = read_state(&*store).map_err(|error| wrong(format!("read: {error:?}")))?;
        runner.model().clone().recover(&found).map(drop).map_err(wrong)?;
        drop(store);
        Ok((runner.run(&Script::default())?, struck))
    })
}

/// A work item: calls of a class, from `first` on, one in `stride`.
#[derive(Clone, Copy)]
struct Item<'a> {
    configuration: &'a Configuration,
    class: IoClass,
    number: i32,
    name: &'static str,
    times: u64,
    first: u64,
    stride: u64,
}

fn every_call(item: Item<'_>) -> Outcome {
    let Item { configuration, class, number, name, times, first, stride } = item;
    let mut total = LayerReport::default();
    for skip in (first..).step_by(testudo_base::num::usize_of(stride)) {
        let plan = FaultPlan::once(skip, FaultError::Number(number)).of_class(class).times(times);
        let (report, struck) = judge(NAME, Some(&configuration.name), None, || {
            run_plan(&configuration.opener, &plan).map_err(|failure| format!("{name}, {plan:?}: {failure}"))
        })?;
        total.merge(report.into());
        if !struck {
            break;
        }
        total.merge(counted(name, 1));
    }
    Ok(total)
}

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let mut configurations = chosen_by_size(NAME, limits, crash_configurations())?;
    let is_short = limits.amount == Amount::Short;
    let (stride, parts) = if is_short { (STRIDE_SHORT, 1) } else { (1, PARTS_LONG) };
    configurations.truncate(if is_short { CONFIGURATIONS_SHORT } else { usize::MAX });
    let numbers = numbers(limits);
    let mut items = Vec::new();
    for configuration in &configurations {
        for (index, class) in (0..).zip(CLASSES) {
            for (&(number, name), times) in
                numbers.iter().flat_map(|number| DURATIONS.map(|times| (number, times)))
            {
                items.extend((0..parts).map(|part| {
                    let first = part * stride + index % stride;
                    Item { configuration, class, number, name, times, first, stride: stride * parts }
                }));
            }
        }
    }
    let report = sweep(limits, items, None, every_call)?;
    let least: Vec<_> = numbers.iter().map(|(_, name)| (*name, 40)).collect();
    require(NAME, limits, &report, &least)?;
    Ok(report)
}
