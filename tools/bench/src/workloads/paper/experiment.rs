//! Environment of an experiment: fresh stores with given settings, workloads on them, lines of JSON.
//!
//! **Invariants**
//! - There is one store at a time, in its own directory, which is removed after the last workload.

use serde::Serialize;
use testudo::{Error, Result};

use crate::{
    Context, PaperArgs, Scale, Workload, YcsbArgs,
    report::{Report, output::Output},
    subject::{scratch::Scratch, testudo_subject::Testudo},
    workloads::ycsb::RunState,
};

/// A point of an experiment as JSON: the experiment, the setting, and the result, usually a whole report.
#[derive(Serialize)]
struct Line<'a, P> {
    experiment: &'a str,
    setting: &'a str,
    #[serde(flatten)]
    point: &'a P,
}

/// Inputs of an experiment.
pub struct Experiment<'a> {
    name: &'a str,
    pub(crate) args: &'a PaperArgs,
    context: &'a Context,
    output: &'a mut Output,
}

impl<'a> Experiment<'a> {
    pub(crate) fn new(
        name: &'a str,
        args: &'a PaperArgs,
        context: &'a Context,
        output: &'a mut Output,
    ) -> Self {
        Self { name, args, context, output }
    }

    /// Returns the argument for the scale of the run; `smoke` only checks that everything runs.
    pub fn scaled<T>(&self, smoke: T, small: T, full: T) -> T {
        match self.args.scale {
            Scale::Smoke => smoke,
            Scale::Small => small,
            Scale::Full => full,
        }
    }

    /// Flags of a run in the temporary directory of this experiment.
    pub(crate) fn flags(&self) -> Result<YcsbArgs> {
        let mut flags = YcsbArgs::defaults()?;
        flags.store.tmp.clone_from(&self.args.tmp);
        flags.threads = self.args.threads;
        flags.settle_seconds = self.scaled(0.02, 10.0, 60.0);
        Ok(flags)
    }

    /// Runs the workloads of `flags` on a fresh store.
    pub(crate) fn measure(&mut self, setting: &str, flags: &YcsbArgs) -> Result<Vec<Report>> {
        let scratch = self.scratch()?;
        let mut state = self.open(flags, &scratch)?;
        let mut reports = Vec::with_capacity(flags.workloads.len());
        for (index, workload) in flags.workloads.iter().enumerate() {
            let is_last = index + 1 == flags.workloads.len();
            reports.push(self.run_workload(&mut state, setting, *workload, is_last)?);
        }
        state.close()?;
        Ok(reports)
    }

    /// Returns the context: the machine, and whether the user requested a stop.
    pub(crate) fn context(&self) -> &'a Context {
        self.context
    }

    /// Errors: `Invalid` if the user requested a stop.
    pub(crate) fn check_stopped(&self) -> Result<()> {
        if self.context.stopped() { Err(stopped()) } else { Ok(()) }
    }

    /// Creates a temporary directory.
    pub(crate) fn scratch(&self) -> Result<Scratch> {
        Scratch::new(&*self.context.env, None, self.args.tmp.as_deref())
    }

    /// Opens a store for the workloads of `flags`, for experiments that do something between them.
    pub(crate) fn open<'s>(&self, flags: &'s YcsbArgs, scratch: &'s Scratch) -> Result<RunState<'s, Testudo>>
    where
        'a: 's,
    {
        RunState::open(flags, self.context, scratch.path())
    }

    /// Runs one workload; loads and the last workload of a store settle afterwards.
    pub(crate) fn run_workload(
        &mut self,
        state: &mut RunState<'_, Testudo>,
        setting: &str,
        workload: Workload,
        is_last: bool,
    ) -> Result<Report> {
        let report = state.run_workload(workload, is_last)?;
        if report.interrupted {
            return Err(stopped());
        }
        self.result(setting, &report)?;
        Ok(report)
    }

    /// Writes a point as a line of JSON.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn result(&mut self, setting: &str, point: &impl Serialize) -> Result<()> {
        self.output.result(&Line { experiment: self.name, setting, point })
    }
}

fn stopped() -> Error {
    Error::invalid("stopped")
}

/// Returns the sum of the wrong answers of all reports.
pub(crate) fn wrong_answers(reports: &[Report]) -> u64 {
    reports.iter().map(|report| report.wrong_answers).sum()
}
