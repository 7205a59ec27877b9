//! The machine itself: files through system calls, clocks, entropy, threads.
//!
//! **Invariants**
//! - No link in the last component of a path is followed; directories are made with mode 0700, files 0600.
//! - A lock is a flock on a descriptor of its own, so it excludes other holders in this process as well, and
//!   the kernel drops it when the process dies.

use std::{
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags},
    io::{Errno, retry_on_intr},
    rand::GetRandomFlags,
};

use crate::{
    DirEntry, DirLock, EntryType, Env, Execution, File, OpenOptions, Thread,
    contract::require_same_dir,
    read_backend::ReadBackend,
    real_file::{RealFile, open_regular},
    thread,
};

/// The real machine.
#[derive(Debug)]
pub struct RealEnv {
    reads: Arc<ReadBackend>,
    started: Instant,
}

/// Options of a [`RealEnv`] that differs from the default.
#[derive(Clone, Copy, Debug)]
pub struct RealEnvBuilder {
    allow_ring: bool,
}

impl RealEnvBuilder {
    /// Batches of reads go through threads even where io_uring is there.
    #[must_use]
    pub fn without_io_uring(mut self) -> Self {
        self.allow_ring = false;
        self
    }

    /// The environment.
    pub fn build(self) -> Arc<RealEnv> {
        let reads = Arc::new(ReadBackend::new(self.allow_ring));
        Arc::new(RealEnv { reads, started: read_monotonic() })
    }
}

impl RealEnv {
    /// The machine with the fastest way to read that it offers.
    pub fn new() -> Arc<Self> {
        Self::builder().build()
    }

    /// Options first.
    pub fn builder() -> RealEnvBuilder {
        RealEnvBuilder { allow_ring: true }
    }

    /// How batches are read: `"io_uring"` or `"threads"`.
    pub fn io_backend(&self) -> &'static str {
        self.reads.name()
    }
}

impl Env for RealEnv {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile::open(path, options, Arc::clone(&self.reads))?))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::mkdir(path, Mode::RWXU)?)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let directory = open_dir(path, OFlags::RDONLY)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let entry_type = match entry.file_type() {
                FileType::Unknown => match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(status) => FileType::from_raw_mode(status.st_mode),
                    // Removed since it was listed.
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(error.into()),
                },
                known => known,
            };
            entries.push(DirEntry {
                name: name.to_string_lossy().into_owned(),
                entry_type: match entry_type {
                    FileType::RegularFile => EntryType::File,
                    FileType::Directory => EntryType::Directory,
                    _ => EntryType::Other,
                },
            });
        }
        entries.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        Ok(entries)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        require_same_dir(from, to)?;
        Ok(rustix::fs::rename(from, to)?)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::unlink(path)?)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::rmdir(path)?)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let directory = open_dir(path, OFlags::RDONLY)?;
        Ok(retry_on_intr(|| rustix::fs::fsync(&directory))?)
    }

    fn lock(&self, path: &Path, create: bool, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        let descriptor = open_lock_file(path, create, exclusive)?;
        let operation = if exclusive {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        retry_on_intr(|| rustix::fs::flock(&descriptor, operation))?;
        Ok(Box::new(FlockGuard { _descriptor: descriptor }))
    }

    fn monotonic(&self) -> Duration {
        read_monotonic().duration_since(self.started)
    }

    fn wall_clock(&self) -> Duration {
        read_wall_clock().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        match retry_on_intr(|| rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())) {
            Ok(count) if count == bytes.len() => u64::from_le_bytes(bytes),
            // Kernels without the call: the hasher's keys come from the system's entropy as well.
            _ => std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), self.monotonic()),
        }
    }

    fn execution(&self) -> Execution {
        Execution::Threads { cores: thread::core_count() }
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Thread>> {
        thread::spawn(name, body)
    }

    fn sleep(&self, duration: Duration) {
        thread::sleep(duration);
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty())?;
        let status = rustix::fs::fstatvfs(&descriptor)?;
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }
}

/// Releases the lock by closing the descriptor.
#[derive(Debug)]
struct FlockGuard {
    _descriptor: OwnedFd,
}

impl DirLock for FlockGuard {}

/// Network file systems want a writable descriptor for an exclusive lock, so that is tried first; elsewhere a
/// readable one is enough.
fn open_lock_file(path: &Path, create: bool, exclusive: bool) -> io::Result<OwnedFd> {
    if create {
        return open_regular(path, OFlags::RDWR | OFlags::CREATE);
    }
    if exclusive {
        match open_regular(path, OFlags::RDWR) {
            Err(error) if is_refusal(error.kind()) => {}
            result => return result,
        }
    }
    open_regular(path, OFlags::RDONLY)
}

fn is_refusal(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn open_dir(path: &Path, access: OFlags) -> io::Result<OwnedFd> {
    let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

#[expect(clippy::disallowed_methods, reason = "this is the clock that everything else asks")]
pub(crate) fn read_monotonic() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "this is the clock that everything else asks")]
pub(crate) fn read_wall_clock() -> SystemTime {
    SystemTime::now()
}
