//! Workloads, traces and device measurements against the public API of the store.
//!
//! Each command takes its flags from [`args`](YcsbArgs), runs, prints a table and one line of JSON for each
//! result, and tells by its [`Outcome`] whether the store ever answered wrongly. `testudo bench …` and the
//! binary `testudo-bench` are two doors to [`run`].
//!
//! **Invariants**
//! - Every value read is checked byte by byte, and against the newest value that the key must have.
//! - Work per operation allocates nothing here, and memory stays small beside the store's budget, because
//!   the process is measured as a whole.
//! - A directory that the user named is never emptied; one made here is always removed again.

mod args;
mod context;
mod entry_point;
mod git_trace;
mod measure;
mod report;
mod subject;
mod workloads;

pub use args::{
    BenchArgs, BenchCommand, DeviceArgs, Distribution, MicroArgs, Mix, PaperArgs, PhasesArgs, QueueArgs,
    QueuePattern, ReplayArgs, Scale, StoreArgs, TraceFormat, Workload, YcsbArgs,
};
pub use context::{Context, Outcome, stop_on_signals};
pub use entry_point::{main_with, run};
pub use git_trace::GIT_TRACE;
pub use report::output::Output;
pub use report::size::{human_bytes, human_count, parse_positive};
pub use subject::testudo_subject::Testudo;
pub use subject::{Readings, Records, Settings, Subject};
pub use workloads::queue::run_queue_on;
pub use workloads::ycsb::run_on;
