//! An environment with injected faults: the n-th call of a class returns a chosen error.
//!
//! **Invariants**
//! - A failed call does nothing, except that a failed write may have written its first part if the plan says
//!   so. A failed sync syncs nothing.
//! - Equal sequences of calls under equal plans fail at the same call.

use std::{io, path::Path};

use rustix::io::Errno;
use testudo_base::{
    PAGE_SIZE,
    errno::lasting,
    sync::{Arc, Mutex},
};

use crate::{
    AlignedBuffer, DirEntry, DirLock, Env, File, LockHolder, MappedFile, OpenMode, OpenOptions, PendingRead,
    ReadRequest, Thread, pending_read::FinishedRead,
};

/// Classes of calls that are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoClass {
    /// Reads; each request of a batch counts.
    Read,
    /// Writes.
    Write,
    /// Syncs of files.
    Sync,
    /// Syncs of directories.
    SyncDir,
    /// Opens of existing files.
    Open,
    /// Opens that create, and creations of directories.
    Create,
    /// Renames.
    Rename,
    /// Removals of files and directories.
    Remove,
    /// Listings of directories.
    List,
    /// Changes of length.
    SetLen,
    /// Reservations of space.
    Allocate,
    /// Holes.
    PunchHole,
    /// Queries of lengths and of free or occupied space.
    Metadata,
    /// Locks.
    Lock,
    /// Starts of threads.
    Spawn,
}

impl IoClass {
    /// All classes.
    pub const ALL: [Self; 15] = [
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::SyncDir,
        Self::Open,
        Self::Create,
        Self::Rename,
        Self::Remove,
        Self::List,
        Self::SetLen,
        Self::Allocate,
        Self::PunchHole,
        Self::Metadata,
        Self::Lock,
        Self::Spawn,
    ];
}

/// Error returned by a failing call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// EIO: the device failed.
    Device,
    /// ENOSPC: the device is full.
    NoSpace,
    /// EMFILE: no descriptor is left.
    NoDescriptor,
    /// Any error number, as in [`testudo_base::errno::TREATMENTS`].
    Number(i32),
    /// Any other error kind.
    Kind(io::ErrorKind),
}

impl FaultError {
    fn to_error(self) -> io::Error {
        match self {
            Self::Device => Errno::IO.into(),
            Self::NoSpace => Errno::NOSPC.into(),
            Self::NoDescriptor => Errno::MFILE.into(),
            Self::Number(number) => io::Error::from_raw_os_error(number),
            Self::Kind(kind) => kind.into(),
        }
    }
}

/// Which call fails, how, and how many times. Plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// The class of calls that count; `None` means all except [`IoClass::Spawn`].
    pub class: Option<IoClass>,
    /// Only calls on paths that contain this text count; empty means all.
    pub path_part: String,
    /// Number of calls that succeed before the first failure.
    pub skip: u64,
    /// The error.
    pub error: FaultError,
    /// Number of consecutive counted calls that fail.
    pub times: u64,
    /// Whether a failing write has written its first half (whole pages if it has several).
    pub partial_write: bool,
}

impl FaultPlan {
    /// Call number `skip` (from 0) of any class fails once.
    pub fn once(skip: u64, error: FaultError) -> Self {
        Self { class: None, path_part: String::new(), skip, error, times: 1, partial_write: false }
    }

    /// Restricts the plan to calls of one class.
    #[must_use]
    pub fn of_class(mut self, class: IoClass) -> Self {
        self.class = Some(class);
        self
    }

    /// Makes the failure permanent.
    #[must_use]
    pub fn for_good(self) -> Self {
        self.times(u64::MAX)
    }

    /// Sets the number of consecutive failures.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Restricts the plan to paths that contain `part`.
    #[must_use]
    pub fn on_path(mut self, part: &str) -> Self {
        part.clone_into(&mut self.path_part);
        self
    }

    /// Makes failing writes write their first half.
    #[must_use]
    pub fn with_partial_writes(mut self) -> Self {
        self.partial_write = true;
        self
    }
}

/// Wraps another environment and injects faults.
#[derive(Debug)]
pub struct FaultyEnv {
    inner: Arc<dyn Env>,
    faults: Arc<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    state: Mutex<State>,
}

/// Lock: a leaf.
#[derive(Debug, Default)]
struct State {
    plan: Option<FaultPlan>,
    /// Calls that the plan counted.
    matched: u64,
    /// Calls by class, in the order of [`IoClass::ALL`].
    counts: [u64; IoClass::ALL.len()],
    failures: Vec<String>,
}

/// Maximum descriptions kept; otherwise a permanent failure would fill memory.
const FAILURES_MAX: usize = 100;

/// The failure of a call.
struct Failure {
    error: io::Error,
    partial_write: bool,
}

impl Faults {
    /// Counts the call and decides whether it fails.
    fn decide(&self, class: IoClass, path: &Path, detail: &str) -> Result<(), Failure> {
        let mut state = self.state.lock();
        state.counts[class as usize] += 1;
        let State { plan: Some(plan), matched, failures, .. } = &mut *state else {
            return Ok(());
        };
        let class_counts = plan.class.map_or(class != IoClass::Spawn, |counted| counted == class);
        if !class_counts || !path.to_string_lossy().contains(&plan.path_part) {
            return Ok(());
        }
        let number = *matched;
        *matched += 1;
        if number < plan.skip || number - plan.skip >= plan.times {
            return Ok(());
        }
        let error = plan.error.to_error();
        if failures.len() < FAILURES_MAX {
            failures.push(format!("{class:?} of {}{detail}: {error}", path.display()));
        }
        Err(Failure { error, partial_write: plan.partial_write })
    }

    fn check(&self, class: IoClass, path: &Path) -> io::Result<()> {
        self.decide(class, path, "").map_err(|failure| failure.error)
    }
}

impl FaultyEnv {
    /// Wraps `inner`; nothing fails before [`FaultyEnv::set_plan`].
    pub fn new(inner: Arc<dyn Env>) -> Arc<Self> {
        Arc::new(Self { inner, faults: Arc::default() })
    }

    /// Replaces the plan, counts from now on, and drops the recorded failures; `None` heals.
    pub fn set_plan(&self, plan: Option<FaultPlan>) {
        let mut state = self.faults.state.lock();
        state.plan = plan;
        state.matched = 0;
        state.failures.clear();
    }

    /// Failures under the current plan, in order, as in `Write of /db/a at 0, 10 bytes: …`; at most 100.
    pub fn failures(&self) -> Vec<String> {
        self.faults.state.lock().failures.clone()
    }

    /// Number of calls of one class since the start, including failed ones.
    pub fn call_count(&self, class: IoClass) -> u64 {
        self.faults.state.lock().counts[class as usize]
    }

    /// Number of calls of all classes that count for a plan without a class.
    pub fn total_call_count(&self) -> u64 {
        let counted = IoClass::ALL.into_iter().filter(|class| *class != IoClass::Spawn);
        counted.map(|class| self.call_count(class)).sum()
    }
}

impl Env for FaultyEnv {
    fn anchor(&self, directory: &Path) -> io::Result<Arc<dyn Env>> {
        self.faults.check(IoClass::Open, directory)?;
        let inner = self.inner.anchor(directory)?;
        Ok(Arc::new(Self { inner, faults: Arc::clone(&self.faults) }))
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let creates = options.mode == OpenMode::CreateNew;
        self.faults.check(if creates { IoClass::Create } else { IoClass::Open }, path)?;
        let inner = self.inner.open(path, options)?;
        let faults = Arc::clone(&self.faults);
        Ok(Arc::new(FaultyFile { inner, faults, path: path.into() }))
    }

    fn temporary_file(&self) -> io::Result<Arc<dyn File>> {
        let path: Arc<Path> = Path::new("a temporary file").into();
        self.faults.check(IoClass::Create, &path)?;
        let inner = self.inner.temporary_file()?;
        Ok(Arc::new(FaultyFile { inner, faults: Arc::clone(&self.faults), path }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.faults.check(IoClass::Create, path)?;
        self.inner.create_dir(path)
    }

    fn create_mapped(&self, path: &Path, bytes: usize) -> io::Result<Arc<dyn MappedFile>> {
        self.faults.check(IoClass::Create, path)?;
        self.inner.create_mapped(path, bytes)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.faults.check(IoClass::List, path)?;
        self.inner.list_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.check(IoClass::Rename, from)?;
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.faults.check(IoClass::Remove, path)?;
        self.inner.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.faults.check(IoClass::Remove, path)?;
        self.inner.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.faults.check(IoClass::SyncDir, path).map_err(lasting)?;
        self.inner.sync_dir(path)
    }

    fn lock(&self, path: &Path, create: bool, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        self.faults.check(IoClass::Lock, path)?;
        self.inner.lock(path, create, exclusive)
    }

    fn lock_dir(&self, directory: &Path, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        self.faults.check(IoClass::Lock, directory)?;
        self.inner.lock_dir(directory, exclusive)
    }

    fn lock_holder(&self, path: &Path) -> io::Result<LockHolder> {
        self.faults.check(IoClass::Metadata, path)?;
        self.inner.lock_holder(path)
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Thread>> {
        self.faults.check(IoClass::Spawn, Path::new(name))?;
        self.inner.spawn(name, body)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.faults.check(IoClass::Metadata, path)?;
        self.inner.free_bytes(path)
    }

    crate::forward!(
        inner: process, owner_state, monotonic, wall_clock, random_u64, execution, sleep, boot_id
    );
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn File>,
    faults: Arc<Faults>,
    path: Arc<Path>,
}

impl FaultyFile {
    fn decide_range(&self, class: IoClass, offset: u64, bytes: usize) -> Result<(), Failure> {
        self.faults.decide(class, &self.path, &format!(" at {offset}, {bytes} bytes"))
    }
}

impl File for FaultyFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.decide_range(IoClass::Read, offset, buffer.len()).map_err(|failure| failure.error)?;
        self.inner.read_at(offset, buffer)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        let mut valid = Vec::with_capacity(requests.len());
        for request in &mut *requests {
            match self.decide_range(IoClass::Read, request.offset, request.buffer.len()) {
                Ok(()) => valid.push(request),
                Err(failure) => request.result = Err(failure.error),
            }
        }
        let mut passed: Vec<_> =
            valid.iter_mut().map(|request| ReadRequest::new(request.offset, &mut *request.buffer)).collect();
        self.inner.read_batch(&mut passed);
        let results: Vec<_> = passed.into_iter().map(|request| request.result).collect();
        for (request, result) in valid.into_iter().zip(results) {
            request.result = result;
        }
    }

    fn start_read(&self, offset: u64, buffer: AlignedBuffer) -> Box<dyn PendingRead> {
        match self.decide_range(IoClass::Read, offset, buffer.len()) {
            Ok(()) => self.inner.start_read(offset, buffer),
            Err(failure) => Box::new(FinishedRead { buffer, result: Err(failure.error) }),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Err(failure) = self.decide_range(IoClass::Write, offset, bytes.len()) else {
            return self.inner.write_at(offset, bytes);
        };
        if failure.partial_write {
            let half = bytes.len() / 2;
            let whole_pages = half / PAGE_SIZE * PAGE_SIZE;
            // Direct writes consist of pages and stop at a page boundary.
            let length = if bytes.len().is_multiple_of(PAGE_SIZE) { whole_pages } else { half };
            let _ = self.inner.write_at(offset, &bytes[..length]);
            return Err(lasting(failure.error));
        }
        Err(failure.error)
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.check(IoClass::Sync, &self.path).map_err(lasting)?;
        self.inner.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.faults.check(IoClass::Metadata, &self.path)?;
        self.inner.len()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.faults.check(IoClass::SetLen, &self.path)?;
        self.inner.set_len(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.faults.check(IoClass::Allocate, &self.path)?;
        self.inner.allocate(offset, length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        self.faults.check(IoClass::PunchHole, &self.path)?;
        self.inner.punch_hole(offset, length)
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.faults.check(IoClass::Metadata, &self.path)?;
        self.inner.allocated_bytes()
    }

    crate::forward!(inner: next_data);
}

#[cfg(test)]
mod tests;
