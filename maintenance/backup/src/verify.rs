//! Verifies backups completely: every checksum, page and operation.
//!
//! **Invariants**
//! - Damage in one file does not hide damage in another. Each file is read once, however many backups share
//!   it.

use std::collections::{BTreeMap, BTreeSet};

use testudo_base::{Error, ErrorKind, Result, RunId, StoreId};
use testudo_store::long_work::{Meter, Observer};

use super::{
    Repository,
    backup_format::{BackedRun, BackupRecord},
    repository::{backup_name, run_name, tail_name},
    run_object::RunObject,
    tail_object,
};

/// A problem in a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RepositoryFinding {
    /// The file.
    pub file: String,
    /// Byte offset in the file.
    pub offset: u64,
    /// Description of the problem.
    pub what: String,
    /// Backups that cannot be restored because of it.
    pub backups: Vec<u64>,
}

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RepositoryReport {
    /// Backups checked.
    pub backups: u64,
    /// Runs read.
    pub runs: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Files that no readable backup needs; the next backup may reuse them.
    pub unused_files: Vec<String>,
    /// Problems found; empty if everything is valid.
    pub findings: Vec<RepositoryFinding>,
}

impl RepositoryReport {
    /// Whether there are no findings.
    pub fn is_valid(&self) -> bool {
        self.findings.is_empty()
    }

    /// The former name of `is_valid`.
    #[deprecated(since = "0.1.0", note = "use `is_valid`")]
    pub fn is_sound(&self) -> bool {
        self.is_valid()
    }

    /// Turns damage into a finding; returns any other error.
    fn note(&mut self, file: &str, backups: Vec<u64>, outcome: Result<()>) -> Result<()> {
        let Err(error) = outcome else { return Ok(()) };
        if ![ErrorKind::Corruption, ErrorKind::Unsupported, ErrorKind::Io].contains(&error.kind()) {
            return Err(error);
        }
        let offset = error.location().map_or(0, |(_, offset)| offset);
        let finding = RepositoryFinding { file: file.to_owned(), offset, what: error.to_string(), backups };
        self.findings.push(finding);
        Ok(())
    }
}

type NeededRuns = BTreeMap<(u128, RunId, u64), (BackedRun, Vec<u64>)>;

/// Every run with the backups that need it. Different runs that share a name have separate entries.
fn needed_runs(records: &[BackupRecord]) -> NeededRuns {
    let mut needed = NeededRuns::new();
    for record in records {
        for run in &record.runs {
            let key = (record.store.0, run.reference.id, run.page_checksum);
            needed.entry(key).or_insert_with(|| (run.clone(), Vec::new())).1.push(record.id);
        }
    }
    needed
}

pub(crate) fn verify(
    repository: &Repository,
    id: Option<u64>,
    observer: &mut Observer<'_>,
) -> Result<RepositoryReport> {
    let mut report = RepositoryReport::default();
    let repository = match repository.open_for_reading() {
        Err(error) if error.kind() == ErrorKind::Corruption => {
            report.note("repository", Vec::new(), Err(error))?;
            return Ok(report);
        }
        opened => opened?,
    };
    let mut records = Vec::new();
    for id in repository.chosen_ids(id)? {
        report.backups += 1;
        match repository.record(id) {
            Ok(record) => records.push(record),
            Err(error) => report.note(&backup_name(id), vec![id], Err(error))?,
        }
    }
    let needed = needed_runs(&records);
    let run_bytes: u64 = needed.values().map(|(run, _)| run.page_bytes).sum();
    let total = run_bytes + records.iter().map(|record| record.tail.bytes).sum::<u64>();
    let mut meter = Meter::new(observer, total);
    meter.advance(0)?;
    for (&(store, ..), (run, backups)) in &needed {
        let store = StoreId(store);
        let checked =
            RunObject::open_for(&repository, store, run).and_then(|object| object.check(&mut meter));
        report.note(&run_name(store, &run.reference), backups.clone(), checked)?;
        report.runs += 1;
        report.bytes += run.page_bytes;
    }
    for record in &records {
        let read = tail_object::read(&repository, record.id, record.tail, &mut meter, &mut |operation| {
            if record.state.keyspaces.contains_key(&operation.keyspace) {
                return Ok(());
            }
            Err(Error::corruption(tail_name(record.id), 0, "an operation on an unknown keyspace"))
        });
        report.note(&tail_name(record.id), vec![record.id], read)?;
        report.bytes += record.tail.bytes;
    }
    if id.is_none() && report.is_valid() {
        let used: BTreeSet<String> = used_names(&records);
        let names = repository.names()?.into_iter();
        let is_object = |name: &String| name.starts_with("run-") || name.starts_with("tail-");
        report.unused_files = names.filter(|name| is_object(name) && !used.contains(name)).collect();
    }
    Ok(report)
}

/// Names of the run and tail files that the backups refer to.
pub(crate) fn used_names(records: &[BackupRecord]) -> BTreeSet<String> {
    let runs = records
        .iter()
        .flat_map(|record| record.runs.iter().map(|run| run_name(record.store, &run.reference)));
    runs.chain(records.iter().map(|record| tail_name(record.id))).collect()
}
