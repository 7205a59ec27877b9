//! Experiments of the papers that only simulate.
//!
//! **Invariants**
//! - `tools/bench` has no experiment of the same name.

mod carried_records;
mod insert_epochs;
mod page_groups;
mod policies;

use testudo_base::Result;
use testudo_bench::{Context, NamedExperiment, Outcome, PaperArgs, run_experiments};

/// Their names are listed in `SIMULATIONS` of `tools/bench/src/workloads/paper.rs`, too.
const EXPERIMENTS: [NamedExperiment; 4] = [
    ("splinter-policies", "SplinterDB fig. 6: bytes written against size, by simulation", policies::run),
    ("treeline-groups", "TreeLine fig. 9, §5.4.2: page groups, index entries", page_groups::run),
    (
        "treeline-epochs",
        "TreeLine fig. 11: reorganizations with forecasts, by epoch length",
        insert_epochs::run,
    ),
    (
        "treeline-carried",
        "TreeLine §4.1: page writes saved by records that stay in the buffer",
        carried_records::run,
    ),
];

/// Runs the experiments selected by `args`.
pub(crate) fn run(args: &PaperArgs, context: &Context) -> Result<Outcome> {
    run_experiments(&EXPERIMENTS, args, context)
}

#[cfg(test)]
mod tests;
