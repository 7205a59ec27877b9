//! Report of a salvage.

use std::fmt;

/// Result of a salvage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SalvageReport {
    /// Id of the damaged store, in hex.
    pub store: String,
    /// Method by which the runs were found.
    pub method: SalvageMethod,
    /// Problems in the files around the data; any resulting losses are in the rest of the report.
    pub findings: Vec<String>,
    /// Reason why data may be missing without a trace; `None` if everything ever written is accounted for.
    pub unproven: Option<String>,
    /// Result for each keyspace.
    pub keyspaces: Vec<KeyspaceSalvage>,
    /// Result for the log.
    pub log: LogSalvage,
}

impl SalvageReport {
    /// Whether every record was recovered, and is known to be.
    pub fn is_complete(&self) -> bool {
        let whole = |keyspace: &KeyspaceSalvage| {
            keyspace.lost_ranges.is_empty() && keyspace.uncertain_records == 0 && keyspace.older_records == 0
        };
        self.unproven.is_none() && self.log.lost.is_empty() && self.keyspaces.iter().all(whole)
    }

    /// Number of records written.
    pub fn records(&self) -> u64 {
        self.keyspaces.iter().map(|keyspace| keyspace.records).sum()
    }
}

/// Method by which the runs were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum SalvageMethod {
    /// The manifest lists them.
    #[default]
    Manifest,
    /// By scanning the data file, because the manifest is lost or cannot be trusted.
    Scan,
}

/// Origin of a keyspace's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum NameSource {
    /// The manifest.
    Manifest,
    /// A run of the keyspace.
    Run,
    /// No origin: the name was generated.
    Invented,
}

/// Result for a keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KeyspaceSalvage {
    /// Its id in the damaged store.
    pub id: u32,
    /// Its name in the new one.
    pub name: String,
    /// Where the name comes from.
    pub name_from: NameSource,
    /// Records written.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Records among them from runs whose footer is lost along with the manifest: probably current.
    pub uncertain_records: u64,
    /// Records in lost ranges whose recovered version may not be the last one.
    pub older_records: u64,
    /// The separate keyspace for these records, if any were written to one.
    pub older_keyspace: Option<String>,
    /// Ranges of keys in which records are missing.
    pub lost_ranges: Vec<LostRange>,
}

/// A range of keys whose newest entries could not be read.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LostRange {
    /// The first key that may be affected.
    pub low: Vec<u8>,
    /// Exclusive upper bound; `None` means unbounded.
    pub high: Option<Vec<u8>>,
    /// Estimated number of lost records, some of which may have been superseded.
    pub records_about: u64,
    /// Estimated bytes of lost keys and values.
    pub bytes_about: u64,
    /// The damaged file.
    pub file: String,
    /// Offset in it at which the damage begins.
    pub offset: u64,
    /// Description of the damage.
    pub why: String,
}

/// Omits the keys, which are user data and must not reach logs.
impl fmt::Debug for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "LostRange({} at {}: {}, about {} records)",
            self.file, self.offset, self.why, self.records_about
        )
    }
}

impl LostRange {
    /// Whether `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.low.as_slice() <= key && self.high.as_deref().is_none_or(|high| key < high)
    }
}

/// Result for the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LogSalvage {
    /// Segments found.
    pub segments: u64,
    /// Valid commits read.
    pub commits: u64,
    /// Operations in them.
    pub operations: u64,
    /// The last seqno found.
    pub last_seqno: u64,
    /// Commits that were durable and are lost.
    pub lost: Vec<LostCommits>,
}

/// Commits that were durable and are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LostCommits {
    /// First missing seqno.
    pub first_seqno: u64,
    /// Last missing seqno.
    pub last_seqno: u64,
    /// File that should contain them.
    pub file: String,
    /// Offset in it at which the damage begins.
    pub offset: u64,
}
