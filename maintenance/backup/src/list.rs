//! Lists the backups of a repository.

use testudo_base::{Error, ErrorKind, Result};

use super::{
    Repository,
    backup_format::BackupRecord,
    repository::{OpenRepository, backup_name},
};

/// Summary of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BackupInfo {
    /// Number of the backup, ascending within its repository.
    pub id: u64,
    /// Creation time in milliseconds since 1970; informational only.
    pub time_ms: u64,
    /// Id of the store, in hex.
    pub store_id: String,
    /// Seqno of the last commit in it.
    pub seqno: u64,
    /// Names of the keyspaces.
    pub keyspaces: Vec<String>,
    /// Number of runs it consists of.
    pub runs: u64,
    /// Number of runs first copied for it.
    pub new_runs: u64,
    /// Number of operations that were in no run.
    pub tail_operations: u64,
    /// Bytes added for it, without its own file.
    pub new_bytes: u64,
    /// Bytes of all its files, including its own.
    pub total_bytes: u64,
}

/// An entry of the list.
#[derive(Clone, Debug)]
pub struct ListedBackup {
    /// Number of the backup.
    pub id: u64,
    /// Its summary, or why it cannot be read.
    pub info: Result<BackupInfo>,
}

impl BackupInfo {
    pub(crate) fn of(record: &BackupRecord, file_bytes: u64) -> Self {
        let run_bytes: u64 = record.runs.iter().map(|run| run.page_bytes).sum();
        Self {
            id: record.id,
            time_ms: record.time_ms,
            store_id: format!("{:032x}", record.store.0),
            seqno: record.seqno,
            keyspaces: record.state.keyspaces.values().map(|keyspace| keyspace.name.clone()).collect(),
            runs: testudo_base::num::u64_of(record.runs.len()),
            new_runs: record.new_runs,
            tail_operations: record.tail.operations,
            new_bytes: record.new_bytes,
            total_bytes: run_bytes + record.tail.bytes + file_bytes,
        }
    }
}

pub(crate) fn info(repository: &OpenRepository, record: &BackupRecord) -> Result<BackupInfo> {
    let name = backup_name(record.id);
    let bytes = repository.open_file(&name)?.len().map_err(|e| Error::io(name, e))?;
    Ok(BackupInfo::of(record, bytes))
}

pub(crate) fn list(repository: &Repository) -> Result<Vec<ListedBackup>> {
    let repository = repository.open_for_reading()?;
    let mut backups = Vec::new();
    for id in repository.backup_ids()? {
        let read = repository.record(id).and_then(|record| info(&repository, &record));
        match read {
            Err(error) if ![ErrorKind::Corruption, ErrorKind::Unsupported].contains(&error.kind()) => {
                return Err(error);
            }
            info => backups.push(ListedBackup { id, info }),
        }
    }
    Ok(backups)
}
