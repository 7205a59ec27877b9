//! A backup in the middle of a workload, and a check at the end of the run that its restoration is equal.
//!
//! The store is in full use while the backup is made. After the workload, every keyspace of the snapshot at
//! the backup's commit is read: count and hash of its records. The restored store must yield the same.
//!
//! **Invariants**
//! - The backed-up and the restored records are read from different stores through the same cursor.
//! - The restored store is removed; the backup is kept.

use std::{collections::BTreeMap, ops::ControlFlow, path::Path, time::Duration};

use serde::Serialize;
use testudo::{
    Db, Error, ErrorKind, Iter, Result, Snapshot,
    backup::{CreateOptions, Repository, RestoreOptions, VerifyOptions},
};
use testudo_base::checksum::checksum64;
use testudo_env::Env;

use crate::{
    Context, YcsbArgs,
    report::size::{human_bytes, human_count},
    subject::scratch::Scratch,
};

/// Result of a backup that a run made and restored.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BackupResult {
    /// Whether the repository is valid and every keyspace of the restored store has the snapshot's records.
    pub(crate) backup_equal: bool,
    backup_id: u64,
    /// Records in the backup.
    backup_records: u64,
    backup_bytes: u64,
    /// Bytes that the repository did not already hold.
    backup_new_bytes: u64,
    backup_seconds: f64,
    /// Operations of the workload completed when the backup began.
    backup_began_at: u64,
    /// Operations completed when the backup ended.
    backup_ended_at: u64,
    restore_seconds: f64,
}

/// Count and hash of the records of each keyspace.
type Contents = BTreeMap<String, (u64, u64)>;

/// Makes one backup and compares its restoration.
pub(crate) struct BackupCheck<'a> {
    context: &'a Context,
    repository: Repository,
    taken: Option<Taken>,
}

struct Taken {
    result: BackupResult,
    /// Held until it has been read.
    snapshot: Option<Snapshot>,
    contents: Contents,
}

impl<'a> BackupCheck<'a> {
    /// Creates a check whose backups go to `directory`.
    pub(crate) fn new(context: &'a Context, directory: &Path) -> Self {
        let repository = Repository::at(directory).env(context.env.clone());
        Self { context, repository, taken: None }
    }

    /// Whether a backup was made.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.is_some()
    }

    /// Makes the backup; `operations` returns the progress of the workload. No backup is kept if the run is
    /// stopped meanwhile.
    pub(crate) fn take(&mut self, db: &Db, operations: &dyn Fn() -> u64) -> Result<()> {
        let (started, began_at) = (self.now(), operations());
        let made = self.repository.create(CreateOptions::new(db).observer(|_| self.stop_if_asked()));
        let made = match made {
            Err(error) if error.kind() == ErrorKind::Cancelled => return Ok(()),
            made => made?,
        };
        let result = BackupResult {
            backup_equal: false,
            backup_id: made.info.id,
            backup_records: 0,
            backup_bytes: made.info.total_bytes,
            backup_new_bytes: made.info.new_bytes,
            backup_seconds: (self.now() - started).as_secs_f64(),
            backup_began_at: began_at,
            backup_ended_at: operations(),
            restore_seconds: 0.0,
        };
        self.taken = Some(Taken { result, snapshot: Some(made.snapshot), contents: Contents::new() });
        Ok(())
    }

    /// Reads the backed-up records from the snapshot, and releases it.
    pub(crate) fn read_snapshot(&mut self, db: &Db) -> Result<()> {
        let Some(taken) = &mut self.taken else { return Ok(()) };
        let Some(snapshot) = taken.snapshot.take() else { return Ok(()) };
        for name in db.keyspace_names() {
            let Some(keyspace) = db.open_keyspace(&name)? else { continue };
            taken.contents.insert(name, contents_of(snapshot.iter(&keyspace)?)?);
        }
        taken.result.backup_records = taken.contents.values().map(|(count, _)| count).sum();
        Ok(())
    }

    /// Restores the backup next to the store and compares; `None` without a backup or if the run is stopped.
    pub(crate) fn restore(&mut self, args: &YcsbArgs) -> Result<Option<BackupResult>> {
        let Some(Taken { mut result, contents, .. }) = self.taken.take() else { return Ok(None) };
        let started = self.now();
        let outcome = self.compare(args, result.backup_id, &contents);
        result.restore_seconds = (self.now() - started).as_secs_f64();
        result.backup_equal = match outcome {
            Err(error) if error.kind() == ErrorKind::Cancelled => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Corruption => {
                eprintln!("wrong: backup {}: {error}", result.backup_id);
                false
            }
            outcome => outcome?,
        };
        eprintln!(
            "backup {}: {} ({} records, {}, made in {:.1} s, verified and restored in {:.1} s)",
            result.backup_id,
            if result.backup_equal { "equal" } else { "NOT EQUAL" },
            human_count(result.backup_records as f64),
            human_bytes(result.backup_bytes),
            result.backup_seconds,
            result.restore_seconds,
        );
        Ok(Some(result))
    }

    fn compare(&self, args: &YcsbArgs, id: u64, expected: &Contents) -> Result<bool> {
        let mut observer = |_| self.stop_if_asked();
        let report = self.repository.verify(VerifyOptions::new(Some(id)).observer(&mut observer))?;
        for finding in &report.findings {
            eprintln!("wrong: backup {id}: {} at offset {}: {}", finding.file, finding.offset, finding.what);
        }
        let beside = args.store.tmp.as_deref().or(args.store.dir.as_deref().and_then(Path::parent));
        let beside = beside.filter(|parent| !parent.as_os_str().is_empty());
        let scratch = Scratch::new(&*self.context.env, None, beside)?;
        self.repository.restore(RestoreOptions::new(Some(id)).observer(&mut observer), scratch.path())?;
        let builder = Db::builder(scratch.path()).create(false).memory_bytes(args.store.memory);
        let db = builder.env(self.context.env.clone()).open()?;
        let mut found = Contents::new();
        for name in db.keyspace_names() {
            let keyspace = db.open_keyspace(&name)?;
            let keyspace = keyspace.ok_or_else(|| Error::invalid(format!("keyspace {name:?} is missing")))?;
            found.insert(name, contents_of(keyspace.iter()?)?);
        }
        db.close()?;
        for name in expected.keys().chain(found.keys()).filter(|name| expected.get(*name) != found.get(*name))
        {
            let (expected, found) = (expected.get(name), found.get(name));
            eprintln!(
                "wrong: backup {id}: keyspace {name:?} has {found:x?} (records, hash), not {expected:x?}"
            );
        }
        Ok(report.is_valid() && found == *expected)
    }

    fn stop_if_asked(&self) -> ControlFlow<()> {
        if self.context.stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn now(&self) -> Duration {
        self.context.env.monotonic()
    }
}

fn contents_of(entries: Iter) -> Result<(u64, u64)> {
    let (mut count, mut hash) = (0, 0);
    for entry in entries {
        let entry = entry?;
        hash = checksum64(&entry.value()?, checksum64(entry.key(), hash));
        count += 1;
    }
    Ok((count, hash))
}
