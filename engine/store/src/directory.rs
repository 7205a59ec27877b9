//! The directory of a store: how it is entered and locked, which files in it belong to the store, and how
//! they are removed.
//!
//! Creating, opening, copying, repairing or salvaging a store enters its directory once ([`Env::anchor`]) and
//! reaches all files through that anchor. So a directory that is moved stays the same one, and another
//! directory at the old path is never touched (decision 0031).
//!
//! **Invariants**
//! - Nothing is written in a directory before its lock is held, nor after it is lost.
//! - An owner locks both the file `LOCK` and the directory. A reader locks one of them: the directory only if
//!   the file does not exist.
//! - Files that no store creates are never removed.

use std::{io::ErrorKind as IoErrorKind, path::Path};

use testudo_base::{Error, ErrorKind, Result, planted, sync::Arc};
use testudo_env::{DirLock, EntryType, Env, LockHolder, OwnerState};
use testudo_storage::{DATA_FILE, SUPERBLOCK_FILE, WATERMARK_FILE};

/// Locked while the store is open; holds the process id of the owner.
pub const LOCK_FILE: &str = "LOCK";
/// Exists while a store is being created.
pub const CREATING_FILE: &str = "CREATING";
/// Exists while a checkpoint or a restore fills the directory; such a directory is not a store.
pub const UNFINISHED_FILE: &str = "UNFINISHED";
/// Reserves space for writes that must succeed when the device is full.
pub const RESERVE_FILE: &str = "reserve";
/// Statistics for humans, readable while the store is in use; nothing depends on the file.
pub const STATUS_FILE: &str = "status";
/// Contents of the caches, for the next opening; nothing depends on the file.
pub const HOT_SET_FILE: &str = "hot-set";
/// Exists while the hot set is being written.
pub const NEW_HOT_SET_FILE: &str = "hot-set.new";
/// Attempts to take a lock whose file previous holders keep removing.
const LOCK_TRIES: u32 = 16;

pub fn io(what: &Path, error: std::io::Error) -> Error {
    Error::io(what.display().to_string(), error)
}

/// The environment that holds `directory` open; `None` if the directory does not exist.
///
/// Errors: `Invalid` if it is not a directory.
pub fn anchor(env: &Arc<dyn Env>, directory: &Path) -> Result<Option<Arc<dyn Env>>> {
    match env.anchor(directory) {
        Ok(anchored) => Ok(Some(anchored)),
        Err(error) if error.kind() == IoErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == IoErrorKind::NotADirectory => {
            Err(Error::invalid(format!("{} is not a directory", directory.display())))
        }
        Err(error) => Err(io(directory, error)),
    }
}

/// Same as [`anchor`], but creates the directory and its missing parents; also returns whether it created the
/// directory. The names of the parents are durable, its own is not yet ([`sync_own_name`]).
pub fn anchor_or_make(env: &Arc<dyn Env>, directory: &Path) -> Result<(Arc<dyn Env>, bool)> {
    if let Some(anchored) = anchor(env, directory)? {
        return Ok((anchored, false));
    }
    make_parents(&**env, directory)?;
    let is_made = match env.create_dir(directory) {
        // Another process created it first.
        Err(error) if error.kind() == IoErrorKind::AlreadyExists => false,
        outcome => outcome.map(|()| true).map_err(|e| io(directory, e))?,
    };
    let gone = || Error::invalid(format!("{} is a dangling link", directory.display()));
    Ok((anchor(env, directory)?.ok_or_else(gone)?, is_made))
}

/// Creates the missing parents of `directory`, each with a durable name.
fn make_parents(env: &dyn Env, directory: &Path) -> Result<()> {
    let Some(parent) = parent_of(directory) else { return Ok(()) };
    match env.anchor(parent) {
        Err(error) if error.kind() == IoErrorKind::NotFound => {}
        // Any other error is reported when something is created in it.
        _ => return Ok(()),
    }
    make_parents(env, parent)?;
    match env.create_dir(parent) {
        // Another process created it first, and may not have made the name durable yet.
        Err(error) if error.kind() == IoErrorKind::AlreadyExists => {}
        outcome => outcome.map_err(|e| io(parent, e))?,
    }
    let above = parent_of(parent).unwrap_or(Path::new("."));
    if planted!("parent-name-not-durable") {
        return Ok(());
    }
    env.sync_dir(above).map_err(|e| io(above, e))
}

/// `None` if the path has no named parent: the parent is then the working directory or the root.
fn parent_of(directory: &Path) -> Option<&Path> {
    directory.parent().filter(|parent| !parent.as_os_str().is_empty())
}

/// Creates a directory that must not exist, and holds it open.
pub fn make(env: &Arc<dyn Env>, directory: &Path) -> Result<Arc<dyn Env>> {
    env.create_dir(directory).map_err(|error| match error.kind() {
        IoErrorKind::AlreadyExists => {
            Error::invalid(format!("a temporary store creates its directory: {} exists", directory.display()))
        }
        _ => io(directory, error),
    })?;
    let gone = || Error::invalid(format!("{} was removed", directory.display()));
    anchor(env, directory)?.ok_or_else(gone)
}

/// Makes the name of the directory durable. REQUIRES: `env` holds it open.
pub fn sync_own_name(env: &dyn Env, directory: &Path) -> Result<()> {
    let parent = directory.join("..");
    env.sync_dir(&parent).map_err(|e| io(&parent, e))
}

/// The names in a directory; `None` if it does not exist.
pub fn list(env: &dyn Env, directory: &Path) -> Result<Option<Vec<String>>> {
    match env.list_dir(directory) {
        Ok(entries) => {
            let regular = [LOCK_FILE, SUPERBLOCK_FILE, WATERMARK_FILE, DATA_FILE, RESERVE_FILE];
            let odd = |name: &str| regular.contains(&name);
            if let Some(entry) = entries.iter().find(|e| odd(&e.name) && e.entry_type != EntryType::File) {
                let path = directory.join(&entry.name);
                return Err(Error::invalid(format!("{} is not a regular file", path.display())));
            }
            Ok(Some(entries.into_iter().map(|entry| entry.name).collect()))
        }
        Err(error) if error.kind() == IoErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == IoErrorKind::NotADirectory => {
            Err(Error::invalid(format!("{} is not a directory", directory.display())))
        }
        Err(error) => Err(io(directory, error)),
    }
}

/// Whether a store creates files of this name.
pub fn is_store_file(name: &str) -> bool {
    let is_numbered = |prefix: &str, suffix: &str| {
        let digits = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix));
        digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let named =
        [LOCK_FILE, CREATING_FILE, UNFINISHED_FILE, DATA_FILE, SUPERBLOCK_FILE, RESERVE_FILE, STATUS_FILE];
    named.contains(&name)
        || [WATERMARK_FILE, "superblock.new", HOT_SET_FILE, NEW_HOT_SET_FILE].contains(&name)
        || is_numbered("superblock.before-repair-", "")
        || is_numbered("manifest-", "")
        || is_numbered("wal-", ".log")
        || is_numbered("wal-", ".log.copy")
        || is_numbered("log-tail-", "")
}

/// Whether a new store may replace the contents of a directory: nothing, or an unfinished store.
pub fn makes_way(names: &[String]) -> bool {
    let is_unfinished = names.iter().any(|name| name == UNFINISHED_FILE);
    let is_empty = names.iter().all(|name| name == LOCK_FILE);
    is_empty || (is_unfinished && names.iter().all(|name| is_store_file(name)))
}

/// Rejects a directory in which no new store may be created.
///
/// Errors: `Invalid`.
pub fn check_makes_way(directory: &Path, names: &[String]) -> Result<()> {
    if makes_way(names) {
        return Ok(());
    }
    let directory = directory.display();
    Err(Error::invalid(format!("{directory} is not empty: a new store needs a directory of its own")))
}

/// The locks of an owner: of the file, which names the owner, and of the directory, which readers lock if the
/// file does not exist.
#[derive(Debug)]
struct OwnerLock {
    file: Box<dyn DirLock>,
    /// `None` if the file system cannot lock directories.
    directory: Option<Box<dyn DirLock>>,
}

impl DirLock for OwnerLock {
    fn abandon(&self) {
        self.file.abandon();
        self.directory.iter().for_each(|lock| lock.abandon());
    }

    fn is_in_place(&self) -> std::io::Result<bool> {
        self.file.is_in_place()
    }
}

/// How a directory is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAs {
    /// Exclusively, for changes; creates the file `LOCK` if it does not exist.
    Creator,
    /// Exclusively, for changes to a store whose file `LOCK` exists.
    Owner,
    /// Shared with other readers; creates nothing.
    Reader,
}

/// Locks a directory through the file `LOCK` in it. If that file does not exist, as on read-only media, a
/// reader locks the directory itself.
///
/// Errors: `Locked` if a conflicting lock is held; `Io`, also for [`LockAs::Owner`] if the file does not
/// exist.
pub fn lock(env: &dyn Env, directory: &Path, lock_as: LockAs) -> Result<Arc<dyn DirLock>> {
    let is_exclusive = lock_as != LockAs::Reader && !planted!("second-open-not-locked");
    let path = directory.join(LOCK_FILE);
    attempt_lock(env, directory, lock_as == LockAs::Creator, is_exclusive).map_err(|error| {
        match error.kind() {
            IoErrorKind::WouldBlock => locked(env, directory, &path),
            _ => io(&path, error),
        }
    })
}

/// Same as [`lock`], with errors of the system: `WouldBlock` if a conflicting lock is held.
pub fn try_lock(env: &dyn Env, directory: &Path, lock_as: LockAs) -> std::io::Result<Arc<dyn DirLock>> {
    attempt_lock(env, directory, lock_as == LockAs::Creator, lock_as != LockAs::Reader)
}

fn attempt_lock(
    env: &dyn Env,
    directory: &Path,
    create: bool,
    exclusive: bool,
) -> std::io::Result<Arc<dyn DirLock>> {
    for _ in 0..LOCK_TRIES {
        let taken = if exclusive {
            Some(lock_as_owner(env, directory, create)?)
        } else {
            lock_as_reader(env, directory, create)?
        };
        // A previous holder may have removed the file between opening and locking, or created one.
        if let Some(lock) = taken
            && lock.is_in_place()?
        {
            return Ok(lock);
        }
    }
    let path = directory.join(LOCK_FILE);
    let message = format!("{} keeps being removed", path.display());
    Err(std::io::Error::other(Error::new(ErrorKind::Locked, message)))
}

/// Locks the directory first: if that fails, no file is created.
fn lock_as_owner(env: &dyn Env, directory: &Path, create: bool) -> std::io::Result<Arc<dyn DirLock>> {
    let of_directory = match env.lock_dir(directory, true) {
        _ if planted!("directory-not-locked") => None,
        Err(error) if error.kind() == IoErrorKind::Unsupported => None,
        outcome => Some(outcome?),
    };
    let file = env.lock(&directory.join(LOCK_FILE), create, true)?;
    Ok(Arc::new(OwnerLock { file, directory: of_directory }))
}

/// Returns `None` if an owner has just created the file.
fn lock_as_reader(
    env: &dyn Env,
    directory: &Path,
    create: bool,
) -> std::io::Result<Option<Arc<dyn DirLock>>> {
    let path = directory.join(LOCK_FILE);
    match env.lock(&path, create, false) {
        Err(error) if error.kind() == IoErrorKind::NotFound => {}
        outcome => return outcome.map(|lock| Some(lock.into())),
    }
    let lock = env.lock_dir(directory, false);
    let is_there = env.list_dir(directory)?.iter().any(|entry| entry.name == LOCK_FILE);
    if is_there { Ok(None) } else { lock.map(|lock| Some(lock.into())) }
}

fn locked(env: &dyn Env, directory: &Path, path: &Path) -> Error {
    let holder = match env.lock_holder(path) {
        Ok(LockHolder::Owner(Some(process))) if !planted!("owner-not-named") => {
            owned_by(process, env.owner_state(path, process))
        }
        Ok(LockHolder::Owner(_)) => "for writing in another process or handle".to_owned(),
        Ok(LockHolder::NoOwner) => "for reading in another process or handle".to_owned(),
        Err(error) if error.kind() == IoErrorKind::NotFound => {
            format!("in another process or handle, which has no file {LOCK_FILE} (any more)")
        }
        Err(_) => "elsewhere".to_owned(),
    };
    Error::new(ErrorKind::Locked, format!("{} is open {holder}", directory.display()))
}

/// Describes an owner in an error text.
fn owned_by(process: u32, state: OwnerState) -> String {
    match state {
        OwnerState::Here => format!("for writing by this process already (process {process})"),
        OwnerState::Elsewhere => format!("for writing in process {process}"),
        OwnerState::Gone => format!(
            "for writing in process {process}, which does not run here: a process that it forked keeps the \
             lock until it ends or drops its handles, or the owner is in another container"
        ),
        OwnerState::Inherited => format!(
            "for writing in process {process}, which does not run any more: this process, a fork of it, \
             keeps the lock until it drops its handles"
        ),
    }
}

/// Removes the files of a store, and the directory if nothing else is in it. REQUIRES: `env` is that of the
/// lock's owner.
pub fn remove_store(env: &dyn Env, directory: &Path) {
    let names = list(env, directory).ok().flatten().unwrap_or_default();
    let is_own = |name: &String| is_store_file(name) || planted!("temporary-removes-all");
    let mut own = names.iter().filter(|name| *name != LOCK_FILE && is_own(name));
    if own.any(|name| env.remove_file(&directory.join(name)).is_err()) {
        return;
    }
    // From here on, neither the lock nor anything it guards exists.
    if let Ok(env) = env.anchor(directory) {
        let _ = env.remove_file(&directory.join(LOCK_FILE));
        let _ = env.remove_dir(directory);
    }
}
