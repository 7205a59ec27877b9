//! The machine itself: files through system calls, clocks, entropy, threads.
//!
//! **Invariants**
//! - No link in the last component of a path is followed, but by `anchor`; directories are made with mode
//!   0700, files 0600.
//! - A lock is a flock on a descriptor of its own, so it excludes other holders in this process as well, and
//!   the kernel drops it when the process dies.

pub(crate) mod file;
pub(crate) mod mapped_file;
pub(crate) mod plain_io;
pub(crate) mod read_backend;
pub(crate) mod read_threads;
pub(crate) mod thread;
#[cfg(all(feature = "io-uring", target_os = "linux"))]
pub(crate) mod uring;

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat},
    io::{Errno, retry_on_intr},
    rand::GetRandomFlags,
};
use testudo_base::errno::lasting;

use crate::{
    DirEntry, DirLock, EntryType, Env, Execution, File, LockHolder, MappedFile, OpenOptions, Thread,
    contract::{OWNER_BYTES_MAX, decode_owner, encode_owner, may_hold_owner, require_same_dir},
    real::{
        file::{RealFile, open_regular},
        mapped_file::{SharedMapping, read_boot_id},
        read_backend::ReadBackend,
    },
    wrappers::anchor::{self, Anchor, Place, is_same},
};

/// The real machine.
#[derive(Debug)]
pub struct RealEnv {
    reads: Arc<ReadBackend>,
    started: Instant,
    anchor: Option<Anchor>,
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
        Arc::new(RealEnv { reads, started: read_monotonic(), anchor: None })
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

    fn place<'p>(&'p self, path: &'p Path) -> Place<'p> {
        anchor::place(self.anchor.as_ref(), path)
    }

    fn flock(&self, path: &Path, create: bool, exclusive: bool) -> io::Result<FlockGuard> {
        let descriptor = open_lock_file(self.place(path), create, exclusive)?;
        try_lock(&descriptor, exclusive)?;
        let anchor = self.anchor.clone();
        let names_owner = exclusive && write_owner(&descriptor).unwrap_or(false);
        let locked = rustix::fs::fstat(&descriptor)?;
        Ok(FlockGuard { descriptor, locked, anchor, path: path.to_owned(), names_owner })
    }
}

impl Env for RealEnv {
    fn anchor(&self, directory: &Path) -> io::Result<Arc<dyn Env>> {
        let anchor = Some(Anchor::open(self.place(directory))?);
        Ok(Arc::new(Self { reads: Arc::clone(&self.reads), started: self.started, anchor }))
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile::open(self.place(path), options, Arc::clone(&self.reads))?))
    }

    fn temporary_file(&self) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile::temporary(self.random_u64(), Arc::clone(&self.reads))?))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let place = self.place(path);
        Ok(retry_on_intr(|| rustix::fs::mkdirat(place.directory, place.name, Mode::RWXU))?)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let directory = open_dir(self.place(path))?;
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
        let (from, to) = (self.place(from), self.place(to));
        Ok(retry_on_intr(|| rustix::fs::renameat(from.directory, from.name, to.directory, to.name))?)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let place = self.place(path);
        Ok(retry_on_intr(|| rustix::fs::unlinkat(place.directory, place.name, AtFlags::empty()))?)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        if let Some(anchor) = self.anchor.as_ref().filter(|anchor| anchor.is_at(path)) {
            return anchor.remove_dir();
        }
        let place = self.place(path);
        Ok(retry_on_intr(|| rustix::fs::unlinkat(place.directory, place.name, AtFlags::REMOVEDIR))?)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let directory = open_dir(self.place(path))?;
        retry_on_intr(|| rustix::fs::fsync(&directory)).map_err(|error| lasting(error.into()))
    }

    fn lock(&self, path: &Path, create: bool, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        Ok(Box::new(self.flock(path, create, exclusive)?))
    }

    fn lock_holder(&self, path: &Path) -> io::Result<LockHolder> {
        let descriptor = open_regular(self.place(path), OFlags::RDONLY)?;
        match try_lock(&descriptor, false) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Readers hold it, or nobody does.
            outcome => return outcome.map(|()| LockHolder::NoOwner),
        }
        let mut bytes = [0; OWNER_BYTES_MAX];
        Ok(LockHolder::Owner(decode_owner(read_owner(&descriptor, &mut bytes)?)))
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

    fn create_mapped(&self, path: &Path, bytes: usize) -> io::Result<Arc<dyn MappedFile>> {
        Ok(Arc::new(SharedMapping::create(self.place(path), bytes)?))
    }

    fn boot_id(&self) -> Option<u128> {
        read_boot_id()
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = self.place(path);
        let open = || rustix::fs::openat(place.directory, place.name, flags, Mode::empty());
        let descriptor = retry_on_intr(open)?;
        let status = retry_on_intr(|| rustix::fs::fstatvfs(&descriptor))?;
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }
}

/// Releases the lock by closing the descriptor.
#[derive(Debug)]
struct FlockGuard {
    descriptor: OwnedFd,
    /// What the descriptor is of; as long as it is open no other file has its number.
    locked: Stat,
    anchor: Option<Anchor>,
    path: PathBuf,
    /// Whether the file has the number of this process.
    names_owner: bool,
}

fn read_owner<'b>(descriptor: &OwnedFd, bytes: &'b mut [u8; OWNER_BYTES_MAX]) -> io::Result<&'b [u8]> {
    let length = retry_on_intr(|| rustix::io::pread(descriptor, &mut *bytes, 0))?;
    Ok(&bytes[..length])
}

/// Writes the number of this process, for humans who are refused; `false` if the file holds something else.
fn write_owner(descriptor: &OwnedFd) -> io::Result<bool> {
    if !may_hold_owner(read_owner(descriptor, &mut [0; OWNER_BYTES_MAX])?) {
        return Ok(false);
    }
    rustix::fs::ftruncate(descriptor, 0)?;
    rustix::io::pwrite(descriptor, encode_owner(std::process::id()).as_bytes(), 0)?;
    Ok(true)
}

impl DirLock for FlockGuard {
    fn is_in_place(&self) -> io::Result<bool> {
        let place = anchor::place(self.anchor.as_ref(), &self.path);
        match rustix::fs::statat(place.directory, place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok(is_same(&named, &self.locked)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for FlockGuard {
    fn drop(&mut self) {
        if self.names_owner {
            let _ = rustix::fs::ftruncate(&self.descriptor, 0);
        }
        // Closing is not enough: a process that is being started has copies of all descriptors for a moment.
        let _ = rustix::fs::flock(&self.descriptor, FlockOperation::Unlock);
    }
}

fn try_lock(descriptor: &OwnedFd, exclusive: bool) -> io::Result<()> {
    let operation = if exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    Ok(retry_on_intr(|| rustix::fs::flock(descriptor, operation))?)
}

/// Network file systems want a writable descriptor for an exclusive lock, so that is tried first; elsewhere a
/// readable one is enough.
fn open_lock_file(place: Place<'_>, create: bool, exclusive: bool) -> io::Result<OwnedFd> {
    if create {
        return open_regular(place, OFlags::RDWR | OFlags::CREATE);
    }
    if exclusive {
        match open_regular(place, OFlags::RDWR) {
            Err(error) if is_refusal(error.kind()) => {}
            result => return result,
        }
    }
    open_regular(place, OFlags::RDONLY)
}

fn is_refusal(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn open_dir(place: Place<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| rustix::fs::openat(place.directory, place.name, flags, Mode::empty()))?)
}

#[expect(clippy::disallowed_methods, reason = "this is the clock that everything else asks")]
pub(crate) fn read_monotonic() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "this is the clock that everything else asks")]
pub(crate) fn read_wall_clock() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests;
