//! Names of the workloads and key distributions of `ycsb`.
//!
//! **Invariants**
//! - [`Workload::name`] of a workload is parsed as that workload.
//! - The help lists every name; `range-scan-N` covers all scan lengths.

use std::ffi::OsStr;

use clap::{
    Arg, Command, Error, ValueEnum,
    builder::{EnumValueParser, PossibleValue, TypedValueParser},
    error::ErrorKind,
};

/// Prefix of a name that ends in a scan length.
const RANGE_SCAN: &str = "range-scan-";

/// Workload of `ycsb`; a to f are the YCSB core.
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
    /// 95 % reads of recent records, 5 % inserts
    D,
    /// 95 % short scans, 5 % inserts
    E,
    /// Half reads, half read-modify-writes
    F,
    /// As a, uniform
    UniformA,
    /// As c, uniform
    UniformC,
    /// Updates only, uniform
    Overwrite,
    /// Updates only, 98 % of them uniform in one range of consecutive keys (--hot-fraction), 2 % over all
    RangeOverwrite,
    /// Updates of stretches of 32 consecutive keys in key order, the stretch uniform, whatever --distribution
    ClusterOverwrite,
    /// Inserts the same number of records again, in key order, into a separate keyspace
    Seq,
    /// One queue of 1,000 entries per thread, in a separate keyspace: inserts at the end, reads at the front,
    /// removals from there
    Queue,
    /// Reads in batches of 32, uniform
    Multiget,
    /// Scans of exactly --scan-length records, uniform
    Range,
    /// Scans everything in order
    Scan,
    /// Reads of absent keys, each adjacent to a record's, uniform
    Absent,
    /// Removes every second record, each thread in its own share; only `scan` can follow
    #[value(alias = "delete-every-second")]
    DeleteHalf,
    /// Removes all records but every hundredth, each thread in its own share; only `scan` can follow
    DeleteMost,
    /// 70 % updates, which restore removed records, and 30 % removals, uniform; only `scan` can follow
    PutDelete,
    /// Reads, 98 % of them in one part of the key space (--hot-fraction), concurrent with uniform updates
    /// (--updates-beside) of a further thread, which are not counted as operations
    RangeHot,
    /// As range-hot, with scans of exactly --scan-length records instead of reads
    RangeHotScans,
    /// Scans of exactly this many records, 98 % of them from a start in one range of consecutive keys
    /// (--hot-fraction), 2 % from anywhere; no updates: `range-scan-N`
    #[value(skip)]
    RangeScan(u64),
    /// 83 % reads, 14 % updates, 3 % scans, with the scan lengths and keys of a ZippyDB shard; values as in
    /// --mix pareto
    Mixgraph,
}

impl Workload {
    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::RangeScan(length) => format!("{RANGE_SCAN}{length}"),
            _ => self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default(),
        }
    }
}

/// Parses the name of a workload.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadParser;

impl TypedValueParser for WorkloadParser {
    type Value = Workload;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Workload, Error> {
        let Some(length) = value.to_str().and_then(|name| name.strip_prefix(RANGE_SCAN)) else {
            return EnumValueParser::<Workload>::new().parse_ref(command, arg, value);
        };
        match length.parse() {
            Ok(length) if length > 0 => Ok(Workload::RangeScan(length)),
            _ => {
                let message = format!("{RANGE_SCAN}{length}: the scan length is not a positive number\n");
                Err(Error::raw(ErrorKind::InvalidValue, message).with_cmd(command))
            }
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let range_scan = PossibleValue::new("range-scan-N").help(
            "Scans of exactly N records, 98 % of them from a start in one range of consecutive keys \
             (--hot-fraction), 2 % from anywhere",
        );
        let named = Workload::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        Some(Box::new(named.chain([range_scan])))
    }
}

/// Key distribution.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// θ = 0.99, hot records spread over all keys
    Zipfian,
    /// All equally likely
    Uniform,
    /// θ = 0.99, newest records hottest
    Latest,
    /// 98 % uniform in a contiguous part of the key space (--hot-fraction), 2 % uniform over all
    RangeHot,
    /// Four fifths in one of 30 ranges of the key space, some of its keys hotter than others
    Mixgraph,
}
