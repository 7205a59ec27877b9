//! The only door to the operating system: files, locks, clock, randomness, threads.
//!
//! Everything above asks an [`Env`], so that the same engine runs on a real disk (`RealEnv`), on a disk
//! in memory that can be crashed at any instant (`MemEnv`) and on one that fails on purpose (`FaultyEnv`).
//!
//! **Invariants**
//! - No other crate of the store touches `std::fs`, a clock, a thread or an entropy source.
//! - A successful [`File::sync`] makes every earlier write, and the length, of that file durable; a
//!   successful [`Env::sync_dir`] does the same for names in a directory. Nothing else does.
//! - After a failed sync nothing is known about the unsynced writes, and a later sync proves nothing.

mod buffer;

use std::{fmt, io, path::Path, sync::Arc, time::Duration};

pub use buffer::AlignedBuffer;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Existing file, reads only.
    Read,
    /// Existing file, reads and writes.
    Write,
    /// The file must not exist; it is created with mode 0600.
    CreateNew,
}

/// Options of [`Env::open`].
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Existing or new, reads or writes.
    pub mode: OpenMode,
    /// Bypass the operating system's page cache. Offsets, lengths and buffer addresses of every read and
    /// write must then be multiples of 4 KiB (see [`AlignedBuffer`]). A file system that cannot do it gets
    /// ordinary I/O instead, without an error.
    pub direct: bool,
}

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

/// One read of a batch.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Where to read, in bytes from the start of the file.
    pub offset: u64,
    /// Filled completely on success.
    pub buffer: &'a mut [u8],
    /// The outcome; `Ok` before the call.
    pub result: io::Result<()>,
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

/// An open file. All calls are positional and may be made from many threads at once.
pub trait File: Send + Sync + fmt::Debug {
    /// Fills `buffer` from `offset`; `UnexpectedEof` if the file is shorter.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Performs many reads at once, as many in flight as the device takes. Each request carries its own result.
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]);
    /// Writes all of `bytes` at `offset`, extending the file if needed. Not durable before [`File::sync`].
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes all earlier writes and the length durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the length is zero.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Truncates or extends (with zeros) to `length` bytes.
    fn set_len(&self, length: u64) -> io::Result<()>;
    /// Reserves space on the device for the range and extends the length to its end; contents unchanged.
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Gives the range back to the file system; it reads as zeros. The length stays. A file system that
    /// cannot do it leaves the range as it is.
    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Bytes that the file occupies on the device.
    fn allocated_bytes(&self) -> io::Result<u64>;
}

/// Held for as long as a directory is in use; dropping it releases the lock.
pub trait DirLock: Send + Sync + fmt::Debug {}

/// A started thread.
pub trait Thread: Send + fmt::Debug {
    /// Waits for its end; `Err` if it panicked.
    fn join(self: Box<Self>) -> Result<(), ()>;
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
    /// Renames a file within one directory, replacing the target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in the directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Locks the file `path` (created if `create`), exclusively or shared with other shared holders;
    /// `WouldBlock` if someone else, in this process or another, holds it in a way that excludes this one.
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
