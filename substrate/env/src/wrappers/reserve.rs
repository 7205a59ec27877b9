//! Space on the device that is reserved for the case that the device is full.
//!
//! [`Reserve`] owns a separate file whose space is divided into a few equal portions. Files opened through
//! [`Reserve::env`] keep working when the device is full: the reserve gives up a portion and the call is
//! retried. So data that the store has already promised can still be written, and its owner, which checks
//! [`Reserve::is_short`], stops accepting more.
//!
//! Calls that fail for lack of another resource, such as a descriptor or memory, are retried for a moment
//! (`patience.rs`).
//!
//! **Invariants**
//! - Only calls that have done nothing are retried: for lack of space after a portion was actually given up,
//!   for lack of another resource after a pause. Syncs are never retried.
//! - The reserve's data is meaningless, but its space is durable: it still exists after a crash.
//! - Portions are given up one by one and restored all at once.
//! - The length of the file encodes the number of portions and their size. Portions are multiples of four
//!   pages, and each portion given up takes a page of the others with it.
//! - Only a whole reserve changes its size, unless most of it is handed over permanently; one that cannot
//!   grow stays whole and unchanged.

use std::{
    io,
    path::{Path, PathBuf},
};

use testudo_base::{
    errno::is_transient,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
};

use crate::{
    AlignedBuffer, DirEntry, Env, File, MappedFile, OpenMode, OpenOptions, PendingWrite, WriteRequest,
    wrappers::patience::Patience,
};

/// Space reserved in a directory.
#[derive(Debug)]
pub struct Reserve {
    env: Arc<dyn Env>,
    path: PathBuf,
    /// Written under the lock.
    portion_bytes: AtomicU64,
    /// Number of portions held. Written under the lock.
    portions: AtomicU32,
    /// The open file, once it exists.
    file: Mutex<Option<Arc<dyn File>>>,
}

/// Portions are multiples of this.
const PORTION_STEP: u64 = Reserve::PORTIONS as u64 * testudo_base::PAGE_BYTES;

/// A reserve shrinks only to this fraction of its size or less, because growing it again may fail.
const SHRINK_PARTS: u64 = 4;

/// Returns the bytes of each portion of a reserve of about `bytes`.
fn portion_of(bytes: u64) -> u64 {
    (bytes / u64::from(Reserve::PORTIONS)).max(1).next_multiple_of(PORTION_STEP)
}

/// Returns the length of the file that holds `portions`, each of `portion_bytes`.
fn length_of(portions: u32, portion_bytes: u64) -> u64 {
    let missing = u64::from(Reserve::PORTIONS - portions);
    if portions == 0 { 0 } else { u64::from(portions) * portion_bytes - missing * testudo_base::PAGE_BYTES }
}

/// Returns the portions in a file of `length`, and their size; the inverse of [`length_of`]. `least_bytes` is
/// the size of a reserve without portions. A file truncated anywhere else counts as the portions it holds.
fn portions_of(length: u64, least_bytes: u64) -> (u32, u64) {
    let length = length / testudo_base::PAGE_BYTES * testudo_base::PAGE_BYTES;
    let missing = (length.next_multiple_of(PORTION_STEP) - length) / testudo_base::PAGE_BYTES;
    let missing = u32::try_from(missing).unwrap_or(0);
    let portions = Reserve::PORTIONS - missing;
    let portion_bytes =
        (length + u64::from(missing) * testudo_base::PAGE_BYTES) / u64::from(portions) / PORTION_STEP
            * PORTION_STEP;
    if portion_bytes == 0 { (0, portion_of(least_bytes)) } else { (portions, portion_bytes) }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Reserve {
    /// Number of portions of a whole reserve.
    pub const PORTIONS: u32 = 4;

    /// Opens the reserve in the file `path`, with the portions left by an earlier process, or an empty one of
    /// about `bytes`. Writes nothing.
    pub fn open(env: Arc<dyn Env>, path: PathBuf, bytes: u64) -> io::Result<Arc<Self>> {
        let file = match env.open(&path, OpenOptions { mode: OpenMode::Write, direct: false }) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let held_bytes = file.as_ref().map_or(Ok(0), |file| file.len())?;
        let (portions, portion_bytes) = portions_of(held_bytes, bytes);
        let file = Mutex::new(file);
        Ok(Arc::new(Self { env, path, portion_bytes: portion_bytes.into(), portions: portions.into(), file }))
    }

    /// Changes the size to about `bytes`: a whole reserve grows to it if the device has space, and shrinks if
    /// it is at least four times as large.
    pub fn resize(&self, bytes: u64) -> io::Result<()> {
        let wanted = portion_of(bytes);
        let is_wanted = |portion_bytes: u64| wanted > portion_bytes || wanted <= portion_bytes / SHRINK_PARTS;
        if self.is_short() || !is_wanted(self.portion_bytes()) {
            return Ok(());
        }
        let file = self.file.lock();
        let present = self.portion_bytes();
        let Some(file) = file.as_ref().filter(|_| !self.is_short() && is_wanted(present)) else {
            return Ok(());
        };
        let (from, to) = (length_of(Self::PORTIONS, present), length_of(Self::PORTIONS, wanted));
        let outcome = (|| {
            if to < from {
                return file.set_len(to);
            }
            // Some free space must remain in addition to it.
            if self.env.free_bytes(&self.path)? < to - from + wanted {
                return Err(io::ErrorKind::StorageFull.into());
            }
            file.allocate(from, to - from)?;
            file.sync()
        })();
        match outcome {
            Ok(()) => self.portion_bytes.store(wanted, Release),
            // Releases any part that was allocated.
            Err(error) if is_full(&error) || is_transient(&error) => file.set_len(from)?,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Releases all but about `bytes` to the device; the rest is a whole reserve. Does nothing if it is
    /// smaller.
    pub fn hand_over(&self, bytes: u64) -> io::Result<()> {
        let file = self.file.lock();
        let Some(file) = file.as_ref() else { return Ok(()) };
        let portion_bytes = portion_of(bytes);
        let rest = length_of(Self::PORTIONS, portion_bytes);
        if file.len()? >= rest {
            file.set_len(rest)?;
            self.portion_bytes.store(portion_bytes, Release);
            self.portions.store(Self::PORTIONS, Release);
        }
        Ok(())
    }

    fn portion_bytes(&self) -> u64 {
        self.portion_bytes.load(Acquire)
    }

    /// Bytes of a whole reserve.
    pub fn whole_bytes(&self) -> u64 {
        u64::from(Self::PORTIONS) * self.portion_bytes()
    }

    /// Returns the environment whose files may use the reserve. Reservations of space ([`File::allocate`])
    /// leave [`Reserve::PORTIONS`] − 1 portions to writes.
    pub fn env(self: &Arc<Self>) -> Arc<dyn Env> {
        self.env_that_keeps(0)
    }

    /// Returns the environment whose files always leave [`Reserve::PORTIONS`] − 1 portions to others: for
    /// work that can be retried. The portion that they take signals to the owner that the device is full.
    pub fn bulk_env(self: &Arc<Self>) -> Arc<dyn Env> {
        self.env_that_keeps(Self::PORTIONS - 1)
    }

    fn env_that_keeps(self: &Arc<Self>, keep: u32) -> Arc<dyn Env> {
        Arc::new(ReservingEnv { inner: Arc::clone(&self.env), reserve: Arc::clone(self), keep })
    }

    /// Returns the underlying environment, whose files never use the reserve.
    pub fn plain_env(&self) -> Arc<dyn Env> {
        Arc::clone(&self.env)
    }

    /// Number of portions held.
    pub fn portions(&self) -> u32 {
        self.portions.load(Acquire)
    }

    /// Bytes currently reserved.
    pub fn bytes(&self) -> u64 {
        u64::from(self.portions()) * self.portion_bytes()
    }

    /// Free bytes on the device needed to restore the whole reserve.
    pub fn missing_bytes(&self) -> u64 {
        let missing = Self::PORTIONS - self.portions();
        if missing == 0 { 0 } else { u64::from(missing + 1) * self.portion_bytes() }
    }

    /// Whether portions are missing: the device was full and, as far as known, still is.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.portions() < Self::PORTIONS
    }

    /// Restores the missing portions; `false` if the device has no space for them yet.
    pub fn refill(&self) -> io::Result<bool> {
        let mut file = self.file.lock();
        let held = self.portions();
        debug_assert!(held <= Self::PORTIONS, "no more portions than a whole reserve has");
        let whole = self.whole_bytes();
        let missing = whole - length_of(held, self.portion_bytes());
        let outcome = (|| {
            let file = match &mut *file {
                Some(file) => file,
                None => {
                    let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
                    let created = self.env.open(&self.path, options)?;
                    if let Some(directory) = self.path.parent() {
                        self.env.sync_dir(directory)?;
                    }
                    file.insert(created)
                }
            };
            if file.len()? > whole {
                file.set_len(whole)?;
            }
            if missing > 0 {
                // Some free space must remain in addition to it, or the next write takes it away again.
                if self.env.free_bytes(&self.path)? < missing + self.portion_bytes() {
                    return Ok(false);
                }
                file.allocate(whole - missing, missing)?;
                file.sync()?;
            }
            Ok(true)
        })();
        match outcome {
            Ok(true) => {
                self.portions.store(Self::PORTIONS, Release);
                Ok(true)
            }
            Err(error) if !is_full(&error) && !is_transient(&error) => Err(error),
            _ => Ok(false),
        }
    }

    /// Gives up a portion unless only `keep` are left; returns whether it did.
    fn give_up_portion(&self, keep: u32) -> bool {
        let file = self.file.lock();
        let held = self.portions();
        let Some(file) = file.as_ref().filter(|_| held > keep) else { return false };
        let is_given = file.set_len(length_of(held - 1, self.portion_bytes())).is_ok();
        // A portion that could not be given up is not retried: it would fail again.
        self.portions.store(held - 1, Release);
        is_given
    }

    /// Makes `call` and retries it within the limits of `Patience`, without using the reserve.
    fn patiently<T>(&self, call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        self.with_reserve(Self::PORTIONS, call)
    }

    /// Makes `call`, and retries it after giving up a portion while it fails for lack of space.
    fn with_reserve<T>(&self, keep: u32, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut patience = Patience::default();
        loop {
            match call() {
                Err(error) if is_full(&error) && self.give_up_portion(keep) => {}
                Err(error) if patience.waits_for(&error, &*self.env) => {}
                outcome => return outcome,
            }
        }
    }
}

#[derive(Debug)]
struct ReservingEnv {
    inner: Arc<dyn Env>,
    reserve: Arc<Reserve>,
    /// Number of portions left to others.
    keep: u32,
}

impl Env for ReservingEnv {
    fn anchor(&self, directory: &Path) -> io::Result<Arc<dyn Env>> {
        let inner = self.reserve.patiently(|| self.inner.anchor(directory))?;
        Ok(Arc::new(Self { inner, reserve: Arc::clone(&self.reserve), keep: self.keep }))
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let inner = self.reserve.with_reserve(self.keep, || self.inner.open(path, options))?;
        if options.mode == OpenMode::Read {
            return Ok(inner);
        }
        Ok(Arc::new(ReservingFile { inner, reserve: Arc::clone(&self.reserve), keep: self.keep }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.reserve.with_reserve(self.keep, || self.inner.create_dir(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.reserve.with_reserve(self.keep, || self.inner.rename(from, to))
    }

    fn temporary_file(&self) -> io::Result<Arc<dyn File>> {
        self.reserve.patiently(|| self.inner.temporary_file())
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.reserve.patiently(|| self.inner.list_dir(path))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.reserve.patiently(|| self.inner.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.reserve.patiently(|| self.inner.remove_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        // It opens the directory first; a failed sync is never retried.
        self.reserve.patiently(|| self.inner.sync_dir(path))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.reserve.patiently(|| self.inner.free_bytes(path))
    }

    fn create_mapped(&self, path: &Path, bytes: usize) -> io::Result<Arc<dyn MappedFile>> {
        self.reserve.with_reserve(self.keep, || self.inner.create_mapped(path, bytes))
    }

    crate::forward!(
        inner: process, lock, lock_dir, lock_holder, owner_state, monotonic, wall_clock, random_u64,
        execution, spawn, sleep, boot_id
    );
}

#[derive(Debug)]
struct ReservingFile {
    inner: Arc<dyn File>,
    reserve: Arc<Reserve>,
    /// Number of portions left to others.
    keep: u32,
}

impl File for ReservingFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.reserve.with_reserve(self.keep, || self.inner.write_at(offset, bytes))
    }

    fn write_batch(&self, requests: &mut [WriteRequest<'_>]) {
        self.inner.write_batch(requests);
        for request in requests.iter_mut().filter(|request| request.result.is_err()) {
            let mut first = Some(std::mem::replace(&mut request.result, Ok(())));
            let again = || self.inner.write_at(request.offset, request.bytes);
            request.result = self.reserve.with_reserve(self.keep, || first.take().unwrap_or_else(again));
        }
    }

    fn start_write(&self, offset: u64, buffer: AlignedBuffer, length: usize) -> Box<dyn PendingWrite> {
        let pending = self.inner.start_write(offset, buffer, length);
        let (file, reserve) = (Arc::clone(&self.inner), Arc::clone(&self.reserve));
        Box::new(ReservingWrite { pending, file, reserve, keep: self.keep, offset, length })
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.reserve.with_reserve(self.keep, || self.inner.set_len(length))
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.reserve.with_reserve(Reserve::PORTIONS - 1, || self.inner.allocate(offset, length))
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        self.reserve.patiently(|| self.inner.punch_hole(offset, length))
    }

    crate::forward!(inner: read_at, read_batch, start_read, sync, len, next_data, allocated_bytes);
}

/// A background write, repeated once there is space if there was none.
#[derive(Debug)]
struct ReservingWrite {
    pending: Box<dyn PendingWrite>,
    file: Arc<dyn File>,
    reserve: Arc<Reserve>,
    /// Number of portions left to others.
    keep: u32,
    offset: u64,
    length: usize,
}

impl PendingWrite for ReservingWrite {
    fn wait(self: Box<Self>) -> (AlignedBuffer, io::Result<()>) {
        let Self { pending, file, reserve, keep, offset, length } = *self;
        let (buffer, result) = pending.wait();
        let mut first = Some(result);
        let again = || file.write_at(offset, &buffer[..length]);
        let result = reserve.with_reserve(keep, || first.take().unwrap_or_else(again));
        (buffer, result)
    }
}

#[cfg(test)]
mod tests;
