//! Creates a backup of an open store.
//!
//! **Invariants**
//! - The backup's own file is begun only after the names of all files it refers to are durable.

use testudo_base::{ErrorKind, Result, StoreId, num::u64_of};
use testudo_db::{
    Db,
    maintenance::{ConsistentState, store_of},
};
use testudo_run::Run;
use testudo_store::long_work::{Meter, Observer};

use super::{
    NewBackup, Repository,
    backup_format::{BackedRun, BackupRecord},
    list::BackupInfo,
    repository::{OpenRepository, backup_name},
    run_object,
    tail_object::TailFile,
};

pub(crate) fn create(repository: &Repository, db: &Db, observer: &mut Observer<'_>) -> Result<NewBackup> {
    let rechecks = repository.rechecks;
    let repository = repository.open_for_writing(true)?;
    let id = repository.backup_ids()?.last().map_or(1, |last| last + 1);
    let store = store_of(db).id;
    let source = ConsistentState::take(db)?;
    let mut found: Vec<Option<BackedRun>> = Vec::with_capacity(source.runs.len());
    if rechecks {
        let total = source.runs.iter().map(|run| run.reference().stored_bytes()).sum();
        let mut meter = Meter::new(observer, total);
        for run in &source.runs {
            found.push(find_whole(&repository, store, run, &mut meter)?);
        }
    } else {
        let find = |run| run_object::find(&repository, store, run).map(|object| object.backed());
        found.extend(source.runs.iter().map(|run| find(run)));
    }
    debug_assert_eq!(found.len(), source.runs.len(), "each run was looked for");
    let missing = source.runs.iter().zip(&found).filter(|(_, found)| found.is_none());
    let total = missing.map(|(run, _)| run.reference().stored_bytes()).sum();
    let mut meter = Meter::new(observer, total);
    meter.advance(0)?;
    let (mut runs, mut new_runs, mut new_bytes) = (Vec::with_capacity(found.len()), 0, 0);
    for (run, found) in source.runs.iter().zip(found) {
        runs.push(match found {
            Some(found) => found,
            None => {
                let written = run_object::write(&repository, store, run, &mut meter)?;
                new_runs += 1;
                new_bytes += written.page_bytes;
                written
            }
        });
    }
    let mut tail = TailFile::new(&repository, id);
    source.for_each_tail(|operation| tail.push(&operation, &mut meter))?;
    let tail = tail.finish(&mut meter)?;
    repository.sync_names()?;
    let time = store_of(db).env.wall_clock();
    let record = BackupRecord {
        repository: repository.id,
        id,
        store,
        time_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        seqno: source.seqno().0,
        new_runs,
        new_bytes: new_bytes + tail.bytes,
        tail,
        state: source.state.clone(),
        runs,
    };
    debug_assert!(record.check().is_ok(), "the backup has exactly the runs of its state");
    debug_assert!(record.new_runs <= u64_of(record.runs.len()), "new runs are among them");
    let bytes = record.encode();
    repository.put(&backup_name(id), &bytes)?;
    repository.sync_names()?;
    Ok(NewBackup { info: BackupInfo::of(&record, u64_of(bytes.len())), snapshot: source.snapshot })
}

/// The run's existing file in the repository, if it is readable and valid as a whole.
fn find_whole(
    repository: &OpenRepository,
    store: StoreId,
    run: &Run,
    meter: &mut Meter<'_, '_>,
) -> Result<Option<BackedRun>> {
    let Some(object) = run_object::find(repository, store, run) else { return Ok(None) };
    match object.check(meter) {
        Ok(()) => Ok(Some(object.backed())),
        Err(error) if [ErrorKind::Corruption, ErrorKind::Io].contains(&error.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}
