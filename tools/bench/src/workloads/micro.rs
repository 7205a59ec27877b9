//! Micro-benchmarks: a single component of the store, a fixed number of operations, seeded.
//!
//! Times are noisy on a shared machine; instruction counts are not, so each case can be run on its own under
//! callgrind:
//!
//! ```sh
//! valgrind --tool=callgrind testudo-bench micro page-cache --case hit --subject testudo --threads 1 --ops 1M
//! ```
//!
//! **Invariants**
//! - The work depends on the flags alone, never on the clock.

mod filters;
mod forgetful_env;
mod growing_file;
mod log;
mod log_streams;
mod lru;
mod memory_file;
mod memtable;
mod page_cache;
mod record_cache;
mod records;
mod runs;
mod tiers;

use serde::Serialize;
use testudo::{Error, Result};
use testudo_env::Env;

use crate::{
    Context, MicroArgs, Outcome,
    report::{output::Output, size::human_count},
};

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MicroResult {
    micro: &'static str,
    case: &'static str,
    subject: &'static str,
    threads: u16,
    /// Capacity, in pages, where there is one.
    pages: u64,
    operations: u64,
    ns_per_op: f64,
    /// Share of lookups that were hits, where that is the point of the benchmark.
    hit_ratio: Option<f64>,
    /// Time of another subject, interleaved with this one, relative to this one.
    ratio: Option<f64>,
}

/// Inputs of a micro-benchmark: its flags, the clock, and the sink for results.
pub(crate) struct Bench<'a> {
    pub(crate) args: &'a MicroArgs,
    pub(crate) context: &'a Context,
    report: &'a mut dyn FnMut(MicroResult) -> Result<()>,
}

impl Bench<'_> {
    /// Whether the flags select this case of this subject.
    pub(crate) fn wants(&self, case: &str, subject: &str) -> bool {
        let fits = |wanted: &[String], name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
        fits(&self.args.case, case) && fits(&self.args.subject, subject) && !self.context.stopped()
    }

    /// Rejects names of cases and subjects that the benchmark does not have; `testudo` is its only subject.
    fn check_names(&self, micro: &str, cases: &[&str]) -> Result<()> {
        self.check_subjects(micro, cases, &["testudo"])
    }

    /// As [`Bench::check_names`], with other subjects.
    fn check_subjects(&self, micro: &str, cases: &[&str], subjects: &[&str]) -> Result<()> {
        let unknown = |wanted: &[String], known: &[&str]| {
            wanted.iter().find(|wanted| !known.contains(&wanted.as_str())).cloned()
        };
        match unknown(&self.args.case, cases).or_else(|| unknown(&self.args.subject, subjects)) {
            None => Ok(()),
            Some(name) => {
                let (cases, subjects) = (cases.join(", "), subjects.join(", "));
                let message = format!("{micro} has no {name:?}; cases: {cases}; subjects: {subjects}");
                Err(Error::invalid(message))
            }
        }
    }

    /// Runs `operation` for each number below `operations`, on this thread, and reports the time of each.
    fn measure(
        &mut self,
        micro: &'static str,
        case: &'static str,
        operations: u64,
        mut operation: impl FnMut(u64),
    ) -> Result<()> {
        self.measure_whole(micro, case, operations, || (0..operations).for_each(&mut operation))
    }

    /// As [`Bench::measure`], for a single call that does all operations.
    fn measure_whole(
        &mut self,
        micro: &'static str,
        case: &'static str,
        operations: u64,
        work: impl FnOnce(),
    ) -> Result<()> {
        let started = self.context.env.monotonic();
        work();
        let seconds = self.context.env.monotonic().saturating_sub(started).as_secs_f64();
        let ns_per_op = seconds * 1e9 / operations.max(1) as f64;
        self.report(MicroResult {
            micro,
            case,
            subject: "testudo",
            threads: 1,
            pages: 0,
            operations,
            ns_per_op,
            hit_ratio: None,
            ratio: None,
        })
    }

    pub(crate) fn report(&mut self, result: MicroResult) -> Result<()> {
        (self.report)(result)
    }
}

type Micro = fn(&mut Bench<'_>) -> Result<()>;

/// All micro-benchmarks.
const MICROS: [(&str, Micro); 8] = [
    ("memtable", memtable::run),
    ("log", log::run),
    ("log-streams", log_streams::run),
    ("run", runs::run),
    ("tiers", tiers::run),
    ("filter", filters::run),
    ("page-cache", page_cache::run),
    ("record-cache", record_cache::run),
];

/// Runs the micro-benchmark named by the flags.
pub(crate) fn run(args: &MicroArgs, context: &Context) -> Result<Outcome> {
    let Some((_, micro)) = MICROS.iter().find(|(name, _)| *name == args.name) else {
        let names: Vec<&str> = MICROS.iter().map(|(name, _)| *name).collect();
        return Err(Error::invalid(format!(
            "no micro-benchmark {:?}; available: {}",
            args.name,
            names.join(", ")
        )));
    };
    let mut output = Output::new(args.json.as_deref())?;
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    let mut report = |result: MicroResult| {
        rows.push(row(&result));
        output.result(&result)
    };
    let measured = micro(&mut Bench { args, context, report: &mut report });
    drop_empty_columns(&mut rows);
    output.table(&rows)?;
    measured.map(|()| Outcome::Fine)
}

/// Columns of the table; columns without values are omitted.
const HEAD: [&str; 8] = ["case", "subject", "pages", "threads", "ops", "ns/op", "hit ratio", "ratio"];

fn drop_empty_columns(rows: &mut [Vec<String>]) {
    for column in (0..HEAD.len()).rev() {
        if rows[1..].iter().all(|row| row[column].is_empty()) {
            for row in rows.iter_mut() {
                row.remove(column);
            }
        }
    }
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
        result.ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}")),
    ]
}
