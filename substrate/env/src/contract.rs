//! What the store asks of an operating system: [`Env`] and the few types around it.
//!
//! **Invariants**
//! - No call follows a symbolic link in the last component of a path.
//! - Every call may be made from many threads at once.

use std::{fmt, io, path::Path, sync::Arc, time::Duration};

use crate::{File, OpenOptions};

/// What a directory entry is, symbolic links not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else: a link, a FIFO, a device.
    Other,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name within the directory. Names that are not UTF-8 are listed lossily.
    pub name: String,
    /// What it is.
    pub entry_type: EntryType,
}

/// How background work is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// On threads of their own; `cores` can run at once.
    Threads {
        /// Number of threads that the machine runs at once.
        cores: usize,
    },
    /// Only when the owner steps it, on the calling thread: one seed, one run.
    Stepped,
}

/// Held for as long as a directory is in use; dropping it releases the lock.
pub trait DirLock: Send + Sync + fmt::Debug {}

/// A joined thread had panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPanicked;

impl fmt::Display for ThreadPanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a thread panicked")
    }
}

impl std::error::Error for ThreadPanicked {}

/// A started thread. Dropping it lets the thread run on.
pub trait Thread: Send + fmt::Debug {
    /// Waits for its end; `Err` if it panicked.
    fn join(self: Box<Self>) -> Result<(), ThreadPanicked>;
}

/// The operating system, or a stand-in.
///
/// Paths are used as given. No call follows a symbolic link in the last component of a path.
pub trait Env: Send + Sync + fmt::Debug + 'static {
    /// Opens or creates a regular file; `InvalidInput` if the path is anything else (a link, a FIFO).
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>>;
    /// Creates a directory with mode 0700; its parent must exist. `AlreadyExists` if the name is taken.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, sorted.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Renames a file within one directory, replacing the target; `InvalidInput` across directories.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in the directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Locks the file `path` (created if `create`), exclusively or shared with other shared holders;
    /// `WouldBlock` if someone else, in this process or another, holds it in a way that excludes this one.
    /// Without `create`, permission to read the file is enough.
    fn lock(&self, path: &Path, create: bool, exclusive: bool) -> io::Result<Box<dyn DirLock>>;
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Time since 1970; may jump. For people only, never for correctness.
    fn wall_clock(&self) -> Duration;
    /// A fresh random number.
    fn random_u64(&self) -> u64;
    /// How background work is run.
    fn execution(&self) -> Execution;
    /// Starts a thread. `Unsupported` where execution is stepped.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Thread>>;
    /// Lets the calling thread rest (in stepped execution: moves the clock).
    fn sleep(&self, duration: Duration);
    /// Free bytes of the file system that holds `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
}

/// `InvalidInput` unless both paths name entries of the same directory.
pub(crate) fn require_same_dir(from: &Path, to: &Path) -> io::Result<()> {
    if from.parent() == to.parent() {
        return Ok(());
    }
    let message = format!("rename from {} to another directory, {}", from.display(), to.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}
