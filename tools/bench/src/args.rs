//! The flags of every command, as clap reads them.
//!
//! **Invariants**
//! - A value that cannot be is refused here, by clap, with the name of its flag.
//! - Defaults that depend on other flags are `None` here and resolved by the command itself.

use std::path::PathBuf;

use clap::{Args, Parser as _, Subcommand, ValueEnum};
use testudo::{KeyspaceOptions, Placement, TreePreset};

use crate::report::size::{parse, parse_positive};

/// All of `bench`, to be embedded as a subcommand.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// The measurements.
#[derive(Subcommand, Clone, Debug)]
pub enum BenchCommand {
    /// The YCSB core workloads and a few more, every read checked
    Ycsb(Box<YcsbArgs>),
    /// As ycsb, with values of several lengths (Parallax): --mix says which
    #[command(mut_arg("mix", |mix| mix.required(true)))]
    Mixed(Box<YcsbArgs>),
    /// As ycsb, reads in a hot range beside uniform updates (LSbM): --updates-beside says how many
    #[command(mut_arg("workloads", |workloads| workloads.default_value("load,range-hot")))]
    Rangehot(Box<YcsbArgs>),
    /// As ycsb, with the keys, values and scans of a shard of ZippyDB (Cao and others, FAST 2020)
    #[command(
        mut_arg("workloads", |workloads| workloads.default_value("load,mixgraph")),
        mut_arg("mix", |mix| mix.default_value("pareto")),
        mut_arg("key_bytes", |key_bytes| key_bytes.default_value("48")),
    )]
    Mixgraph(Box<YcsbArgs>),
    /// Queues, windows and sessions, and a store of which three in ten writes remove something: whether looks
    /// at the front become slower
    Queue(QueueArgs),
    /// A real history against the store, compared with a model in memory
    Replay(ReplayArgs),
    /// What the disk itself gives: random reads, bandwidth, syncs
    Device(DeviceArgs),
    /// One part of the store alone, a fixed number of operations
    Micro(MicroArgs),
    /// The experiments of the published designs, with charts
    Paper(PaperArgs),
    /// Load, A, B, C, E, F on one store, with fixed write memory or as the store chooses
    Phases(PhasesArgs),
}

/// Where the store of a run lives and what it may use.
#[derive(Args, Clone, Debug)]
pub struct StoreArgs {
    /// Tree of the keyspaces; parallax is leveled with --placement automatic
    #[arg(long, default_value = "turtle")]
    pub tree: String,
    /// Memory budget of the store
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = parse_positive)]
    pub memory: u64,
    /// Part of the budget for write buffers, 0 to 0.9 [default: the store's]
    #[arg(long, value_name = "F", value_parser = parse_write_share)]
    pub write_share: Option<f64>,
    /// Bytes of a full leaf, or of a run of a leveled tree [default: the tree's]
    #[arg(long, value_name = "BYTES", value_parser = parse_positive)]
    pub leaf_bytes: Option<u64>,
    /// Where values are put: inline, large, hybrid, automatic or separate [default: large, for parallax
    /// automatic]
    #[arg(long)]
    pub placement: Option<Placement>,
    /// Directory of the store, kept at the end; without it a new one is made and removed again
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Where a temporary directory is made instead of the current directory
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    pub tmp: Option<PathBuf>,
    /// File for one line of JSON per result; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Tiny sizes, to see that everything runs
    #[arg(long)]
    pub smoke: bool,
}

impl StoreArgs {
    /// What the keyspaces of a run are like.
    ///
    /// Errors: `Invalid` if there is no such tree.
    pub(crate) fn keyspace_options(&self) -> testudo::Result<KeyspaceOptions> {
        keyspace_options(&self.tree, self.leaf_bytes, self.placement)
    }
}

/// The preset of this name, with other leaves and another placement where these are given.
///
/// Errors: `Invalid` if there is no such preset.
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
    /// Most are short.
    Sd,
    /// Most are middling.
    Md,
    /// Most are long.
    Ld,
    /// As in mixgraph: 36 bytes on average, few of them long
    Pareto,
}

/// Flags of `ycsb`.
#[derive(Args, Clone, Debug)]
pub struct YcsbArgs {
    /// The store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Workloads in the order they run; without `load` the store in --dir must hold a data set
    #[arg(long, value_enum, value_delimiter = ',', default_value = "load,a,b,c,d,e,f")]
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
    /// Values of 9, 104 and 1,004 bytes instead: one of these lengths, or a mix of them in which 60 of 100
    /// are short (sd), middling (md) or long (ld), and 20 each of the others; or the lengths of mixgraph
    /// (pareto)
    #[arg(long, value_enum, ignore_case = true, conflicts_with = "value_bytes")]
    pub mix: Option<Mix>,
    /// Client threads
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// Operations of each workload after the load [default: 2M, e and range: 200k]
    #[arg(long, value_name = "N", value_parser = parse_positive, conflicts_with = "seconds")]
    pub ops: Option<u64>,
    /// Time for each workload after the load, instead of --ops
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// Each workload but the loads runs for so long before it is measured
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "0")]
    pub warmup_seconds: f64,
    /// Load in the order of the keys, by one thread, in the store's way for that
    #[arg(long)]
    pub ordered_load: bool,
    /// Of a hundred inserts of `load`, those in the order of their keys, at one place for each thread; the
    /// others are random
    #[arg(long, value_name = "PERCENT", conflicts_with = "ordered_load",
        value_parser = clap::value_parser!(u8).range(0..=100))]
    pub sequential_share: Option<u8>,
    /// Close the store at the end and measure how long it takes to open it again
    #[arg(long)]
    pub reopen: bool,
    /// Run each workload in a process of its own, on the files that the one before left
    #[arg(long, conflicts_with_all = ["plot", "backup_to", "switch_trees"])]
    pub reopen_each: bool,
    /// Neither note what is hot when the store is closed nor read it back when it is opened
    #[arg(long)]
    pub no_warm_restart: bool,
    /// What merges write in the place of pages in use stays in the page cache
    #[arg(long)]
    pub warm_merges: bool,
    /// Hundredths of a Bε-tree's bytes that merged leaves and runs may take beside it while they are in
    /// memory
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub retain_merged: u32,
    /// No single records are cached, only pages
    #[arg(long)]
    pub no_record_cache: bool,
    /// Updates a second beside the reads of range-hot
    #[arg(long, value_name = "N", default_value = "1k", value_parser = parse_positive)]
    pub updates_beside: u64,
    /// Part of the key space that is hot in range-hot, 0.001 to 0.5
    #[arg(long, value_name = "F", default_value = "0.05", value_parser = parse_hot_share)]
    pub hot_share: f64,
    /// Of --reopen-each: this process runs only the workload of this index, in a directory of the first one
    #[arg(long, value_name = "INDEX", hide = true, requires = "reopen_each")]
    pub step: Option<usize>,
    /// Of --reopen-each: that directory
    #[arg(long, value_name = "DIR", hide = true, requires = "step")]
    pub step_dir: Option<PathBuf>,
    /// Operations a second of all threads together, instead of as many as can be; what is late counts from
    /// when it was due
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub rate: Option<u64>,
    /// How records are picked [default: as the workload says]
    #[arg(long, value_enum)]
    pub distribution: Option<Distribution>,
    /// Every write is durable before it is acknowledged
    #[arg(long)]
    pub sync: bool,
    /// Keyspaces that the records are spread over
    #[arg(long, value_name = "K", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=32768))]
    pub keyspaces: u16,
    /// Of the threads, so many update records all the while, uniform, whatever the others do; not in loads
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub writers: u16,
    /// One snapshot after the other is held for so long while a workload runs
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub hold_snapshots: Option<f64>,
    /// Longest scan of workload e, its lengths are uniform from 1; length of all scans of range
    #[arg(long, value_name = "N", default_value = "100", value_parser = parse_positive)]
    pub scan_length: u64,
    /// Longest wait for background work after loads and at the end
    #[arg(long, value_name = "S", default_value = "30", value_parser = parse_seconds)]
    pub settle_seconds: f64,
    /// Trees that take turns while the workload of --switch-in runs, such as turtle,splinter
    #[arg(long, value_name = "TREES", value_delimiter = ',')]
    pub switch_trees: Vec<String>,
    /// How often, evenly spread over its time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..),
        requires = "switch_trees")]
    pub switches: u16,
    /// In which workload
    #[arg(long, value_enum, default_value = "a", requires = "switch_trees")]
    pub switch_in: Workload,
    /// Directory for charts of throughput and latency (SVG)
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Repository of backups: one is made in the middle of workload a, restored at the end and compared
    #[arg(long, value_name = "REPO")]
    pub backup_to: Option<PathBuf>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// How large an experiment is.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Tiny, to see that everything runs
    Smoke,
    /// Ends within about a minute each
    Small,
    /// Millions of records; minutes each
    Full,
}

/// Flags of `paper`.
#[derive(Args, Clone, Debug)]
pub struct PaperArgs {
    /// Name of the experiment, `all`, or the start of names as in `turtle-*`
    pub name: String,
    /// How large it is
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
    /// Where temporary directories are made instead of the current directory
    #[arg(long, value_name = "DIR")]
    pub tmp: Option<PathBuf>,
    /// A further set of keys for the experiments that look at keys: `NAME.u64` (integers of eight bytes,
    /// big-endian) or `NAME.txt` (one a line), or either with `.zst`; in the order in which they came. May be
    /// given several times
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
    /// Time for each phase after the load
    #[arg(long, value_name = "S", default_value = "10", value_parser = parse_seconds)]
    pub seconds: f64,
    /// Client threads
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// Rounds through all configurations, every other one backwards
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=100))]
    pub rounds: u16,
    /// Directory for charts (SVG)
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
}

impl YcsbArgs {
    /// The flags of a command line that names none.
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

/// What comes in and goes in `queue`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePattern {
    /// In at the end, a look at the front, out there
    Queue,
    /// In at the end, a look at the front; a hundred at a time go there
    Window,
    /// In anywhere, what came first goes, a look at the front
    Sessions,
    /// Uniform writes of which 30 % remove something, and no looks
    Churn,
}

impl QueuePattern {
    /// Its name on the command line.
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
    /// Patterns in the order they run, each in a store of its own, or in a keyspace of the one in --dir
    #[arg(long, value_enum, value_delimiter = ',', default_value = "queue,window,sessions")]
    pub patterns: Vec<QueuePattern>,
    /// Rounds of each pattern
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_positive)]
    pub rounds: u64,
    /// Entries that are there at first
    #[arg(long, value_name = "N", default_value = "1k", value_parser = parse_positive)]
    pub waiting: u64,
    /// Bytes of a value; keys have 16
    #[arg(long, value_name = "N", default_value = "100", value_parser = parse_positive)]
    pub value_bytes: u64,
}

/// Flags of `replay`.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// The trace, plain or compressed with zstd; its format is seen from its name and content
    pub file: PathBuf,
    /// The store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Format of the trace [default: seen from name and content]
    #[arg(long, value_enum)]
    pub format: Option<TraceFormat>,
    /// Factor on the value sizes of the trace
    #[arg(long, value_name = "F", default_value_t = 0.05, value_parser = parse_factor)]
    pub value_scale: f64,
    /// Operations replayed at most
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub limit: Option<u64>,
    /// Every so many writes the key is read and compared first
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
    /// Size of the file, written first so that its blocks are real
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = parse)]
    pub file_bytes: u64,
    /// Time for each measurement
    #[arg(long, value_name = "S", default_value = "3", value_parser = parse_seconds)]
    pub seconds: f64,
    /// File for one line of JSON per result; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A small file and short times, to see that everything runs
    #[arg(long)]
    pub smoke: bool,
}

/// Flags of `micro`.
#[derive(Args, Clone, Debug)]
pub struct MicroArgs {
    /// Which one: memtable, log, log-streams, run, tiers, filter, page-cache, record-cache, memory-division
    pub name: String,
    /// Operations of each measurement, all threads together
    #[arg(long, value_name = "N", default_value = "2M", value_parser = parse_positive)]
    pub ops: u64,
    /// Numbers of threads
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Vec<u16>,
    /// Pages that a cache holds
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8192")]
    #[arg(value_parser = clap::value_parser!(u64).range(64..=1 << 24))]
    pub pages: Vec<u64>,
    /// A trace for the case `trace`, in a format of `replay`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Cases [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub case: Vec<String>,
    /// What is measured [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub subject: Vec<String>,
    /// Where a temporary directory is made, for what is measured on files, instead of the current directory
    #[arg(long, value_name = "DIR")]
    pub tmp: Option<PathBuf>,
    /// File for one line of JSON per result; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// What a run of `ycsb` does; a to f are the YCSB core.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Inserts all records in random order
    Load,
    /// Half reads, half updates
    A,
    /// 95 % reads, 5 % updates
    B,
    /// Reads only
    C,
    /// 95 % reads of the latest, 5 % inserts
    D,
    /// 95 % short scans, 5 % inserts
    E,
    /// Half reads, half read-modify-writes
    F,
    /// As a, all records alike
    UniformA,
    /// As c, all records alike
    UniformC,
    /// Updates only, uniform
    Overwrite,
    /// Inserts as many records again, in key order, into a keyspace of their own
    Seq,
    /// Reads in batches of 32, uniform
    Multiget,
    /// Scans of exactly --scan-length records, uniform
    Range,
    /// Reads everything in order
    Scan,
    /// Reads of keys that are not there, each next to a record's, uniform
    Absent,
    /// Removes every second record, each thread those of its share, until they are gone; nothing can follow
    DeleteEverySecond,
    /// 70 % updates, which bring removed records back, and 30 % removals, uniform; nothing can follow
    PutDelete,
    /// Reads, 98 % of them in one part of the key space (--hot-share), beside uniform updates
    /// (--updates-beside), which one more thread does and which are not counted among its operations
    RangeHot,
    /// As range-hot, with scans of exactly --scan-length records instead of reads
    RangeHotScans,
    /// 83 % reads, 14 % updates, 3 % scans, whose lengths and keys are those of a shard of ZippyDB; its
    /// values are those of --mix pareto
    Mixgraph,
}

/// How records are picked.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// θ = 0.99, the hot ones spread over all keys
    Zipfian,
    /// All alike
    Uniform,
    /// θ = 0.99 from the newest record back
    Latest,
    /// 98 % alike in a contiguous part of the key space (--hot-share), 2 % alike over all
    RangeHot,
    /// Four fifths in one of 30 ranges of the key space, some of its keys more than others
    Mixgraph,
}

/// How a trace is written.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// Lines of batches, puts and deletes
    Git,
    /// Reads and writes of blocks, 21 bytes each
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

fn parse_hot_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.001..=0.5).contains(&share) => Ok(share),
        _ => Err(format!("{text:?} is not a part from 0.001 to 0.5")),
    }
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
