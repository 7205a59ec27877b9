//! Command-line flags of every command, parsed by clap.
//!
//! **Invariants**
//! - clap rejects invalid values, naming the flag.
//! - Defaults that depend on other flags are `None` here; the command resolves them.

mod workload;

use std::path::PathBuf;

use clap::{Args, Parser as _, Subcommand, ValueEnum};
use testudo::{KeyspaceOptions, Placement, TreePreset};

use crate::report::size::{parse, parse_positive};
pub use workload::{Distribution, Workload, WorkloadParser};

/// All of `bench`, embeddable as a subcommand.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// The measurement to run.
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// The measurements.
#[derive(Subcommand, Clone, Debug)]
pub enum BenchCommand {
    /// The YCSB core workloads and a few more, every read checked
    Ycsb(Box<YcsbArgs>),
    /// As ycsb, with values of several lengths (Parallax), chosen with --mix
    #[command(mut_arg("mix", |mix| mix.required(true)))]
    Mixed(Box<YcsbArgs>),
    /// As ycsb, reads in a hot range concurrent with uniform updates (LSbM), at the rate of --updates-beside
    #[command(mut_arg("workloads", |workloads| workloads.default_value("load,range-hot")))]
    Rangehot(Box<YcsbArgs>),
    /// As ycsb, with the keys, values and scans of a ZippyDB shard (Cao and others, FAST 2020)
    #[command(
        mut_arg("workloads", |workloads| workloads.default_value("load,mixgraph")),
        mut_arg("mix", |mix| mix.default_value("pareto")),
        mut_arg("key_bytes", |key_bytes| key_bytes.default_value("48")),
    )]
    Mixgraph(Box<YcsbArgs>),
    /// Queues, windows and sessions, and a churn workload with 30 % removals: whether peeks at the front slow
    /// down
    Queue(QueueArgs),
    /// Paced updates of several keyspaces, alone and while another keyspace is written at full speed
    Neighbors(NeighborsArgs),
    /// Replays a recorded history against the store and compares it with an in-memory model
    Replay(ReplayArgs),
    /// Raw disk performance: random reads, bandwidth, syncs
    Device(DeviceArgs),
    /// A single component of the store, for a fixed number of operations
    Micro(MicroArgs),
    /// The experiments of the published designs, with charts
    Paper(PaperArgs),
    /// Load, A, B, C, E, F on one store, with fixed or adaptive write memory
    Phases(PhasesArgs),
}

/// Location and resources of a run's store.
#[derive(Args, Clone, Debug)]
pub struct StoreArgs {
    /// Tree of the keyspaces; parallax is leveled with --placement automatic
    #[arg(long, default_value = "turtle")]
    pub tree: String,
    /// Memory budget of the store
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = parse_positive)]
    pub memory: u64,
    /// Share of the budget for write buffers, 0 to 0.9 [default: the store's]
    #[arg(long, value_name = "F", value_parser = parse_write_share)]
    pub write_share: Option<f64>,
    /// Size of a full leaf, or of a run of a leveled tree [default: the tree's]
    #[arg(long, value_name = "BYTES", value_parser = parse_positive)]
    pub leaf_bytes: Option<u64>,
    /// Value placement: inline, large, hybrid, automatic, separate, or thresholds in bytes of a value, as in
    /// large=4096,medium=64,moving [default: large; automatic for parallax]
    #[arg(long)]
    pub placement: Option<Placement>,
    /// Directory of the store, kept at the end [default: a new one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Parent of the temporary directory, instead of the current directory
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    pub tmp: Option<PathBuf>,
    /// File for one line of JSON per result; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Tiny sizes, as a smoke test
    #[arg(long)]
    pub smoke: bool,
}

impl StoreArgs {
    /// Keyspace options of a run.
    ///
    /// Errors: `Invalid` for an unknown tree.
    pub(crate) fn keyspace_options(&self) -> testudo::Result<KeyspaceOptions> {
        keyspace_options(&self.tree, self.leaf_bytes, self.placement)
    }
}

/// Returns the preset of this name, with the given leaf size and placement, if any.
///
/// Errors: `Invalid` for an unknown preset.
pub(crate) fn keyspace_options(
    preset: &str,
    leaf_bytes: Option<u64>,
    placement: Option<Placement>,
) -> testudo::Result<KeyspaceOptions> {
    let preset: TreePreset = preset.parse()?;
    let preset = leaf_bytes.map_or(preset, |bytes| preset.with_run_bytes(bytes));
    let options = KeyspaceOptions::default().tree(preset);
    Ok(placement.map_or(options, |placement| options.placement(placement)))
}

/// Mixes of value lengths.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// 9 bytes.
    S,
    /// 104 bytes.
    M,
    /// 1,004 bytes.
    L,
    /// Mostly short.
    Sd,
    /// Mostly medium.
    Md,
    /// Mostly long.
    Ld,
    /// As in mixgraph: 36 bytes on average, few long ones
    Pareto,
}

/// Flags of `ycsb`.
#[derive(Args, Clone, Debug)]
pub struct YcsbArgs {
    /// The store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Workloads in the order they run; without `load`, the store in --dir must hold a data set
    #[arg(long, value_parser = WorkloadParser, value_delimiter = ',', default_value = "load,a,b,c,d,e,f")]
    pub workloads: Vec<Workload>,
    /// Records loaded [default: 1M]
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub records: Option<u64>,
    /// Bytes of a key
    #[arg(long, value_name = "N", default_value = "24", value_parser = parse_positive)]
    pub key_bytes: u64,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value = "100", value_parser = parse_positive)]
    pub value_bytes: u64,
    /// Values of 9, 104 and 1,004 bytes instead: one of these lengths, or a mix with 60 % short (sd), medium
    /// (md) or long (ld) values and 20 % of each other length; or the lengths of mixgraph (pareto)
    #[arg(long, value_enum, ignore_case = true, conflicts_with = "value_bytes")]
    pub mix: Option<Mix>,
    /// Client threads
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// Operations of each workload after the load [default: 2M; 200k for e and scans of a given length; all
    /// that there are for delete-half and delete-most]
    #[arg(long, value_name = "N", value_parser = parse_positive, conflicts_with = "seconds")]
    pub ops: Option<u64>,
    /// Duration of each workload after the load, instead of --ops
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// Warm-up of each workload except loads, removals and queue, before measurement
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "0")]
    pub warmup_seconds: f64,
    /// Load in key order, by one thread, with the store's method for ordered loads
    #[arg(long)]
    pub ordered_load: bool,
    /// Percentage of the inserts of `load` in key order, at one position per thread; the others are random
    #[arg(long, value_name = "PERCENT", conflicts_with = "ordered_load",
        value_parser = clap::value_parser!(u8).range(0..=100))]
    pub sequential_share: Option<u8>,
    /// Close the store at the end and measure the time to reopen it
    #[arg(long)]
    pub reopen: bool,
    /// Run each workload in its own process, on the files left by the previous one
    #[arg(long, conflicts_with_all = ["plot", "backup_to", "switch_trees"])]
    pub reopen_each: bool,
    /// Neither save the hot set when the store is closed nor restore it when the store is opened
    #[arg(long)]
    pub no_warm_restart: bool,
    /// Merge output that replaces pages in use stays in the page cache
    #[arg(long)]
    pub warm_merges: bool,
    /// Maximum size of merged leaves and runs retained while in memory, as a percentage of a Bε-tree's bytes
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub retain_merged: u32,
    /// Cache only pages, no single records
    #[arg(long)]
    pub no_record_cache: bool,
    /// Number of consecutive records that are adjacent in key order; an update overwrites all of them in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_adjacent)]
    pub adjacent: u64,
    /// Updates per second concurrent with the reads of range-hot
    #[arg(long, value_name = "N", default_value = "1k", value_parser = parse_positive)]
    pub updates_beside: u64,
    /// Hot range of workloads whose names begin with range- and of --distribution range-hot: fraction of all
    /// keys, 0.001 to 1
    #[arg(long, alias = "hot-share", value_name = "F", default_value = "0.05",
        value_parser = parse_hot_fraction)]
    pub hot_fraction: f64,
    /// With --reopen-each: run only the workload with this index, in the directory of the first process
    #[arg(long, value_name = "INDEX", hide = true, requires = "reopen_each")]
    pub step: Option<usize>,
    /// With --reopen-each: that directory
    #[arg(long, value_name = "DIR", hide = true, requires = "step")]
    pub step_dir: Option<PathBuf>,
    /// Operations per second of all threads together, instead of the maximum; latency counts from the time
    /// an operation was due
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub rate: Option<u64>,
    /// Key distribution [default: the workload's]
    #[arg(long, value_enum)]
    pub distribution: Option<Distribution>,
    /// Every write is durable before it is acknowledged
    #[arg(long)]
    pub sync: bool,
    /// Keyspaces that the records are spread over
    #[arg(long, value_name = "K", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=32768))]
    pub keyspaces: u16,
    /// Threads that only run uniform updates, whatever the others do; not in loads
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub writers: u16,
    /// Hold snapshots of this duration, one after the other, while a workload runs
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub hold_snapshots: Option<f64>,
    /// Maximum scan length of workload e (uniform from 1); exact length of all scans of range
    #[arg(long, value_name = "N", default_value = "100", value_parser = parse_positive)]
    pub scan_length: u64,
    /// Maximum wait for background work after loads and at the end
    #[arg(long, value_name = "S", default_value = "30", value_parser = parse_seconds)]
    pub settle_seconds: f64,
    /// Trees to switch between while the workload of --switch-in runs, such as turtle,splinter
    #[arg(long, value_name = "TREES", value_delimiter = ',')]
    pub switch_trees: Vec<String>,
    /// Number of switches, evenly spaced over that workload
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..),
        requires = "switch_trees")]
    pub switches: u16,
    /// Workload to switch in
    #[arg(long, value_parser = WorkloadParser, default_value = "a", requires = "switch_trees")]
    pub switch_in: Workload,
    /// Directory for charts of throughput and latency (SVG)
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Backup repository: one backup is made in the middle of workload a, restored at the end and compared
    #[arg(long, value_name = "REPO")]
    pub backup_to: Option<PathBuf>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Size of an experiment.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Tiny, as a smoke test
    Smoke,
    /// Up to about a minute each
    Small,
    /// Millions of records; minutes each
    Full,
}

/// Flags of `paper`.
#[derive(Args, Clone, Debug)]
pub struct PaperArgs {
    /// Name of the experiment, `all`, or a prefix such as `turtle-*`
    pub name: String,
    /// Size of the experiment
    #[arg(long, value_enum, default_value = "small")]
    pub scale: Scale,
    /// Client threads
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// File for one line of JSON per point; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Directory for charts (SVG)
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Parent of temporary directories, instead of the current directory
    #[arg(long, value_name = "DIR")]
    pub tmp: Option<PathBuf>,
    /// A further key set for the key-set experiments: `NAME.u64` (eight-byte integers, big-endian) or
    /// `NAME.txt` (one per line), optionally with `.zst`; used in file order. May be given several times
    #[arg(long, value_name = "FILE")]
    pub keys: Vec<PathBuf>,
}

/// Flags of `phases`.
#[derive(Args, Clone, Debug)]
pub struct PhasesArgs {
    /// The store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Records loaded [default: 1M]
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub records: Option<u64>,
    /// Duration of each phase after the load
    #[arg(long, value_name = "S", default_value = "10", value_parser = parse_seconds)]
    pub seconds: f64,
    /// Client threads
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// Rounds through all configurations, every second one in reverse
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=100))]
    pub rounds: u16,
    /// Directory for charts (SVG)
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
}

impl YcsbArgs {
    /// Returns the flags of an empty command line.
    pub(crate) fn defaults() -> Result<Self, testudo::Error> {
        let parsed = Bare::try_parse_from(["ycsb"]);
        parsed.map(|bare| bare.ycsb).map_err(|error| testudo::Error::invalid(error.to_string()))
    }
}

#[derive(clap::Parser)]
struct Bare {
    #[command(flatten)]
    ycsb: YcsbArgs,
}

/// Insert and removal pattern of `queue`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePattern {
    /// Insert at the end, read the front, remove it
    Queue,
    /// Insert at the end, read at the front; remove from the front in batches of a hundred
    Window,
    /// Insert anywhere, remove the oldest, read at the front
    Sessions,
    /// Uniform writes with 30 % removals, no reads
    Churn,
}

impl QueuePattern {
    /// Returns the name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Flags of `queue`.
#[derive(Args, Clone, Debug)]
pub struct QueueArgs {
    /// The store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Patterns in the order they run, each in its own store, or in a keyspace of the store in --dir
    #[arg(long, value_enum, value_delimiter = ',', default_value = "queue,window,sessions")]
    pub patterns: Vec<QueuePattern>,
    /// Rounds of each pattern
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_positive)]
    pub rounds: u64,
    /// Initial number of entries
    #[arg(long, value_name = "N", default_value = "1k", value_parser = parse_positive)]
    pub waiting: u64,
    /// Bytes of a value; a key has 16
    #[arg(long, value_name = "N", default_value = "100", value_parser = parse_positive)]
    pub value_bytes: u64,
}

/// Flags of `neighbors`.
#[derive(Args, Clone, Debug)]
pub struct NeighborsArgs {
    /// The store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Keyspaces with paced updates
    #[arg(long, value_name = "N", default_value_t = 7)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub neighbors: u16,
    /// Records of each keyspace
    #[arg(long, value_name = "N", default_value = "500k", value_parser = parse_positive)]
    pub records: u64,
    /// Updates per second of these keyspaces together
    #[arg(long, value_name = "N", default_value = "20k", value_parser = parse_positive)]
    pub rate: u64,
    /// Writes per second to the busy keyspace, instead of the maximum
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub busy_rate: Option<u64>,
    /// Duration of each phase
    #[arg(long, value_name = "S", default_value = "20", value_parser = parse_seconds)]
    pub seconds: f64,
    /// Bytes of a value; a key has 16
    #[arg(long, value_name = "N", default_value = "100", value_parser = parse_positive)]
    pub value_bytes: u64,
}

/// Flags of `replay`.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// The trace, plain or compressed with zstd; its format is detected from name and content
    pub file: PathBuf,
    /// The store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Format of the trace [default: detected from name and content]
    #[arg(long, value_enum)]
    pub format: Option<TraceFormat>,
    /// Scale factor for the value sizes of the trace
    #[arg(long, value_name = "F", default_value_t = 0.05, value_parser = parse_factor)]
    pub value_scale: f64,
    /// Maximum number of operations replayed
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub limit: Option<u64>,
    /// Every N writes, read and compare the key first
    #[arg(long, value_name = "N", default_value = "8", value_parser = parse_positive)]
    pub verify_every: u64,
    /// Every batch is durable before it is acknowledged
    #[arg(long)]
    pub sync: bool,
}

/// Flags of `device`.
#[derive(Args, Clone, Debug)]
pub struct DeviceArgs {
    /// Directory on the disk to measure; a file in it is written and removed [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Size of the file, written first so that its blocks are allocated
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = parse)]
    pub file_bytes: u64,
    /// Duration of each measurement
    #[arg(long, value_name = "S", default_value = "3", value_parser = parse_seconds)]
    pub seconds: f64,
    /// File for one line of JSON per result; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A small file and short durations, as a smoke test
    #[arg(long)]
    pub smoke: bool,
}

/// Flags of `micro`.
#[derive(Args, Clone, Debug)]
pub struct MicroArgs {
    /// Benchmark: memtable, log, log-streams, run, tiers, filter, page-cache, record-cache
    pub name: String,
    /// Operations of each measurement, over all threads
    #[arg(long, value_name = "N", default_value = "2M", value_parser = parse_positive)]
    pub ops: u64,
    /// Thread counts
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Vec<u16>,
    /// Capacities of a cache, in pages
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8192")]
    #[arg(value_parser = clap::value_parser!(u64).range(64..=1 << 24))]
    pub pages: Vec<u64>,
    /// A trace for the case `trace`, in a format supported by `replay`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Cases [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub case: Vec<String>,
    /// Subjects to measure [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub subject: Vec<String>,
    /// Parent of the temporary directory for file-backed measurements, instead of the current directory
    #[arg(long, value_name = "DIR")]
    pub tmp: Option<PathBuf>,
    /// File for one line of JSON per result; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// File format of a trace.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// Lines with batches, puts and deletes
    Git,
    /// Block reads and writes, 21 bytes each
    Block,
    /// Block numbers, 4 bytes each
    Accesses,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if (0.0..=1e7).contains(&seconds) => Ok(seconds),
        _ => Err(format!("{text:?} is not a number of seconds")),
    }
}

fn parse_adjacent(text: &str) -> Result<u64, String> {
    let number = parse_positive(text)?;
    if number.is_power_of_two() && number <= 256 {
        Ok(number)
    } else {
        Err("not a power of two up to 256".into())
    }
}

fn parse_hot_fraction(text: &str) -> Result<f64, String> {
    let fraction = text.parse::<f64>().ok().filter(|fraction| (0.001..=1.0).contains(fraction));
    fraction.ok_or_else(|| format!("{text:?} is not a fraction from 0.001 to 1"))
}

fn parse_write_share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=0.9).contains(share));
    share.ok_or_else(|| format!("{text:?} is not a share from 0 to 0.9"))
}

fn parse_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (0.0..=1e3).contains(&factor) => Ok(factor),
        _ => Err(format!("{text:?} is not a factor from 0 to 1000")),
    }
}

#[cfg(test)]
mod tests;
