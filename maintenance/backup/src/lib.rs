//! Backups: a repository directory that holds any number of states of any number of stores.
//!
//! Runs never change and their ids are never reused, so that a backup copies only those that the repository
//! does not hold yet. Beside them it has one small file, whose arrival makes it exist, and the operations
//! that no run held.
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
use testudo_db::{Db, Snapshot, maintenance::store_of};
use testudo_env::{Env, RealEnv};
use testudo_store::long_work::{Observer, unobserved};

pub use delete::Deleted;
pub use list::{BackupInfo, ListedBackup};
pub use verify::{RepositoryFinding, RepositoryReport};

/// A directory of backups.
#[derive(Clone, Debug)]
pub struct Repository {
    env: Arc<dyn Env>,
    directory: PathBuf,
    rechecks: bool,
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
        Self { env: RealEnv::new(), directory: directory.as_ref().to_owned(), rechecks: false }
    }

    /// Whether [`Repository::create`] reads the runs that the repository holds already, and copies those anew
    /// that are damaged: all backups that refer to them are whole again. Default `false`: it believes them.
    #[must_use]
    pub fn recheck(mut self, rechecks: bool) -> Self {
        self.rechecks = rechecks;
        self
    }

    /// The operating system to use; for tests.
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.env = env;
        self
    }

    /// Adds a backup of the open store `db`, as of now, while it is in use; makes the repository if there is
    /// none. Durable on return. Only runs that the repository does not hold are copied; those that it holds
    /// are not read, unless by [`Repository::recheck`].
    ///
    /// Errors: `Invalid` if the directory is something else; `Locked` while another process uses the
    /// repository; `Corruption` if a page of the store or the file `repository` is damaged; `Unsupported` for
    /// a repository of a newer format; `Poisoned` if the store must be reopened first; `Closed`;
    /// `OutOfSpace`; `Io`. No backup was added then; files that came with it are used or removed by later
    /// calls.
    pub fn create(&self, db: &Db) -> Result<NewBackup> {
        self.create_observed(db, &mut unobserved())
    }

    /// As [`Repository::create`], telling `observer` how far it is.
    ///
    /// Errors: as [`Repository::create`]; `Cancelled` if `observer` ends it.
    pub fn create_observed(&self, db: &Db, observer: &mut Observer<'_>) -> Result<NewBackup> {
        store_of(&db).read(|| create::create(self, db, observer))
    }

    /// The backups, oldest first; one that cannot be read is listed with the reason.
    ///
    /// Errors: `Invalid` if there is no such repository; `Locked` while another process changes it;
    /// `Corruption` or `Unsupported` if the file `repository` is damaged or of a newer format; `Io`.
    pub fn list(&self) -> Result<Vec<ListedBackup>> {
        list::list(self)
    }

    /// Reads everything that backup `id`, or every backup, consists of, and checks each hash and each page.
    ///
    /// Errors: `Invalid` if there is no such repository or backup; `Locked` while another process changes it;
    /// `Unsupported` for a repository of a newer format; `Io` if its directory cannot be read. Damage is a
    /// finding, not an error.
    pub fn verify(&self, id: Option<u64>) -> Result<RepositoryReport> {
        self.verify_observed(id, &mut unobserved())
    }

    /// As [`Repository::verify`], telling `observer` how far it is.
    ///
    /// Errors: as [`Repository::verify`]; `Cancelled` if `observer` ends it.
    pub fn verify_observed(&self, id: Option<u64>, observer: &mut Observer<'_>) -> Result<RepositoryReport> {
        verify::verify(self, id, observer)
    }

    /// Makes a new store in `target` from backup `id`, by default the newest. Every page is verified on the
    /// way, the new store is checked before it counts as one. It has an id of its own.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-restore-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// use testudo::{Db, backup::Repository};
    ///
    /// users.insert("ada", "1815")?;
    /// let repository = Repository::at(directory.with_extension("backups"));
    /// repository.create(&db)?;
    /// let target = directory.with_extension("restored");
    /// repository.restore(None, &target)?;
    /// assert_eq!(Db::open(&target)?.keyspace_names(), ["users"]);
    /// # let _ = std::fs::remove_dir_all(&target);
    /// # let _ = std::fs::remove_dir_all(directory.with_extension("backups"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Invalid` if the target is not empty or there is no such repository or backup; `Locked` while
    /// another process changes the repository or fills the target; `Corruption` for damage in the repository;
    /// `Unsupported` for a newer format; `OutOfSpace`; `Io`. What was made of the target is removed then.
    pub fn restore(&self, id: Option<u64>, target: impl AsRef<Path>) -> Result<BackupInfo> {
        self.restore_observed(id, target.as_ref(), &mut unobserved())
    }

    /// As [`Repository::restore`], telling `observer` how far it is.
    ///
    /// Errors: as [`Repository::restore`]; `Cancelled` if `observer` ends it.
    pub fn restore_observed(
        &self,
        id: Option<u64>,
        target: &Path,
        observer: &mut Observer<'_>,
    ) -> Result<BackupInfo> {
        restore::restore(self, id, target, observer)
    }

    /// Removes backup `id`, and the runs that no other backup needs.
    ///
    /// Errors: `Invalid` if there is no such repository or backup; `Locked` while another process uses the
    /// repository; `Corruption` or `Unsupported` if the file `repository` is damaged or of a newer format;
    /// `Io`. After the last the backup may be gone; runs that are left over go with the next call.
    pub fn delete(&self, id: u64) -> Result<Deleted> {
        delete::delete(self, id)
    }
}
