//! An environment for the owner of a directory: before each write it checks that the owner's lock is still
//! where other processes look for it.
//!
//! If the lock file is removed or replaced, a second owner can open the directory, and both would write to
//! the same files. The check is one system call before each write of a file, which is never part of a commit
//! that is only buffered.
//!
//! **Invariants**
//! - Once the lock is found to be gone, nothing is written, created, renamed or removed, even if the name
//!   reappears.
//! - Reads, and syncs of earlier writes, need no lock.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use testudo_base::{Error, ErrorKind, planted};

use crate::{
    AlignedBuffer, DirLock, Env, File, MappedFile, OpenMode, OpenOptions, PendingWrite, WriteRequest,
    pending_write::FinishedWrite,
};

/// The environment of the lock's owner.
#[derive(Debug)]
pub struct LockCheckedEnv {
    inner: Arc<dyn Env>,
    check: Arc<LockCheck>,
}

#[derive(Debug)]
struct LockCheck {
    /// The owner of the store releases it.
    lock: Weak<dyn DirLock>,
    /// The lock file's path, for the message.
    path: Box<Path>,
    is_lost: AtomicBool,
}

impl LockCheck {
    /// Fails with an [`Error`] of kind `Poisoned` if the lock is gone.
    fn check(&self) -> io::Result<()> {
        if planted!("lost-lock-unnoticed") {
            return Ok(());
        }
        let Some(lock) = self.lock.upgrade().filter(|_| !self.is_lost.load(Relaxed)) else {
            return Err(self.lost());
        };
        if lock.is_in_place()? {
            return Ok(());
        }
        self.is_lost.store(true, Relaxed);
        Err(self.lost())
    }

    fn lost(&self) -> io::Error {
        let message = format!(
            "{} was removed or replaced while the store was open: another process may have opened the \
             store, so \
             nothing more was written",
            self.path.display()
        );
        io::Error::other(Error::new(ErrorKind::Poisoned, message))
    }
}

impl LockCheckedEnv {
    /// Wraps `inner` for the owner of `lock`, which was taken on `path`. Nothing can be written once the lock
    /// is dropped.
    pub fn new(inner: Arc<dyn Env>, lock: &Arc<dyn DirLock>, path: &Path) -> Arc<Self> {
        let check = LockCheck { lock: Arc::downgrade(lock), path: path.into(), is_lost: false.into() };
        Arc::new(Self { inner, check: Arc::new(check) })
    }
}

impl Env for LockCheckedEnv {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        if options.mode == OpenMode::Read {
            return self.inner.open(path, options);
        }
        if options.mode == OpenMode::CreateNew {
            self.check.check()?;
        }
        let inner = self.inner.open(path, options)?;
        Ok(Arc::new(LockCheckedFile { inner, check: Arc::clone(&self.check) }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.check.check()?;
        self.inner.create_dir(path)
    }

    fn create_mapped(&self, path: &Path, bytes: usize) -> io::Result<Arc<dyn MappedFile>> {
        self.check.check()?;
        self.inner.create_mapped(path, bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check.check()?;
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.check.check()?;
        self.inner.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.check.check()?;
        self.inner.remove_dir(path)
    }

    // An anchored directory is a different one, or the same one without the lock. A temporary file has no
    // other users.
    crate::forward!(
        inner: anchor, temporary_file, list_dir, sync_dir, process, lock, lock_dir, lock_holder, owner_state,
        monotonic, wall_clock, random_u64, execution, spawn, sleep, boot_id, free_bytes
    );
}

#[derive(Debug)]
struct LockCheckedFile {
    inner: Arc<dyn File>,
    check: Arc<LockCheck>,
}

impl File for LockCheckedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check.check()?;
        self.inner.write_at(offset, bytes)
    }

    fn write_batch(&self, requests: &mut [WriteRequest<'_>]) {
        match self.check.check() {
            Ok(()) => self.inner.write_batch(requests),
            Err(error) => {
                let kind = error.kind();
                let mut first = Some(error);
                for request in requests {
                    request.result = Err(first.take().unwrap_or_else(|| kind.into()));
                }
            }
        }
    }

    fn start_write(&self, offset: u64, buffer: AlignedBuffer, length: usize) -> Box<dyn PendingWrite> {
        match self.check.check() {
            Ok(()) => self.inner.start_write(offset, buffer, length),
            Err(error) => Box::new(FinishedWrite { buffer, result: Err(error) }),
        }
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.check.check()?;
        self.inner.set_len(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check.check()?;
        self.inner.allocate(offset, length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check.check()?;
        self.inner.punch_hole(offset, length)
    }

    crate::forward!(inner: read_at, read_batch, start_read, sync, len, next_data, allocated_bytes);
}
