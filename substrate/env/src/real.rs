//! The real machine: files through system calls, clocks, entropy, threads.
//!
//! **Invariants**
//! - No link in the last component of a path is followed, except by `anchor`; directories are created with
//!   mode 0700, files with 0600.
//! - A lock is a flock on a separate descriptor, so it also excludes other holders in this process. The
//!   kernel releases it when the last process with a copy of the descriptor ends.
//! - A forked child changes nothing through handles of its parent: only the process that took a lock releases
//!   it; files and anchored directories refuse every call. An environment that is not anchored holds nothing
//!   open and works in the child as well.

pub(crate) mod file;
pub(crate) mod fork_page;
pub(crate) mod lock;
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
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
    io::{Errno, retry_on_intr},
    rand::GetRandomFlags,
};
use testudo_base::errno::lasting;

use crate::{
    DirEntry, DirLock, EntryType, Env, Execution, File, LockHolder, MappedFile, OpenMode, OpenOptions,
    OwnerState, Process, Thread,
    contract::require_same_dir,
    real::{
        file::RealFile,
        lock::FlockGuard,
        mapped_file::{SharedMapping, read_boot_id},
        read_backend::ReadBackend,
    },
    wrappers::anchor::{self, Anchor, Place},
};

/// The real machine.
#[derive(Debug)]
pub struct RealEnv {
    reads: Arc<ReadBackend>,
    started: Instant,
    anchor: Option<Anchor>,
    /// The process that created it.
    process: Process,
}

/// Options of a [`RealEnv`] that differs from the default.
#[derive(Clone, Copy, Debug)]
pub struct RealEnvBuilder {
    allow_ring: bool,
}

impl RealEnvBuilder {
    /// Disables io_uring: batches of reads use threads even where it is available.
    #[must_use]
    pub fn without_io_uring(mut self) -> Self {
        self.allow_ring = false;
        self
    }

    /// Creates the environment.
    pub fn build(self) -> Arc<RealEnv> {
        let reads = Arc::new(ReadBackend::new(self.allow_ring));
        Arc::new(RealEnv { reads, started: read_monotonic(), anchor: None, process: Process::current() })
    }
}

impl RealEnv {
    /// The machine with the fastest available way to read.
    pub fn new() -> Arc<Self> {
        Self::builder().build()
    }

    /// Starts building an environment with options.
    pub fn builder() -> RealEnvBuilder {
        RealEnvBuilder { allow_ring: true }
    }

    /// Name of the backend for batches: `"io_uring"` or `"threads"`.
    pub fn io_backend(&self) -> &'static str {
        self.reads.name()
    }

    fn place<'p>(&'p self, path: &'p Path) -> Place<'p> {
        anchor::place(self.anchor.as_ref(), path)
    }

    /// The read backend for files opened now. A child cannot use its parent's.
    fn reads(&self) -> Arc<ReadBackend> {
        if self.process.is_current() { Arc::clone(&self.reads) } else { self.reads.for_child() }
    }

    /// Fails if the directory was opened by a process from which this one was forked.
    fn check_process(&self) -> io::Result<()> {
        if self.anchor.is_some() { self.process.check().map_err(io::Error::other) } else { Ok(()) }
    }
}

impl Env for RealEnv {
    fn anchor(&self, directory: &Path) -> io::Result<Arc<dyn Env>> {
        let anchor = Some(Anchor::open(self.place(directory))?);
        Ok(Arc::new(Self { reads: self.reads(), started: self.started, anchor, process: Process::current() }))
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        if options.mode != OpenMode::Read {
            self.check_process()?;
        }
        Ok(Arc::new(RealFile::open(self.place(path), options, self.reads())?))
    }

    fn temporary_file(&self) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile::temporary(self.random_u64(), self.reads())?))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.check_process()?;
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
        self.check_process()?;
        require_same_dir(from, to)?;
        let (from, to) = (self.place(from), self.place(to));
        Ok(retry_on_intr(|| rustix::fs::renameat(from.directory, from.name, to.directory, to.name))?)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.check_process()?;
        let place = self.place(path);
        Ok(retry_on_intr(|| rustix::fs::unlinkat(place.directory, place.name, AtFlags::empty()))?)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.check_process()?;
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

    fn process(&self) -> Process {
        if self.anchor.is_some() { self.process.clone() } else { Process::current() }
    }

    fn lock(&self, path: &Path, create: bool, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        self.check_process()?;
        Ok(Box::new(FlockGuard::lock_file(self.anchor.as_ref(), path, create, exclusive)?))
    }

    fn lock_dir(&self, directory: &Path, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        self.check_process()?;
        Ok(Box::new(FlockGuard::lock_dir(self.anchor.as_ref(), directory, exclusive)?))
    }

    fn lock_holder(&self, path: &Path) -> io::Result<LockHolder> {
        lock::holder(self.place(path))
    }

    fn owner_state(&self, path: &Path, process: u32) -> OwnerState {
        lock::owner_state(self.place(path), process)
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
            // Without the system call, use the hasher's keys, which come from the system's entropy as well.
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
        self.check_process()?;
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

pub(crate) fn open_dir(place: Place<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| rustix::fs::openat(place.directory, place.name, flags, Mode::empty()))?)
}

#[expect(clippy::disallowed_methods, reason = "the only access to the real clock")]
pub(crate) fn read_monotonic() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the only access to the real clock")]
pub(crate) fn read_wall_clock() -> SystemTime {
    SystemTime::now()
}
