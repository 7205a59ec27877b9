//! Backups of a store under concurrent writes, restored and compared.
//!
//! A backup is the store at one commit. The second one copies only the data that the first one lacks. A
//! backup that was never restored is only a hope: the example restores both, verifies the stores, and
//! compares each record with the snapshot of the backup.
//!
//! Run with `cargo run -p testudo --example online_backup`.

use std::{
    error::Error,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use testudo::{
    Db, Keyspace, KeyspaceOptions, VerifyLevel,
    backup::{NewBackup, Repository},
};

const KEYS: u64 = 20_000;

/// The writing thread and its shared state.
#[derive(Default)]
struct Writer {
    writes: AtomicU64,
    has_ended: AtomicBool,
    stop: AtomicBool,
}

impl Writer {
    /// Writes until it is stopped.
    fn run(&self, accounts: &Keyspace) -> testudo::Result<()> {
        let mut result = Ok(());
        while result.is_ok() && !self.stop.load(Ordering::Relaxed) {
            let write = self.writes.fetch_add(1, Ordering::Relaxed);
            let key = write * 7_919 % KEYS;
            result = accounts.insert(key.to_be_bytes(), format!("balance after write {write}"));
        }
        self.has_ended.store(true, Ordering::Relaxed);
        result
    }

    /// Waits until a thousand more writes are done.
    fn wait(&self) {
        let before = self.writes.load(Ordering::Relaxed);
        while self.writes.load(Ordering::Relaxed) < before + 1_000 && !self.has_ended.load(Ordering::Relaxed)
        {
            thread::yield_now();
        }
    }
}

/// Restores a backup to `target`, checks the new store, and compares it with the backed-up snapshot.
fn restore_and_check(
    repository: &Repository,
    backup: &NewBackup,
    accounts: &Keyspace,
    target: &Path,
) -> Result<usize, Box<dyn Error>> {
    repository.restore(Some(backup.info.id), target)?;
    let restored = Db::builder(target).memory_bytes(16 << 20).open()?;
    let report = restored.verify(VerifyLevel::Full)?;
    assert!(report.is_valid(), "{report:?}");
    let copy = restored.open_keyspace("accounts")?.ok_or("the keyspace was not restored")?;
    let mut count = 0;
    let mut copies = copy.iter()?;
    for entry in backup.snapshot.iter(accounts)? {
        let (expected, found) =
            (entry?.into_pair()?, copies.next().ok_or("a record is missing")??.into_pair()?);
        assert_eq!(found, expected);
        count += 1;
    }
    assert!(copies.next().is_none(), "the restored store has extra records");
    restored.close()?;
    Ok(count)
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::builder(directory.path().join("store")).memory_bytes(16 << 20).open()?;
    let accounts = db.keyspace("accounts", KeyspaceOptions::default())?;
    for key in 0..KEYS {
        accounts.insert(key.to_be_bytes(), "balance at the start")?;
    }
    // In practice, use another device.
    let repository = Repository::at(directory.path().join("backups"));

    let writer = Writer::default();
    let backups = thread::scope(|scope| {
        let thread = scope.spawn(|| writer.run(&accounts));
        let [first, second] = [(); 2].map(|()| {
            writer.wait();
            repository.create(&db)
        });
        writer.stop.store(true, Ordering::Relaxed);
        thread.join().expect("the writer does not panic")?;
        Ok::<_, testudo::Error>([first?, second?])
    })?;

    let report = repository.verify(None)?;
    assert!(report.is_valid(), "{report:?}");
    assert_eq!(repository.list()?.len(), 2);
    for (backup, name) in backups.iter().zip(["first", "second"]) {
        let count = restore_and_check(&repository, backup, &accounts, &directory.path().join(name))?;
        let info = &backup.info;
        println!("{name} backup, of commit {}: {count} records restored and equal", info.seqno);
        assert_eq!(u64::try_from(count)?, KEYS);
    }
    assert!(backups[0].info.seqno < backups[1].info.seqno);
    println!("{} writes were made during the backups", writer.writes.into_inner());
    Ok(())
}
