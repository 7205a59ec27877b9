//! Creates a store from a backup.

use std::path::Path;

use testudo_base::{Error, Result, Seqno};
use testudo_options::stored_tree::check_known;
use testudo_recovery::new_store::{CopiedRun, NewStore};
use testudo_store::long_work::{Meter, Observer};

use super::{
    Repository,
    list::{BackupInfo, info},
    run_object::RunObject,
    tail_object,
};

pub(crate) fn restore(
    repository: &Repository,
    id: Option<u64>,
    target: &Path,
    observer: &mut Observer<'_>,
) -> Result<BackupInfo> {
    let repository = repository.open_for_reading()?;
    let id =
        repository.chosen_ids(id)?.last().copied().ok_or_else(|| {
            Error::invalid(format!("{} holds no backup yet", repository.directory.display()))
        })?;
    let record = repository.record(id)?;
    check_known(&record.state.keyspaces)?;
    let info = info(&repository, &record)?;
    let run_bytes: u64 = record.runs.iter().map(|run| run.page_bytes).sum();
    let mut meter = Meter::new(observer, run_bytes + record.tail.bytes);
    let new = NewStore::begin(&repository.env, target)?;
    meter.advance(0)?;
    for run in &record.runs {
        let object = RunObject::open_for(&repository, record.store, run)?;
        let mut read = |page: u32, buffer: &mut [u8]| object.read_pages(page, buffer);
        let damaged = |page: u32, why: &str| object.damaged(page, why);
        let (reference, store) = (&run.reference, record.store);
        new.copy_run(CopiedRun { reference, store, read: &mut read, damaged: &damaged }, &mut meter)?;
    }
    new.finish(&record.state, Seqno(record.seqno), |tail| {
        tail_object::read(&repository, id, record.tail, &mut meter, &mut |operation| tail.push(&operation))
    })?;
    Ok(info)
}

#[cfg(test)]
mod tests;
