//! Command-line flags, parsed by clap.
//!
//! **Invariants**
//! - Flags shared with `testudo-bench ycsb` have the same name and meaning.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use testudo::Placement;
use testudo_bench::{Mix, QueueArgs, Workload, WorkloadParser, YcsbArgs, parse_positive};

use crate::engine::Engine;

#[derive(Parser)]
#[command(name = "bench-rivals", version, about = "Compares Testudo with its rivals, checking every answer")]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs one engine in this process
    Run(Box<RunArgs>),
    /// Runs several engines, each in its own process, side by side
    Compare(Box<CompareArgs>),
    /// Runs queues on one engine in this process, as in `testudo-bench queue`
    Queue(Box<QueueRunArgs>),
    /// Lists the engines that can run here
    Engines,
}

/// Flags of `queue`.
#[derive(Args, Clone, Debug)]
pub(crate) struct QueueRunArgs {
    /// The engine
    #[arg(value_enum)]
    pub(crate) engine: Engine,
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
}

/// Flags of `run`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// The engine
    #[arg(value_enum)]
    pub(crate) engine: Engine,
    /// Control group that this process joins first
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) group: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) ycsb: YcsbArgs,
}

/// Flags of `compare`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CompareArgs {
    /// Engines; ratios are relative to rocksdb if listed, else to the first one
    #[arg(long, value_enum, value_delimiter = ',', default_value = "testudo,rocksdb")]
    pub(crate) engines: Vec<Engine>,
    /// Workloads in the order they run, as in `testudo-bench ycsb`
    #[arg(
        long,
        value_parser = WorkloadParser,
        value_delimiter = ',',
        default_value = "load,a,b,c,d,e,f,uniform-c,multiget,scan"
    )]
    pub(crate) workloads: Vec<Workload>,
    /// Records loaded
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_positive)]
    pub(crate) records: u64,
    /// Bytes of a key
    #[arg(long, value_name = "N", default_value = "24", value_parser = parse_positive)]
    pub(crate) key_bytes: u64,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value = "100", value_parser = parse_positive)]
    pub(crate) value_bytes: u64,
    /// Values of 9, 104 and 1,004 bytes instead: one of these lengths or a mix, as in `testudo-bench ycsb`
    #[arg(long, value_enum, ignore_case = true, conflicts_with = "value_bytes")]
    pub(crate) mix: Option<Mix>,
    /// Value placement of Testudo engines: inline, large, hybrid, automatic, separate, or thresholds in bytes
    /// of a value, as in large=4096,medium=64,moving [default: the tree's]
    #[arg(long)]
    pub(crate) placement: Option<Placement>,
    /// Memory limit of a process, page cache included, enforced by the operating system
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = parse_positive)]
    pub(crate) memory: u64,
    /// Memory budget configured for each store [default: --memory minus what the driver needs]
    #[arg(long, value_name = "BYTES", value_parser = parse_positive)]
    pub(crate) store_memory: Option<u64>,
    /// Client threads
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: u16,
    /// Duration of each workload after the load
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// Run each workload in its own process, on the files left by the previous one
    #[arg(long)]
    pub(crate) reopen_each: bool,
    /// Warm-up of each workload after the load, before measurement [default: a third of --seconds]
    #[arg(long, value_name = "S")]
    pub(crate) warmup_seconds: Option<f64>,
    /// Maximum wait for background work after the load and at the end
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub(crate) settle_seconds: f64,
    /// Runs of each engine; the order of the engines alternates
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
    /// Every write is durable before it is acknowledged
    #[arg(long)]
    pub(crate) sync: bool,
    /// Engines to load in key order, by one thread, with their own method for ordered loads
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ENGINES")]
    pub(crate) ordered_load: Vec<Engine>,
    /// Parent directory of the stores, created one at a time, instead of the current directory
    #[arg(long, value_name = "DIR")]
    pub(crate) tmp: Option<PathBuf>,
    /// File for one line of JSON per engine, round and workload; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}
