//! Backups: a repository directory that holds any number of states of any number of stores.
//!
//! Runs never change and their ids are never reused, so that a backup copies only those that the repository does not hold
//! yet. Beside them it has one small file, whose arrival makes it exist, and the operations that no run held.
//!
//! ```text
//! create   consistent_state.rs → run_object.rs, tail_object.rs → backup_format.rs
//! restore  backup_format.rs → run_object.rs, tail_object.rs → new_store.rs
//! ```
//!
//! **Invariants**
//! - A file gets its name only when all of it is durable; the backup's own file comes last.
//! - Every page is verified when it is copied, out of the store and back.
//! - Nothing that a readable backup refers to is ever removed, and nothing at all while one cannot be read.

mod backup_format;
mod create;
mod delete;
mod list;
mod repository;
mod restore;
mod run_object;
mod tail_object;
mod verify;

use std::path::{Path, PathBuf};

use testudo_base::{Result, sync::Arc};
use testudo_env::{Env, RealEnv};

use crate::{Db, Observer, Snapshot, unobserved};

pub use delete::Deleted;
pub use list::{BackupInfo, ListedBackup};
pub use verify::{RepositoryFinding, RepositoryReport};

/// A directory of backups.
#[derive(Clone, Debug)]
pub struct Repository {
    env: Arc<dyn Env>,
    directory: PathBuf,
}

/// A backup that was just made.
#[derive(Clone, Debug)]
pub struct NewBackup {
    /// What it is.
    pub info: BackupInfo,
    /// The state of the store that it holds; drop it when it is not needed.
    pub snapshot: Snapshot,
}

impl Repository {
    /// The repository in `directory`; nothing is read or made yet.
    pub fn at(directory: impl AsRef<Path>) -> Self {
        Self { env: RealEnv::new(), directory: directory.as_ref().to_owned() }
    }

    /// The operating system to use; for tests.
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.env = env;
        self
    }

    /// Adds a backup of the open store `db`, as of now, while it is in use; makes the repository if there is none.
    /// Durable on return. Only runs that the repository does not hold are copied.
    ///
    /// Errors: `Invalid` if the directory is something else, `Locked` while another process changes the repository,
    /// `Corruption` if a page of the store is damaged, `Poisoned` if the store must be reopened first.
    pub fn create(&self, db: &Db) -> Result<NewBackup> {
        self.create_observed(db, &mut unobserved())
    }

    /// As [`Repository::create`], telling `observer` how far it is.
    pub fn create_observed(&self, db: &Db, observer: &mut Observer<'_>) -> Result<NewBackup> {
        db.store().read(|| create::create(self, db, observer))
    }

    /// The backups, oldest first; one that cannot be read is listed with the reason.
    pub fn list(&self) -> Result<Vec<ListedBackup>> {
        list::list(self)
    }

    /// Reads everything that backup `id`, or every backup, consists of, and checks each hash and each page.
    ///
    /// Errors: `Invalid` if there is no such repository or backup. Damage is a finding, not an error.
    pub fn verify(&self, id: Option<u64>) -> Result<RepositoryReport> {
        self.verify_observed(id, &mut unobserved())
    }

    /// As [`Repository::verify`], telling `observer` how far it is.
    pub fn verify_observed(&self, id: Option<u64>, observer: &mut Observer<'_>) -> Result<RepositoryReport> {
        verify::verify(self, id, observer)
    }

    /// Makes a new store in `target` from backup `id`, by default the newest. Every page is verified on the way, the new
    /// store is checked before it counts as one. It has an id of its own.
    ///
    /// Errors: `Invalid` if the target is not empty or there is no such backup, `Corruption` for damage in the
    /// repository; nothing is left of the target then.
    pub fn restore(&self, id: Option<u64>, target: impl AsRef<Path>) -> Result<BackupInfo> {
        self.restore_observed(id, target.as_ref(), &mut unobserved())
    }

    /// As [`Repository::restore`], telling `observer` how far it is.
    pub fn restore_observed(
        &self,
        id: Option<u64>,
        target: &Path,
        observer: &mut Observer<'_>,
    ) -> Result<BackupInfo> {
        restore::restore(self, id, target, observer)
    }

    /// Removes backup `id`, and the runs that no other backup needs.
    pub fn delete(&self, id: u64) -> Result<Deleted> {
        delete::delete(self, id)
    }
}
