//! Deletes a backup, and the files that only it needed.

use testudo_base::{Error, Result};

use super::{
    Repository,
    repository::{OpenRepository, backup_name},
    verify::used_names,
};

/// Outcome of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Deleted {
    /// Files removed, including the backup's own.
    pub files: u64,
    /// Bytes of the removed files.
    pub bytes: u64,
    /// Backups that cannot be read; because of them only the backup's own file was removed.
    pub unreadable_backups: Vec<u64>,
}

pub(crate) fn delete(repository: &Repository, id: u64) -> Result<Deleted> {
    let repository = repository.open_for_writing(false)?;
    repository.chosen_ids(Some(id))?;
    let mut deleted = Deleted::default();
    remove(&repository, &backup_name(id), &mut deleted)?;
    // The backup's own file must be durably gone before any file it needs.
    repository.sync_names()?;
    let mut records = Vec::new();
    for id in repository.backup_ids()? {
        match repository.record(id) {
            Ok(record) => records.push(record),
            Err(_) => deleted.unreadable_backups.push(id),
        }
    }
    if deleted.unreadable_backups.is_empty() {
        let used = used_names(&records);
        for name in repository.names()? {
            if (name.starts_with("run-") || name.starts_with("tail-")) && !used.contains(&name) {
                remove(&repository, &name, &mut deleted)?;
            }
        }
        repository.sync_names()?;
    }
    Ok(deleted)
}

fn remove(repository: &OpenRepository, name: &str, deleted: &mut Deleted) -> Result<()> {
    let bytes = repository.open_file(name)?.len().map_err(|e| Error::io(name, e))?;
    repository.remove(name)?;
    deleted.files += 1;
    deleted.bytes += bytes;
    Ok(())
}
