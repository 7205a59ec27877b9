//! Each workload in its own process, on the files left by the previous one.
//!
//! The first process starts one copy of itself per workload, with the same flags and the index of the
//! workload. Such a step opens the store, runs the workload, closes the store and prints its result for the
//! first process. The expected state of the records passes from step to step in a file ([`versions_file`]),
//! so a step begins with nothing in memory.
//!
//! **Invariants**
//! - One process uses the store at a time. The operating system's cache of its files is dropped before the
//!   next one begins.
//! - A step that does not complete is an error; results of earlier steps have been written.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use testudo::{Error, Result};

use super::{RunState, versions_file};
use crate::{
    Context, Outcome, Subject, Workload, YcsbArgs,
    report::{Report, output::Output},
    subject::scratch::Scratch,
};

/// Result that a step reports to the first process, on a line of standard output.
#[derive(Serialize, Deserialize)]
struct StepResult {
    report: Value,
    row: Vec<String>,
    lines: Vec<String>,
    wrong_answers: u64,
    interrupted: bool,
}

/// Runs a process per workload.
pub(crate) fn run_steps<S: Subject>(args: &YcsbArgs, context: &Context) -> Result<Outcome> {
    let mut output = Output::new(args.store.json.as_deref())?;
    let beside_store =
        args.store.dir.as_deref().and_then(Path::parent).filter(|dir| !dir.as_os_str().is_empty());
    let parent = args.store.tmp.as_deref().or(beside_store);
    let scratch = Scratch::new(&*context.env, None, parent)?;
    let store = store_dir(args, scratch.path());
    if args.workloads.iter().all(|workload| !matches!(workload, Workload::Load | Workload::Seq)) {
        // No load in this run: find out what the store holds.
        let state = RunState::<S>::open(args, context, &store)?;
        state.close_keeping_versions(&scratch.path().join(versions_file::NAME))?;
    }
    let (mut rows, mut lines) = (vec![Report::table_head()], Vec::new());
    let mut wrong_answers = 0;
    for (step, workload) in args.workloads.iter().enumerate() {
        if context.stopped() {
            break;
        }
        forget_files(&store).map_err(|error| Error::io(store.display().to_string(), error))?;
        let result = spawn_step(*workload, step, scratch.path())?;
        output.result(&result.report)?;
        rows.push(result.row);
        lines.extend(result.lines);
        wrong_answers += result.wrong_answers;
        if result.interrupted {
            break;
        }
    }
    drop(scratch);
    output.table(&rows)?;
    lines.iter().try_for_each(|line| output.text(line))?;
    Ok(Outcome::of(wrong_answers))
}

/// Runs the workload with index `step`, in a process started by [`run_steps`].
pub(crate) fn run_step<S: Subject>(args: &YcsbArgs, step: usize, context: &Context) -> Result<Outcome> {
    let (Some(workload), Some(step_dir)) = (args.workloads.get(step), &args.step_dir) else {
        return Err(Error::invalid("--step: only for processes started by --reopen-each"));
    };
    let mut own = args.clone();
    own.workloads = vec![*workload];
    let scratch = Scratch::new(&*context.env, Some(&store_dir(args, step_dir)), None)?;
    let mut state = RunState::<S>::open(&own, context, scratch.path())?;
    let open_seconds = state.open_seconds();
    let is_last = step + 1 == args.workloads.len();
    let mut report = state.run_workload(*workload, is_last)?;
    report.open_seconds = Some(open_seconds);
    if is_last && args.reopen && !report.interrupted {
        state = state.reopen(&mut report)?;
    }
    report.close_seconds = Some(state.close_keeping_versions(&step_dir.join(versions_file::NAME))?);
    let lines = [report.line_of_calls(), report.line_of_openings()];
    let result = StepResult {
        row: report.table_row(),
        lines: lines.into_iter().flatten().collect(),
        wrong_answers: report.wrong_answers,
        interrupted: report.interrupted,
        report: serde_json::to_value(&report).map_err(not_json)?,
    };
    let mut line = serde_json::to_vec(&result).map_err(not_json)?;
    line.push(b'\n');
    std::io::stdout().write_all(&line).map_err(|error| Error::io("standard output", error))?;
    Ok(Outcome::of(report.wrong_answers))
}

/// Returns the directory of the store: the user's, or one in the directory of the first process.
fn store_dir(args: &YcsbArgs, step_dir: &Path) -> PathBuf {
    args.store.dir.clone().unwrap_or_else(|| step_dir.join("store"))
}

/// Runs this program again, with the same flags and those of a step.
fn spawn_step(workload: Workload, step: usize, step_dir: &Path) -> Result<StepResult> {
    let name = workload.name();
    let failed = |error| Error::io(format!("the process of workload {name}"), error);
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).arg("--step").arg(step.to_string());
    command.arg("--step-dir").arg(step_dir).stdin(Stdio::null()).stderr(Stdio::inherit());
    let done = command.output().map_err(failed)?;
    if !done.status.success() && done.status.code() != Some(1) {
        return Err(Error::invalid(format!(
            "the process of workload {name} did not finish: {}",
            done.status
        )));
    }
    serde_json::from_slice(&done.stdout).map_err(not_json)
}

/// Drops the operating system's cache of the files below `dir`, on a best-effort basis.
fn forget_files(dir: &Path) -> std::io::Result<()> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            forget_files(&path)?;
            continue;
        }
        #[expect(clippy::disallowed_methods, reason = "the store is closed, so no access bypasses it")]
        let file = std::fs::File::open(&path)?;
        // Dirty pages cannot be dropped.
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` needs")]
fn not_json(error: serde_json::Error) -> Error {
    Error::invalid(format!("a result that is not JSON: {error}"))
}
