//! The YCSB core workloads and a few more over one store.
//!
//! Course of a run: `ycsb` opens the store and its records ([`target`]), starts threads ([`worker`]) for each
//! workload, watches them, and turns their tallies into a report. The [`oracle`] holds the expected state of
//! each record.
//!
//! **Invariants**
//! - Background work counts for the workload during which it runs, so a load is followed by a settling
//!   period.
//! - A stop ends the running workload and skips the others; the store is closed as usual.

mod backup_check;
mod client_threads;
mod held_snapshots;
mod key_order;
mod keys;
mod mixgraph;
mod oracle;
mod ordered_load;
mod plot;
mod removed;
mod reopen_each;
mod run_state;
mod space_watch;
mod target;
mod tree_switches;
mod values;
mod versions_file;
mod worker;
mod workload;
pub(crate) mod zipf;

use testudo::{Error, Result, TreePreset};

use crate::{
    Context, Outcome, Subject, Workload, YcsbArgs,
    report::{Report, output::Output},
    subject::scratch::Scratch,
};
pub(crate) use backup_check::BackupResult;
pub(crate) use run_state::{RunState, wait_for_idle};
pub(crate) use tree_switches::SwitchResult;
pub(crate) use values::Lengths;

/// Runs the workloads in order on a store of any kind.
///
/// # Errors
/// `Invalid` for contradictory flags; otherwise errors of the store or the disk.
pub fn run_on<S: Subject>(args: &YcsbArgs, context: &Context) -> Result<Outcome> {
    check(args)?;
    match args.step {
        Some(step) => reopen_each::run_step::<S>(args, step, context),
        None if args.reopen_each => reopen_each::run_steps::<S>(args, context),
        None => run_in_one::<S>(args, context),
    }
}

/// Runs the workloads in this process, without closing the store between them.
fn run_in_one<S: Subject>(args: &YcsbArgs, context: &Context) -> Result<Outcome> {
    let mut output = Output::new(args.store.json.as_deref())?;
    let scratch = Scratch::new(&*context.env, args.store.dir.as_deref(), args.store.tmp.as_deref())?;
    let mut state = RunState::<S>::open(args, context, scratch.path())?;
    let mut reports = Vec::new();
    for (index, workload) in args.workloads.iter().enumerate() {
        if context.stopped() {
            break;
        }
        let last = index + 1 == args.workloads.len();
        let mut report = state.run_workload(*workload, last)?;
        if last && !report.interrupted {
            report.backup = state.restore_backup()?;
            if args.reopen {
                state = state.reopen(&mut report)?;
            }
        }
        output.result(&report)?;
        let interrupted = report.interrupted;
        reports.push(report);
        if interrupted {
            break;
        }
    }
    state.close()?;
    drop(scratch);
    let rows = std::iter::once(Report::table_head()).chain(reports.iter().map(Report::table_row));
    output.table(&rows.collect::<Vec<_>>())?;
    let switches =
        reports.iter().filter_map(|report| Some(report.tree_switches.as_ref()?.line(&report.workload)));
    for line in reports.iter().filter_map(Report::line_of_calls).chain(switches) {
        output.text(&line)?;
    }
    if let Some(dir) = &args.plot {
        plot::write_charts(dir, &reports)?;
    }
    let is_unequal = |report: &Report| report.backup.as_ref().is_some_and(|backup| !backup.backup_equal);
    let wrong = |report: &Report| report.wrong_answers + u64::from(is_unequal(report));
    Ok(Outcome::of(reports.iter().map(wrong).sum()))
}

/// Rejects contradictory flags.
fn check(args: &YcsbArgs) -> Result<()> {
    if args.value_bytes < values::VALUE_BYTES_MIN as u64 || args.value_bytes > u64::from(u32::MAX) {
        let message = format!(
            "--value-bytes {}: must be at least {}, so that values can be checked, and below 4 GiB",
            args.value_bytes,
            values::VALUE_BYTES_MIN
        );
        return Err(Error::invalid(message));
    }
    let loads = args.workloads.iter().filter(|workload| **workload == Workload::Load).count();
    if loads > 1 {
        return Err(Error::invalid("--workloads: load can be given only once"));
    }
    let first = args.workloads.iter().find(|workload| !workload.has_own_keyspace());
    if loads == 1 && first != Some(&Workload::Load) {
        return Err(Error::invalid("--workloads: load must come before all workloads that need its records"));
    }
    let mut from_removal = args.workloads.iter().skip_while(|workload| !workload.removes_records());
    if let Some(workload) = from_removal.next()
        && from_removal.any(|following| *following != Workload::Scan)
    {
        return Err(Error::invalid(format!("--workloads: only scan can follow {}", workload.name())));
    }
    if args.backup_to.is_some() && !args.workloads.contains(&Workload::A) {
        return Err(Error::invalid(
            "--backup-to: the backup is made in workload a, which is not among --workloads",
        ));
    }
    if args.ordered_load && args.keyspaces > 1 {
        return Err(Error::invalid("--ordered-load: supports one keyspace only"));
    }
    if args.workloads.contains(&Workload::ClusterOverwrite) && args.keyspaces > 1 {
        return Err(Error::invalid("--keyspaces: cluster-overwrite supports one keyspace only"));
    }
    for tree in &args.switch_trees {
        tree.parse::<TreePreset>().map_err(|error| error.context("--switch-trees"))?;
    }
    if !args.switch_trees.is_empty() && !args.workloads.contains(&args.switch_in) {
        let workload = args.switch_in.name();
        return Err(Error::invalid(format!(
            "--switch-trees: {workload} is not among --workloads; see --switch-in"
        )));
    }
    if args.writers >= args.threads {
        return Err(Error::invalid("--writers: must be fewer than --threads, which include them"));
    }
    if args.sequential_share.is_some() && loads == 0 {
        return Err(Error::invalid("--sequential-share: applies to load, which is not among --workloads"));
    }
    if args.records.is_some_and(|records| records > oracle::RECORDS_MAX / 2) {
        return Err(Error::invalid(format!("--records: at most {}", oracle::RECORDS_MAX / 2)));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
