//! The directory of a repository: its lock, its names, and how files are added.
//!
//! **Invariants**
//! - A name without `.tmp` names a complete file, durable as soon as the name is.
//! - Leftovers (`*.tmp`) are removed only under the exclusive lock.

use std::{io, path::PathBuf};

use testudo_base::{
    Error, ErrorKind, Result, StoreId,
    num::{u64_of, usize_of},
    planted,
    sync::Arc,
};
use testudo_env::{DirLock, Env, File, OpenMode, OpenOptions};
use testudo_run::RunRef;
use testudo_store::directory::{self, LOCK_FILE, LockAs};

use super::{
    Repository,
    backup_format::{self, BackupRecord, RepositoryId, Unreadable},
};

const REPOSITORY_FILE: &str = "repository";
const TEMPORARY: &str = ".tmp";

/// A repository that is locked for the duration of a call.
#[derive(Debug)]
pub(crate) struct OpenRepository {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) directory: PathBuf,
    pub(crate) id: RepositoryId,
    _lock: Arc<dyn DirLock>,
}

/// File name of a run. Copies of a store give the same ids to different runs, but the incarnations differ.
/// The same applies to replaced pages of a run.
pub(crate) fn run_name(store: StoreId, run: &RunRef) -> String {
    let name = format!("run-{:032x}-{:08x}-{:016x}", store.0, run.incarnation, run.id.0);
    match run.replaced.as_ref().and_then(|replaced| replaced.newest_writing()) {
        Some(_) if planted!("backup-misses-updated-page") => name,
        None => name,
        Some(newest) => format!("{name}-{:016x}-{:08x}", newest.generation.0, newest.incarnation),
    }
}

pub(crate) fn tail_name(backup: u64) -> String {
    format!("tail-{backup:010}")
}

pub(crate) fn backup_name(backup: u64) -> String {
    format!("backup-{backup:010}")
}

fn backup_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("backup-")?;
    (digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

impl Repository {
    fn not_one(&self, why: &str) -> Error {
        Error::invalid(format!("{} is not a backup repository: {why}", self.directory.display()))
    }

    fn lock(&self, lock_as: LockAs) -> Result<Arc<dyn DirLock>> {
        directory::try_lock(&*self.env, &self.directory, lock_as).map_err(|error| {
            if error.kind() == io::ErrorKind::WouldBlock {
                let message = format!("{} is in use by another process", self.directory.display());
                return Error::new(ErrorKind::Locked, message);
            }
            directory::io(&self.directory.join(LOCK_FILE), error)
        })
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(directory::list(&*self.env, &self.directory)?.unwrap_or_default())
    }

    /// The repository with its directory opened.
    fn entered(&self, create: bool) -> Result<Self> {
        let anchored = if create {
            directory::anchor_or_make(&self.env, &self.directory)?.0
        } else {
            let anchored = directory::anchor(&self.env, &self.directory)?;
            anchored.ok_or_else(|| self.not_one("the directory does not exist"))?
        };
        Ok(Self { env: anchored, directory: self.directory.clone(), rechecks: self.rechecks })
    }

    /// Opens the repository for reading.
    pub(crate) fn open_for_reading(&self) -> Result<OpenRepository> {
        self.entered(false)?.read_in_place()
    }

    fn read_in_place(&self) -> Result<OpenRepository> {
        let names = self.names()?;
        if !names.iter().any(|name| name == REPOSITORY_FILE) {
            return Err(self.not_one("the file `repository` is missing"));
        }
        let lock = self.lock(LockAs::Reader)?;
        self.open(lock)
    }

    /// Opens the repository for writing; `create` makes it in an empty or missing directory.
    pub(crate) fn open_for_writing(&self, create: bool) -> Result<OpenRepository> {
        self.entered(create)?.write_in_place(create)
    }

    fn write_in_place(&self, create: bool) -> Result<OpenRepository> {
        let is_known = |names: &[String]| names.iter().any(|name| name == REPOSITORY_FILE);
        let names = self.names()?;
        if !is_known(&names) {
            self.check_creatable(&names, create)?;
        }
        let lock = self.lock(LockAs::Creator)?;
        let names = self.names()?;
        if !is_known(&names) {
            self.check_creatable(&names, create)?;
            self.make(&lock)?;
        }
        let repository = self.open(lock)?;
        repository.remove_leftovers()?;
        Ok(repository)
    }

    fn check_creatable(&self, names: &[String], create: bool) -> Result<()> {
        let temporary = format!("{REPOSITORY_FILE}{TEMPORARY}");
        let is_free = names.iter().all(|name| *name == LOCK_FILE || *name == temporary);
        match (is_free, create) {
            (true, true) => Ok(()),
            (true, false) => Err(self.not_one("it is empty")),
            (false, _) => Err(self.not_one("it holds other files, and `repository` is missing")),
        }
    }

    fn make(&self, lock: &Arc<dyn DirLock>) -> Result<()> {
        let id = RepositoryId(u128::from(self.env.random_u64()) << 64 | u128::from(self.env.random_u64()));
        let (env, directory) = (Arc::clone(&self.env), self.directory.clone());
        let new = OpenRepository { env, directory, id, _lock: Arc::clone(lock) };
        new.remove_leftovers()?;
        new.put(REPOSITORY_FILE, &backup_format::encode_repository(id))?;
        new.sync_names()?;
        directory::sync_own_name(&*self.env, &self.directory)
    }

    fn open(&self, lock: Arc<dyn DirLock>) -> Result<OpenRepository> {
        let (env, directory) = (Arc::clone(&self.env), self.directory.clone());
        let mut repository = OpenRepository { env, directory, id: RepositoryId(0), _lock: lock };
        let bytes = repository.read(REPOSITORY_FILE)?;
        let id = backup_format::decode_repository(&bytes);
        repository.id = id.map_err(|why| unreadable(REPOSITORY_FILE, why))?;
        Ok(repository)
    }
}

/// The error for a file that does not decode.
pub(crate) fn unreadable(name: &str, why: Unreadable) -> Error {
    match why {
        Unreadable::Damaged(why) => Error::corruption(name, 0, why),
        Unreadable::OtherVersion(version) => {
            let message =
                format!("{name} has repository format version {version}, which this build does not support");
            Error::new(ErrorKind::Unsupported, message)
        }
    }
}

impl OpenRepository {
    /// All names, sorted.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        Ok(directory::list(&*self.env, &self.directory)?.unwrap_or_default())
    }

    /// Ids of the backups, ascending.
    pub(crate) fn backup_ids(&self) -> Result<Vec<u64>> {
        let mut ids: Vec<u64> = self.names()?.iter().filter_map(|name| backup_number(name)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The ids a call refers to: `id`, which must exist, or all.
    pub(crate) fn chosen_ids(&self, id: Option<u64>) -> Result<Vec<u64>> {
        let ids = self.backup_ids()?;
        match id {
            None => Ok(ids),
            Some(id) if ids.contains(&id) => Ok(vec![id]),
            Some(id) => Err(Error::invalid(format!("{} has no backup {id}", self.directory.display()))),
        }
    }

    /// Reads a backup's own file.
    pub(crate) fn record(&self, id: u64) -> Result<BackupRecord> {
        let name = backup_name(id);
        let record = BackupRecord::decode(&self.read(&name)?).map_err(|why| unreadable(&name, why))?;
        if record.id != id || record.repository != self.id {
            return Err(Error::corruption(&name, 0, "the file belongs to another backup"));
        }
        Ok(record)
    }

    pub(crate) fn open_file(&self, name: &str) -> Result<Arc<dyn File>> {
        let options = OpenOptions { mode: OpenMode::Read, direct: false };
        self.env.open(&self.directory.join(name), options).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::corruption(name, 0, "the file is missing"),
            _ => Error::io(name, error),
        })
    }

    fn read(&self, name: &str) -> Result<Vec<u8>> {
        let file = self.open_file(name)?;
        let length = file.len().map_err(|e| Error::io(name, e))?;
        let mut bytes = vec![0; usize_of(length)];
        file.read_at(0, &mut bytes).map_err(|e| Error::io(name, e))?;
        Ok(bytes)
    }

    /// Begins a file under a temporary name.
    pub(crate) fn begin(&self, name: &str) -> Result<Arrival<'_>> {
        debug_assert!(!name.ends_with(TEMPORARY), "a name of a complete file");
        let temporary = format!("{name}{TEMPORARY}");
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
        let file = self.env.open(&self.directory.join(&temporary), options);
        let file = file.map_err(|e| Error::io(&temporary, e))?;
        Ok(Arrival { repository: self, name: name.to_owned(), temporary, file, has_arrived: false })
    }

    /// Writes a complete file. Its name is durable after [`OpenRepository::sync_names`].
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let arrival = self.begin(name)?;
        arrival.write(0, bytes)?;
        arrival.finish()
    }

    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        self.env.remove_file(&self.directory.join(name)).map_err(|e| Error::io(name, e))
    }

    pub(crate) fn sync_names(&self) -> Result<()> {
        self.env.sync_dir(&self.directory).map_err(|e| directory::io(&self.directory, e))
    }

    fn remove_leftovers(&self) -> Result<()> {
        let mut leftovers = self.names()?.into_iter().filter(|name| name.ends_with(TEMPORARY));
        leftovers.try_for_each(|name| self.remove(&name))
    }
}

/// A file being added to the repository; removed if dropped before `finish`.
#[derive(Debug)]
pub(crate) struct Arrival<'r> {
    repository: &'r OpenRepository,
    name: String,
    temporary: String,
    file: Arc<dyn File>,
    has_arrived: bool,
}

impl Arrival<'_> {
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_at(offset, bytes).map_err(|e| Error::io(&self.temporary, e))
    }

    /// Makes the content durable and renames the file to its final name.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.file.sync().map_err(|e| Error::io(&self.temporary, e))?;
        let directory = &self.repository.directory;
        let renamed =
            self.repository.env.rename(&directory.join(&self.temporary), &directory.join(&self.name));
        renamed.map_err(|e| Error::io(&self.temporary, e))?;
        debug_assert!(!self.has_arrived, "a file arrives once");
        self.has_arrived = true;
        Ok(())
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        if !self.has_arrived {
            // The next backup removes the file if that fails now.
            let _ = self.repository.remove(&self.temporary);
        }
    }
}

/// Checks the length of a file; `Corruption` if it differs.
pub(crate) fn require_length(file: &dyn File, name: &str, expected: u64) -> Result<()> {
    let length = file.len().map_err(|e| Error::io(name, e))?;
    if length != expected {
        let what = format!("the file has {length} bytes, not {expected}");
        return Err(Error::corruption(name, length.min(expected), what));
    }
    Ok(())
}

/// Reads a part of a file; `Corruption` if it extends past the end.
pub(crate) fn read_part(file: &dyn File, name: &str, offset: u64, buffer: &mut [u8]) -> Result<()> {
    file.read_at(offset, buffer).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            Error::corruption(name, offset + u64_of(buffer.len()), "the file is truncated")
        }
        _ => Error::io(name, error),
    })
}
