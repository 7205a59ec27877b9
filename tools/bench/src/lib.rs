//! Workloads, traces and device measurements against the public API of the store.
//!
//! Each command takes its flags from [`args`](YcsbArgs), and prints a table and a line of JSON per result.
//! Its [`Outcome`] reports whether the store ever answered wrongly. `testudo bench …` and the binary
//! `testudo-bench` are two entry points to [`run`].
//!
//! **Invariants**
//! - Every value read is checked byte by byte, and against the newest value that the key must have.
//! - Per-operation code does not allocate, and its memory is small relative to the store's budget, because
//!   measurements cover the whole process.
//! - A user-supplied directory is never emptied; a directory created here is always removed.

mod args;
mod context;
mod entry_point;
mod git_trace;
mod measure;
mod report;
mod subject;
mod workloads;

pub use args::{
    BenchArgs, BenchCommand, DeviceArgs, Distribution, MicroArgs, Mix, NeighborsArgs, PaperArgs, PhasesArgs,
    QueueArgs, QueuePattern, ReplayArgs, Scale, StoreArgs, TraceFormat, Workload, WorkloadParser, YcsbArgs,
};
pub use context::{Context, Outcome, stop_on_signals};
pub use entry_point::{main_with, run};
pub use git_trace::GIT_TRACE;
pub use report::line_chart::{Line, LineChart};
pub use report::output::Output;
pub use report::size::{floor, human_bytes, human_count, parse_positive, quotient};
pub use subject::testudo_subject::Testudo;
pub use subject::{PageCounts, PageWork, Readings, Records, Settings, Subject};
pub use workloads::neighbors::run_neighbors_on;
pub use workloads::paper::experiment::Experiment;
pub use workloads::paper::key_sets::{KeySet, key_sets};
pub use workloads::paper::{Findings, NamedExperiment, run_experiments};
pub use workloads::queue::run_queue_on;
pub use workloads::replay::trace::trace_keys;
pub use workloads::ycsb::run_on;
pub use workloads::ycsb::zipf::{Zipf, below, scatter, stride_of};
