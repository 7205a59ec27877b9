//! Backups: a repository directory holds any number of backups of any number of stores.
//!
//! Runs are immutable and their ids are never reused, so a backup copies only runs that the repository lacks.
//! It also adds the operations that are in no run, and one small file that completes the backup.
//!
//! ```text
//! create   consistent_state.rs → run_object.rs, tail_object.rs → backup_format.rs
//! restore  backup_format.rs → run_object.rs, tail_object.rs → new_store.rs (engine/recovery)
//! ```
//!
//! **Invariants**
//! - A file gets its name only when its content is durable; the backup's own file comes last.
//! - Every page is verified when it is copied, both from the store and back.
//! - Nothing that a readable backup refers to is ever removed. While any backup is unreadable, no run or tail
//!   is removed.

mod backup_format;
mod create;
mod delete;
mod list;
mod options;
mod repository;
mod restore;
mod run_object;
mod tail_object;
mod verify;

use std::path::{Path, PathBuf};

use testudo_base::{Result, sync::Arc};
use testudo_db::{Snapshot, maintenance::store_of};
use testudo_env::{Env, RealEnv};

pub use delete::Deleted;
pub use list::{BackupInfo, ListedBackup};
pub use options::{CreateOptions, RestoreOptions, VerifyOptions};
pub use verify::{RepositoryFinding, RepositoryReport};

/// A directory of backups.
#[derive(Clone, Debug)]
pub struct Repository {
    env: Arc<dyn Env>,
    directory: PathBuf,
    rechecks: bool,
}

/// A new backup.
#[derive(Clone, Debug)]
pub struct NewBackup {
    /// Description of the backup.
    pub info: BackupInfo,
    /// Snapshot of the state in the backup; drop it when it is no longer needed.
    pub snapshot: Snapshot,
}

impl Repository {
    /// The repository in `directory`; nothing is read or created yet.
    pub fn at(directory: impl AsRef<Path>) -> Self {
        Self { env: RealEnv::new(), directory: directory.as_ref().to_owned(), rechecks: false }
    }

    /// Whether [`Repository::create`] verifies the runs that the repository already holds, and copies damaged
    /// ones again. That repairs all backups that refer to them. Default `false`: existing runs are trusted.
    #[must_use]
    pub fn recheck(mut self, rechecks: bool) -> Self {
        self.rechecks = rechecks;
        self
    }

    /// Operating system environment; for tests.
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.env = env;
        self
    }

    /// Adds a backup of the current state of an open store, which stays in use; creates the repository if it
    /// does not exist. Durable on return. Copies only runs that the repository lacks; existing ones are
    /// not read, except with [`Repository::recheck`].
    ///
    /// Errors: `Invalid` if the directory holds something else; `Locked` while another process uses the
    /// repository; `Corruption` if a page of the store or the file `repository` is damaged; `Unsupported` for
    /// a repository of a newer format; `Poisoned` if the store must be reopened first; `Closed`;
    /// `OutOfSpace`; `Io`; `Cancelled` by the observer. No backup is added then; later calls reuse or remove
    /// files that were already written.
    pub fn create<'a>(&self, options: impl Into<CreateOptions<'a>>) -> Result<NewBackup> {
        let CreateOptions { db, mut observer } = options.into();
        store_of(db).read(|| create::create(self, db, observer.get()))
    }

    /// Lists the backups, oldest first; an unreadable one is listed with the reason.
    ///
    /// Errors: `Invalid` if there is no such repository; `Locked` while another process changes it;
    /// `Corruption` or `Unsupported` if the file `repository` is damaged or of a newer format; `Io`.
    pub fn list(&self) -> Result<Vec<ListedBackup>> {
        list::list(self)
    }

    /// Reads all files of one backup, or of every backup (`None`), and checks each checksum and each page.
    ///
    /// Errors: `Invalid` if there is no such repository or backup; `Locked` while another process changes it;
    /// `Unsupported` for a repository of a newer format; `Io` if its directory cannot be read; `Cancelled` by
    /// the observer. Damage is reported as a finding, not as an error.
    pub fn verify<'a>(&self, options: impl Into<VerifyOptions<'a>>) -> Result<RepositoryReport> {
        let VerifyOptions { id, mut observer } = options.into();
        verify::verify(self, id, observer.get())
    }

    /// Creates a new store in `target` from one backup, or from the newest (`None`). Every page is verified,
    /// and the new store is checked before it can be opened. It gets a new store id.
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
    /// another process changes the repository or builds a store in the target; `Corruption` for damage in the
    /// repository; `Unsupported` for a newer format; `OutOfSpace`; `Io`; `Cancelled` by the observer. The
    /// incomplete target is removed then.
    pub fn restore<'a>(
        &self,
        options: impl Into<RestoreOptions<'a>>,
        target: impl AsRef<Path>,
    ) -> Result<BackupInfo> {
        let RestoreOptions { id, mut observer } = options.into();
        restore::restore(self, id, target.as_ref(), observer.get())
    }

    /// Removes backup `id`, and the runs that no other backup needs.
    ///
    /// Errors: `Invalid` if there is no such repository or backup; `Locked` while another process uses the
    /// repository; `Corruption` or `Unsupported` if the file `repository` is damaged or of a newer format;
    /// `Io`. After `Io` the backup may be gone; the next call removes leftover runs.
    pub fn delete(&self, id: u64) -> Result<Deleted> {
        delete::delete(self, id)
    }
}
