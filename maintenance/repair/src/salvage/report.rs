//! What a salvage came to.

use std::fmt;

/// What a salvage came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SalvageReport {
    /// Id of the damaged store, in hex.
    pub store: String,
    /// How the runs that count were found.
    pub method: SalvageMethod,
    /// What is wrong with the files around the data; what that costs, if anything, is in the rest of the
    /// report.
    pub findings: Vec<String>,
    /// Why something may be missing that left no trace at all; `None` if everything that ever was is
    /// accounted for.
    pub unproven: Option<String>,
    /// Keyspace by keyspace.
    pub keyspaces: Vec<KeyspaceSalvage>,
    /// The log.
    pub log: LogSalvage,
}

impl SalvageReport {
    /// Whether every record is there, and known to be.
    pub fn is_complete(&self) -> bool {
        let whole = |keyspace: &KeyspaceSalvage| {
            keyspace.lost_ranges.is_empty() && keyspace.uncertain_records == 0 && keyspace.older_records == 0
        };
        self.unproven.is_none() && self.log.lost.is_empty() && self.keyspaces.iter().all(whole)
    }

    /// Records written.
    pub fn records(&self) -> u64 {
        self.keyspaces.iter().map(|keyspace| keyspace.records).sum()
    }
}

/// How the runs that count were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum SalvageMethod {
    /// The manifest names them.
    #[default]
    Manifest,
    /// The data file was searched, because the manifest is lost or cannot be trusted.
    Scan,
}

/// Where the name of a keyspace comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum NameSource {
    /// The manifest.
    Manifest,
    /// A run of the keyspace.
    Run,
    /// Nowhere: it was made up.
    Invented,
}

/// A keyspace that was salvaged.
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
    /// Records among them that come from runs of which the footer and the manifest are lost: probably
    /// current.
    pub uncertain_records: u64,
    /// Records in lost ranges of which a version is left that may not be the last one.
    pub older_records: u64,
    /// The keyspace that these went into, if there are any and they were not asked for among the others.
    pub older_keyspace: Option<String>,
    /// Ranges of keys in which records are missing.
    pub lost_ranges: Vec<LostRange>,
}

/// Keys whose newest entries could not be read.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LostRange {
    /// The first key that may be affected.
    pub low: Vec<u8>,
    /// The first key beyond; `None` is the end.
    pub high: Option<Vec<u8>>,
    /// About how many records were there. Some of them may have been superseded.
    pub records_about: u64,
    /// About how many bytes of keys and values.
    pub bytes_about: u64,
    /// The damaged file.
    pub file: String,
    /// Where the damage begins in it.
    pub offset: u64,
    /// What is wrong there.
    pub why: String,
}

/// Keys are the user's; they are shown to those who ask for the fields, not in logs.
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

/// What became of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LogSalvage {
    /// Segments found.
    pub segments: u64,
    /// Valid commits read.
    pub commits: u64,
    /// Operations in them.
    pub operations: u64,
    /// The last seqno that was there.
    pub last_seqno: u64,
    /// Commits that had been durable and are lost.
    pub lost: Vec<LostCommits>,
}

/// Commits that had been durable and are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LostCommits {
    /// The first seqno that is missing.
    pub first_seqno: u64,
    /// The last one.
    pub last_seqno: u64,
    /// The file where they should be.
    pub file: String,
    /// Where the damage begins in it.
    pub offset: u64,
}
