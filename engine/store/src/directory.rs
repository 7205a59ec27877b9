//! The directory of a store: how it is entered and locked, which files in it are the store's, how they go.
//!
//! Whoever makes, opens, copies, repairs or salvages a store enters its directory once ([`Env::anchor`]) and
//! reaches all files through that, so that a directory that is moved stays this one, and another one at its
//! old path is never touched (decision 0031).
//!
//! **Invariants**
//! - Nothing is written in a directory before its lock is held, and nothing once it was lost.
//! - An owner holds the file `LOCK` and the directory itself, a reader one of them: the directory only where
//!   there is no such file.
//! - Files that no store makes are never removed.

use std::{io::ErrorKind as IoErrorKind, path::Path};

use testudo_base::{Error, ErrorKind, Result, planted, sync::Arc};
use testudo_env::{DirLock, EntryType, Env, LockHolder, OwnerState};
use testudo_storage::{DATA_FILE, SUPERBLOCK_FILE, WATERMARK_FILE};

/// Locked for as long as the store is open; an owner's process id stands in it.
pub const LOCK_FILE: &str = "LOCK";
/// There while a store is being created.
pub const CREATING_FILE: &str = "CREATING";
/// There while a checkpoint or a restore fills the directory; such a directory is no store.
pub const UNFINISHED_FILE: &str = "UNFINISHED";
/// Keeps room for what must still be written when the device is full.
pub const RESERVE_FILE: &str = "reserve";
/// Statistics for humans who look at the store while it is in use; nothing depends on it.
pub const STATUS_FILE: &str = "status";
/// What the caches held, for the next opening; nothing depends on it.
pub const HOT_SET_FILE: &str = "hot-set";
/// There while that is being written.
pub const NEW_HOT_SET_FILE: &str = "hot-set.new";
/// How often a lock is tried whose file is removed by those who held it before.
const LOCK_TRIES: u32 = 16;

pub fn io(what: &Path, error: std::io::Error) -> Error {
    Error::io(what.display().to_string(), error)
}

/// The environment that holds `directory` open; `None` if there is no such directory.
///
/// Errors: `Invalid` if it is something else.
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

/// As [`anchor`], making the directory, and those above it, if there are none; says whether it made the
/// directory. The names of those above are durable, its own is not yet ([`sync_own_name`]).
pub fn anchor_or_make(env: &Arc<dyn Env>, directory: &Path) -> Result<(Arc<dyn Env>, bool)> {
    if let Some(anchored) = anchor(env, directory)? {
        return Ok((anchored, false));
    }
    make_parents(&**env, directory)?;
    let is_made = match env.create_dir(directory) {
        // Somebody else was faster.
        Err(error) if error.kind() == IoErrorKind::AlreadyExists => false,
        outcome => outcome.map(|()| true).map_err(|e| io(directory, e))?,
    };
    let gone = || Error::invalid(format!("{} is a link that leads nowhere", directory.display()));
    Ok((anchor(env, directory)?.ok_or_else(gone)?, is_made))
}

/// Makes the directories above `directory` that do not exist, each with a durable name.
fn make_parents(env: &dyn Env, directory: &Path) -> Result<()> {
    let Some(parent) = parent_of(directory) else { return Ok(()) };
    match env.anchor(parent) {
        Err(error) if error.kind() == IoErrorKind::NotFound => {}
        // What else is wrong with it, who makes something in it is told.
        _ => return Ok(()),
    }
    make_parents(env, parent)?;
    match env.create_dir(parent) {
        // Somebody else was faster, and may not have come as far as to make the name durable.
        Err(error) if error.kind() == IoErrorKind::AlreadyExists => {}
        outcome => outcome.map_err(|e| io(parent, e))?,
    }
    let above = parent_of(parent).unwrap_or(Path::new("."));
    if planted!("parent-name-not-durable") {
        return Ok(());
    }
    env.sync_dir(above).map_err(|e| io(above, e))
}

/// `None` where the path names nothing above: then that is the working directory, or the root.
fn parent_of(directory: &Path) -> Option<&Path> {
    directory.parent().filter(|parent| !parent.as_os_str().is_empty())
}

/// Makes a directory that must not exist, and holds it open.
pub fn make(env: &Arc<dyn Env>, directory: &Path) -> Result<Arc<dyn Env>> {
    env.create_dir(directory).map_err(|error| match error.kind() {
        IoErrorKind::AlreadyExists => {
            Error::invalid(format!("a temporary store makes its directory: {} exists", directory.display()))
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

/// The names in a directory; `None` if there is none.
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

/// Whether a store makes files of this name.
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

/// Whether a new store may take the place of what is in a directory: nothing, or one that was not finished.
pub fn makes_way(names: &[String]) -> bool {
    let is_unfinished = names.iter().any(|name| name == UNFINISHED_FILE);
    let is_empty = names.iter().all(|name| name == LOCK_FILE);
    is_empty || (is_unfinished && names.iter().all(|name| is_store_file(name)))
}

/// Refuses a directory in which no new store may be made.
///
/// Errors: `Invalid`.
pub fn check_makes_way(directory: &Path, names: &[String]) -> Result<()> {
    if makes_way(names) {
        return Ok(());
    }
    let directory = directory.display();
    Err(Error::invalid(format!("{directory} is not empty: a new store needs a directory of its own")))
}

/// The locks of an owner: of the file, which names it, and of the directory, for which readers of a directory
/// without that file ask.
#[derive(Debug)]
struct OwnerLock {
    file: Box<dyn DirLock>,
    /// `None` where the file system locks no directories.
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

/// Locks a directory by the file `LOCK` in it. A directory without that file, as on a medium for reading, is
/// locked by itself, if `create` does not allow to make it: readers never make anything.
///
/// Errors: `Locked` if somebody else holds it in a way that excludes this one; `Io`, also for an owner
/// without `create` where there is no such file.
pub fn lock(env: &dyn Env, directory: &Path, create: bool, exclusive: bool) -> Result<Arc<dyn DirLock>> {
    let is_exclusive = exclusive && !planted!("second-open-not-locked");
    let path = directory.join(LOCK_FILE);
    try_lock(env, directory, create, is_exclusive).map_err(|error| match error.kind() {
        IoErrorKind::WouldBlock => locked(env, directory, &path),
        _ => io(&path, error),
    })
}

/// As [`lock`], with the errors of the system: `WouldBlock` if somebody else holds it.
pub fn try_lock(
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
        // Whoever held it before may have removed the file between its opening and its locking, or made one.
        if let Some(lock) = taken
            && lock.is_in_place()?
        {
            return Ok(lock);
        }
    }
    let path = directory.join(LOCK_FILE);
    let message = format!("{} is removed again and again", path.display());
    Err(std::io::Error::other(Error::new(ErrorKind::Locked, message)))
}

/// The directory first: where it is refused no file is made.
fn lock_as_owner(env: &dyn Env, directory: &Path, create: bool) -> std::io::Result<Arc<dyn DirLock>> {
    let of_directory = match env.lock_dir(directory, true) {
        _ if planted!("directory-not-locked") => None,
        Err(error) if error.kind() == IoErrorKind::Unsupported => None,
        outcome => Some(outcome?),
    };
    let file = env.lock(&directory.join(LOCK_FILE), create, true)?;
    Ok(Arc::new(OwnerLock { file, directory: of_directory }))
}

/// `None` if an owner has just made the file.
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

/// What is said of an owner.
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

/// Removes the files of a store and the directory, unless it holds anything else. REQUIRES: `env` is that of
/// the lock's owner.
pub fn remove_store(env: &dyn Env, directory: &Path) {
    let names = list(env, directory).ok().flatten().unwrap_or_default();
    let is_own = |name: &String| is_store_file(name) || planted!("temporary-removes-all");
    let mut own = names.iter().filter(|name| *name != LOCK_FILE && is_own(name));
    if own.any(|name| env.remove_file(&directory.join(name)).is_err()) {
        return;
    }
    // From here on there is no lock, and nothing that it guards.
    if let Ok(env) = env.anchor(directory) {
        let _ = env.remove_file(&directory.join(LOCK_FILE));
        let _ = env.remove_dir(directory);
    }
}
