//! What the store asks of an operating system: [`Env`] and the few types around it.
//!
//! **Invariants**
//! - No call but `anchor` follows a symbolic link in the last component of a path.
//! - Every call may be made from many threads at once.

use std::{fmt, io, path::Path, ptr::NonNull, sync::Arc, time::Duration};

use crate::{File, OpenOptions, Process};

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

/// Who holds a lock that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// Somebody, alone: the process, if it could say so.
    Owner(Option<u32>),
    /// Nobody alone: several may share it, or nobody has it any more.
    NoOwner,
}

/// What is known of the process that a lock file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// It is this process, which has the file open.
    Here,
    /// It is another one, as far as this machine can tell.
    Elsewhere,
    /// No process of that number runs here: one that was forked from it may have the lock still, or the
    /// number is one of another container.
    Gone,
    /// The same, and this process has inherited the lock.
    Inherited,
}

/// Held for as long as a directory is in use. Dropping it releases the lock, in the process that took it; in
/// one that was forked from that it only closes the copy there.
pub trait DirLock: Send + Sync + fmt::Debug {
    /// In a forked child closes the copy of the lock, even if others hold references to this; in the owner it
    /// does nothing.
    fn abandon(&self);
    /// Whether the name that was locked still is that of the locked file. If not, someone removed or replaced
    /// it, and others may hold a lock of the same name.
    fn is_in_place(&self) -> io::Result<bool>;
}

/// A file of fixed length that is mapped shared: bytes stored in it are in the operating system at once, so
/// that they survive the end of the process, and reach the device when the system writes them back.
pub trait MappedFile: Send + Sync + fmt::Debug {
    /// Address of the first byte; a multiple of the page, valid as long as this value lives. The mapping has
    /// no other user in this process.
    fn start(&self) -> NonNull<u8>;
    /// Its length in bytes, a multiple of the page.
    fn len(&self) -> usize;
    /// Whether it has no bytes, which never happens.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

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
/// Paths are used as given. No call but [`Env::anchor`] follows a symbolic link in the last component of a
/// path.
pub trait Env: Send + Sync + fmt::Debug + 'static {
    /// This environment with `directory` opened once: every path that is `directory`, or begins with it, goes
    /// through its descriptor from then on, wherever the directory is moved to, and whatever comes to its old
    /// path or becomes of the working directory. `directory` itself may be a symbolic link, which is followed
    /// now and never again. All other paths are as before. `NotFound` or `NotADirectory` if there is none.
    ///
    /// There, [`Env::remove_dir`] of `directory` removes it only if its name still is that of the directory.
    fn anchor(&self, directory: &Path) -> io::Result<Arc<dyn Env>>;
    /// Opens or creates a regular file; `InvalidInput` if the path is anything else (a link, a FIFO).
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>>;
    /// A new file without a name, for reading and writing: its content is gone with the last handle.
    /// Direct, where the file system can.
    fn temporary_file(&self) -> io::Result<Arc<dyn File>>;
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
    /// The process that this environment belongs to: the one that anchored it, or the one that runs.
    fn process(&self) -> Process;
    /// Locks the file `path` (created if `create`), exclusively or shared with other shared holders;
    /// `WouldBlock` if someone else, in this process or another, holds it in a way that excludes this one.
    /// Without `create`, permission to read the file is enough. Who holds it exclusively leaves the number of
    /// its process in the file, if that can be written and holds nothing else, and takes it out in the end.
    fn lock(&self, path: &Path, create: bool, exclusive: bool) -> io::Result<Box<dyn DirLock>>;
    /// Who holds the lock `path`, for humans who were refused: it may have changed hands since.
    fn lock_holder(&self, path: &Path) -> io::Result<LockHolder>;
    /// Locks the directory itself, for those who cannot make a file in it, and for those whom they exclude.
    /// `Unsupported` where the file system cannot do that; otherwise as [`Env::lock`].
    fn lock_dir(&self, directory: &Path, exclusive: bool) -> io::Result<Box<dyn DirLock>>;
    /// What is known of `process`, which the lock file `path` names.
    fn owner_state(&self, path: &Path, process: u32) -> OwnerState;
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Time since 1970; may jump. Human-readable only, never for correctness.
    fn wall_clock(&self) -> Duration;
    /// A fresh random number.
    fn random_u64(&self) -> u64;
    /// How background work is run.
    fn execution(&self) -> Execution;
    /// Starts a thread. `Unsupported` where execution is stepped.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Thread>>;
    /// Lets the calling thread rest (in stepped execution: moves the clock).
    fn sleep(&self, duration: Duration);
    /// Creates the file `path`, `bytes` zeros for which the device has space, and maps it. A child process
    /// does not inherit the mapping. `AlreadyExists` if there is such a file; `Unsupported` on file systems
    /// where storing into space that is allocated can fail later, which would end the process.
    fn create_mapped(&self, path: &Path, bytes: usize) -> io::Result<Arc<dyn MappedFile>>;
    /// Identifies this boot of the machine: different after every restart, equal in all processes between
    /// two. `None` if the system does not tell.
    fn boot_id(&self) -> Option<u128>;
    /// Free bytes of the file system that holds `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
}

/// What a lock file says of its owner, a decimal number and a line feed, is shorter than this.
pub(crate) const OWNER_BYTES_MAX: usize = 16;

pub(crate) fn encode_owner(process: u32) -> String {
    format!("{process}\n")
}

/// The process that the bytes of a lock file name, if they are what an owner writes.
pub(crate) fn decode_owner(bytes: &[u8]) -> Option<u32> {
    std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?.parse().ok()
}

/// Whether an owner may write its number over the bytes of a lock file: they are no one's work.
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
