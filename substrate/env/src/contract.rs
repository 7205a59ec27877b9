//! The interface to the operating system: [`Env`] and the few types around it.
//!
//! **Invariants**
//! - No call except `anchor` follows a symbolic link in the last component of a path.
//! - Every call may be made from many threads concurrently.

use std::{fmt, io, path::Path, sync::Arc, time::Duration};

use crate::{File, MappedFile, OpenOptions, Process};

/// Type of a directory entry, without following symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else: a link, a FIFO, a device.
    Other,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name within the directory. Names that are not UTF-8 are listed lossily.
    pub name: String,
    /// Type of the entry.
    pub entry_type: EntryType,
}

/// How background work is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// On separate threads.
    Threads {
        /// Number of threads that the machine can run in parallel.
        cores: usize,
    },
    /// Only when the owner steps it, on the calling thread: the same seed gives the same run.
    Stepped,
}

/// Holder of a lock that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// An exclusive owner, with its process id if it could be determined.
    Owner(Option<u32>),
    /// No exclusive owner: the lock is shared, or no longer held.
    NoOwner,
}

/// State of the process that a lock file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// It is this process, which has the file open.
    Here,
    /// It is another process, as far as this machine can tell.
    Elsewhere,
    /// No process with this id runs here: a fork of it may still hold the lock, or the id is from another
    /// container.
    Gone,
    /// Like `Gone`, and this process has inherited the lock.
    Inherited,
}

/// Held while a directory is in use. Dropping it in the process that took the lock releases the lock; in a
/// forked child it only closes the child's copy.
pub trait DirLock: Send + Sync + fmt::Debug {
    /// Closes the copy of the lock in a forked child, even if other references to this exist; does nothing in
    /// the owner.
    fn abandon(&self);
    /// Whether the locked name still refers to the locked file. If not, the file was removed or replaced, and
    /// other processes may hold a lock of the same name.
    fn is_in_place(&self) -> io::Result<bool>;
}

/// A joined thread panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPanicked;

impl fmt::Display for ThreadPanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a thread panicked")
    }
}

impl std::error::Error for ThreadPanicked {}

/// A started thread. Dropping it detaches the thread.
pub trait Thread: Send + fmt::Debug {
    /// Waits for the thread to end; `Err` if it panicked.
    fn join(self: Box<Self>) -> Result<(), ThreadPanicked>;
}

/// The operating system, or a substitute.
///
/// Paths are used as given. No call except [`Env::anchor`] follows a symbolic link in the last component of a
/// path.
pub trait Env: Send + Sync + fmt::Debug + 'static {
    /// Returns this environment with `directory` opened once. Every path that is `directory` or begins with
    /// it then goes through its descriptor. A moved directory, another one at the old path, or a changed
    /// working directory make no difference. `directory` itself may be a symbolic link, which is followed
    /// once, now. All other paths are unchanged. `NotFound` or `NotADirectory` if there is no such directory.
    ///
    /// In the result, [`Env::remove_dir`] of `directory` removes it only if its name still refers to it.
    fn anchor(&self, directory: &Path) -> io::Result<Arc<dyn Env>>;
    /// Opens or creates a regular file; `InvalidInput` if the path is anything else (a link, a FIFO).
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>>;
    /// Creates an unnamed file for reading and writing: its contents are discarded with the last handle. Uses
    /// direct I/O if the file system supports it.
    fn temporary_file(&self) -> io::Result<Arc<dyn File>>;
    /// Creates a directory with mode 0700; its parent must exist. `AlreadyExists` if the name is taken.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Returns the names in a directory, sorted.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Renames a file within one directory, replacing the target; `InvalidInput` across directories.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in the directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Returns the process to which this environment belongs: the one that anchored it, or the current one.
    fn process(&self) -> Process;
    /// Locks the file `path` (created if `create`), exclusively or shared with other shared holders.
    /// `WouldBlock` if a conflicting lock is held, in this process or another. Without `create`, permission
    /// to read the file is enough. An exclusive holder writes its process id to the file and removes it at
    /// the end, if the file is writable and holds nothing else.
    fn lock(&self, path: &Path, create: bool, exclusive: bool) -> io::Result<Box<dyn DirLock>>;
    /// Returns the holder of the lock `path`, for messages about a refused lock: it may have changed since.
    fn lock_holder(&self, path: &Path) -> io::Result<LockHolder>;
    /// Locks the directory itself, for processes that cannot create a file in it, and for those that must
    /// exclude them. `Unsupported` where the file system cannot lock directories; otherwise as [`Env::lock`].
    fn lock_dir(&self, directory: &Path, exclusive: bool) -> io::Result<Box<dyn DirLock>>;
    /// Returns the state of `process`, as named by the lock file `path`.
    fn owner_state(&self, path: &Path, process: u32) -> OwnerState;
    /// Time since a fixed moment; never decreases.
    fn monotonic(&self) -> Duration;
    /// Time since 1970; may jump. Only for display, never for correctness.
    fn wall_clock(&self) -> Duration;
    /// Returns a fresh random number.
    fn random_u64(&self) -> u64;
    /// How background work is run.
    fn execution(&self) -> Execution;
    /// Starts a thread. `Unsupported` in stepped execution.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Thread>>;
    /// Suspends the calling thread (in stepped execution: advances the clock).
    fn sleep(&self, duration: Duration);
    /// Creates the file `path`, with `bytes` zeros and allocated space on the device, and maps it. Child
    /// processes do not inherit the mapping. `AlreadyExists` if the file exists. `Unsupported` on file
    /// systems where a store into allocated space can fail later, which would end the process.
    fn create_mapped(&self, path: &Path, bytes: usize) -> io::Result<Arc<dyn MappedFile>>;
    /// Identifies this boot of the machine: different after every restart, equal in all processes between two
    /// restarts. `None` if the system does not provide it.
    fn boot_id(&self) -> Option<u128>;
    /// Free bytes of the file system that holds `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
}

/// Exclusive upper bound on the bytes of an owner in a lock file: a decimal number and a line feed.
pub(crate) const OWNER_BYTES_MAX: usize = 16;

pub(crate) fn encode_owner(process: u32) -> String {
    format!("{process}\n")
}

/// Parses the process id in a lock file; `None` if an owner did not write it.
pub(crate) fn decode_owner(bytes: &[u8]) -> Option<u32> {
    std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?.parse().ok()
}

/// Whether an owner may overwrite the bytes of a lock file: they are zeros or an earlier owner's number.
pub(crate) fn may_hold_owner(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0) || decode_owner(bytes).is_some()
}

/// `InvalidInput` unless both paths name entries of the same directory.
pub(crate) fn require_same_dir(from: &Path, to: &Path) -> io::Result<()> {
    if from.parent() == to.parent() {
        return Ok(());
    }
    let message = format!("rename from {} to another directory, {}", from.display(), to.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}
