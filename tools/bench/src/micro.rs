//! Micro-benchmarks: one part of the store alone, a fixed number of operations, seeded.
//!
//! Times are noisy on a shared machine; counts of instructions are not, so each case can be run by itself under callgrind:
//! `valgrind --tool=callgrind testudo-bench micro page-cache --case hit --subject testudo --threads 1 --ops 1M`.
//!
//! **Invariants**
//! - What is done depends on the flags alone, never on the clock.

mod lru;
mod memory_file;
mod page_cache;

use serde::Serialize;
use testudo::{Error, Result};

use crate::{Context, MicroArgs, Outcome, output::Output, size::human_count};

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MicroResult {
    micro: &'static str,
    case: &'static str,
    subject: &'static str,
    threads: u16,
    /// Capacity, in pages.
    pages: u64,
    operations: u64,
    ns_per_op: f64,
    /// Share of look-ups that found what they looked for, where that is the point.
    hit_ratio: Option<f64>,
}

/// What a micro-benchmark is given: its flags, the clock, and where a result goes.
pub(crate) struct Bench<'a> {
    pub(crate) args: &'a MicroArgs,
    pub(crate) context: &'a Context,
    report: &'a mut dyn FnMut(MicroResult) -> Result<()>,
}

impl Bench<'_> {
    /// Whether the flags ask for this case of this subject.
    pub(crate) fn wants(&self, case: &str, subject: &str) -> bool {
        let fits = |wanted: &[String], name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
        fits(&self.args.case, case) && fits(&self.args.subject, subject) && !self.context.stopped()
    }

    pub(crate) fn report(&mut self, result: MicroResult) -> Result<()> {
        (self.report)(result)
    }
}

type Micro = fn(&mut Bench<'_>) -> Result<()>;

/// All of them.
const MICROS: [(&str, Micro); 1] = [("page-cache", page_cache::run)];

/// Runs the micro-benchmark that the flags name.
pub(crate) fn run(args: &MicroArgs, context: &Context) -> Result<Outcome> {
    let Some((_, micro)) = MICROS.iter().find(|(name, _)| *name == args.name) else {
        let names: Vec<&str> = MICROS.iter().map(|(name, _)| *name).collect();
        return Err(Error::invalid(format!(
            "no micro-benchmark {:?}; there are: {}",
            args.name,
            names.join(", ")
        )));
    };
    let mut output = Output::new(args.json.as_deref())?;
    let mut rows = vec![
        ["case", "subject", "pages", "threads", "ops", "ns/op", "hit ratio"].map(str::to_owned).to_vec(),
    ];
    let mut report = |result: MicroResult| {
        rows.push(row(&result));
        output.result(&result)
    };
    let measured = micro(&mut Bench { args, context, report: &mut report });
    output.table(&rows)?;
    measured.map(|()| Outcome::Fine)
}

fn row(result: &MicroResult) -> Vec<String> {
    vec![
        result.case.to_owned(),
        result.subject.to_owned(),
        result.pages.to_string(),
        result.threads.to_string(),
        human_count(result.operations as f64),
        format!("{:.1}", result.ns_per_op),
        result.hit_ratio.map_or_else(String::new, |ratio| format!("{ratio:.4}")),
    ]
}
