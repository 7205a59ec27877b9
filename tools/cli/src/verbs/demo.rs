//! `testudo demo`: a one-minute tour of the store on real data built into the program.
//!
//! ```text
//! git_history -> tour -> promises -> synthetic -> killing (a child: writer) -> closing
//! ```
//!
//! **Invariants**
//! - Every answer is compared with the expected one; one wrong answer makes the exit code 1.
//! - Only the demo's own directory is touched; a temporary one is always removed at the end.

mod closing;
mod git_history;
mod killing;
mod made_up;
mod promises;
mod report;
mod scratch;
mod synthetic;
mod tour;
mod writer;

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use testudo::{Db, TreePreset};
use testudo_env::{Env, RealEnv, SplitMix};

use self::{report::Report, scratch::Scratch};
use crate::{
    context::{Context, Interruption},
    failure::{Failure, Outcome, Verdict},
    output::size::show_size,
};

pub(crate) use self::writer::{WriterArguments, run_writer};

/// Arguments of `testudo demo`.
#[derive(Args, Debug)]
pub(crate) struct DemoArguments {
    /// Keep the store in this new or empty directory; by default, a temporary one is created here and removed
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Number of records in the synthetic part
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    records: u64,
    /// Memory budget of the store
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = testudo_bench::parse_positive)]
    memory: u64,
}

/// State shared by all parts of the tour.
struct Demo<'a> {
    env: Arc<RealEnv>,
    interruption: Interruption,
    report: Report<'a>,
    random: SplitMix,
    dir: PathBuf,
    memory_bytes: u64,
    records: u64,
}

/// Runs the tour.
pub(crate) fn run(context: &mut Context, arguments: &DemoArguments) -> Outcome {
    let interruption = context.catch_interruption()?;
    let whole = context.stopwatch();
    let scratch = Scratch::new(&context.env, arguments.dir.as_deref())?;
    let mut demo = Demo {
        env: Arc::clone(&context.env),
        interruption,
        report: Report::new(&mut context.console, context.json),
        random: SplitMix::new(context.env.random_u64()),
        dir: scratch.path().to_owned(),
        memory_bytes: arguments.memory,
        records: arguments.records,
    };
    demo.greet(scratch.is_temporary())?;
    let db = demo.open()?;
    let totals = demo.run_parts(db)?;
    demo.close(&totals, whole.elapsed())?;
    if !scratch.is_temporary() {
        demo.report.note(&format!("The store is in {}; try: testudo ls {0}", demo.dir.display()))?;
    }
    demo.report.finish()
}

impl Demo<'_> {
    fn greet(&mut self, temporary: bool) -> Result<(), Failure> {
        let (dir, memory) = (self.dir.display(), show_size(self.memory_bytes));
        let kept = if temporary { "temporary, removed at the end" } else { "kept at the end" };
        self.report.note("Testudo: an ordered, persistent, embedded key-value store")?;
        self.report.note(&format!("  directory  {dir} ({kept})"))?;
        self.report.note(&format!("  memory     {memory}"))?;
        self.report.note("Every answer below is compared with the expected one.")
    }

    fn run_parts(&mut self, db: Db) -> Result<closing::Totals, Failure> {
        let history = git_history::History::decode()?;
        for (name, tree) in TreePreset::all() {
            self.tour(&db, &history, name, tree)?;
        }
        drop(history);
        self.promises(&db)?;
        self.synthetic(&db)?;
        let totals = closing::Totals::of(&db)?;
        self.killing(db)?;
        self.verify()?;
        Ok(totals)
    }

    /// Opens the store; the first call creates it.
    fn open(&self) -> Result<Db, Failure> {
        let env: Arc<dyn Env> = self.env.clone();
        Ok(Db::builder(&self.dir).env(env).memory_bytes(self.memory_bytes).open()?)
    }

    /// Runs `work` and measures its duration.
    fn measure<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<(T, Duration), Failure> {
        let started = self.env.monotonic();
        let result = work(self)?;
        Ok((result, self.env.monotonic().saturating_sub(started)))
    }

    /// Fails if an interruption was requested.
    fn go_on(&self) -> Result<(), Failure> {
        match self.interruption.is_raised() {
            true => Err(Failure::new("demo: interrupted")),
            false => Ok(()),
        }
    }
}

/// Negative if there were wrong answers.
fn verdict(wrong: u64) -> Verdict {
    if wrong == 0 { Verdict::Fine } else { Verdict::Negative }
}
