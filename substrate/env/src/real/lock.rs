//! Locks of the operating system: a flock on a file or a directory.
//!
//! **Invariants**
//! - The process that took a lock releases it explicitly: closing is not enough, because processes that were
//!   forked from it, or are being started, have copies of the descriptor. They only close theirs.
//! - A remaining copy of an owner that has ended keeps the lock; the file names the owner until then.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use rustix::{
    fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, Stat},
    io::{Errno, retry_on_intr},
    process::{Pid, test_kill_process},
};
use testudo_base::planted;

use crate::{
    DirLock, LockHolder, OwnerState, Process,
    contract::{OWNER_BYTES_MAX, decode_owner, encode_owner, may_hold_owner},
    real::{file::open_regular, open_dir},
    wrappers::anchor::{self, Anchor, Place, is_same},
};

/// A held lock.
#[derive(Debug)]
pub(crate) struct FlockGuard {
    /// `None` once it is released. Lock: a leaf, held only for that.
    descriptor: Mutex<Option<OwnedFd>>,
    /// Status of the descriptor's file; while it is open, no other file has its inode.
    locked: Stat,
    anchor: Option<Anchor>,
    path: PathBuf,
    /// Whether the file holds the id of this process.
    names_owner: bool,
    /// The process that took it.
    process: Process,
}

impl FlockGuard {
    /// Like [`crate::Env::lock`].
    pub(crate) fn lock_file(
        anchor: Option<&Anchor>,
        path: &Path,
        create: bool,
        exclusive: bool,
    ) -> io::Result<Self> {
        let descriptor = open_lock_file(anchor::place(anchor, path), create, exclusive)?;
        try_lock(&descriptor, exclusive)?;
        let names_owner = exclusive && write_owner(&descriptor).unwrap_or(false);
        Self::of(descriptor, anchor, path, names_owner)
    }

    /// Like [`crate::Env::lock_dir`].
    pub(crate) fn lock_dir(anchor: Option<&Anchor>, directory: &Path, exclusive: bool) -> io::Result<Self> {
        let descriptor = open_dir(anchor::place(anchor, directory))?;
        match try_lock(&descriptor, exclusive) {
            // Errors of file systems that support no locks, or none on directories.
            Err(error) if is_unlockable(&error) => return Err(io::ErrorKind::Unsupported.into()),
            outcome => outcome?,
        }
        Self::of(descriptor, anchor, directory, false)
    }

    fn of(descriptor: OwnedFd, anchor: Option<&Anchor>, path: &Path, names_owner: bool) -> io::Result<Self> {
        let locked = rustix::fs::fstat(&descriptor)?;
        let (anchor, process) = (anchor.cloned(), Process::current());
        let descriptor = Mutex::new(Some(descriptor));
        Ok(Self { descriptor, locked, anchor, path: path.to_owned(), names_owner, process })
    }
}

impl DirLock for FlockGuard {
    fn abandon(&self) {
        if self.process.is_current() {
            return;
        }
        // Locked only if the owner was releasing it when it forked.
        let copy = self.descriptor.try_lock().and_then(|mut descriptor| descriptor.take());
        if let Some(copy) = copy.filter(|_| planted!("child-unlocks")) {
            let _ = rustix::fs::flock(&copy, FlockOperation::Unlock);
        }
    }

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
        let Some(descriptor) = self.descriptor.get_mut().take() else { return };
        if !self.process.is_current() {
            return;
        }
        if self.names_owner {
            let _ = rustix::fs::ftruncate(&descriptor, 0);
        }
        let _ = rustix::fs::flock(&descriptor, FlockOperation::Unlock);
    }
}

/// Like [`crate::Env::lock_holder`].
pub(crate) fn holder(place: Place<'_>) -> io::Result<LockHolder> {
    let descriptor = open_regular(place, OFlags::RDONLY)?;
    match try_lock(&descriptor, false) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        // Readers hold it, or it is free.
        outcome => return outcome.map(|()| LockHolder::NoOwner),
    }
    let mut bytes = [0; OWNER_BYTES_MAX];
    Ok(LockHolder::Owner(decode_owner(read_owner(&descriptor, &mut bytes)?)))
}

/// Like [`crate::Env::owner_state`].
pub(crate) fn owner_state(place: Place<'_>, process: u32) -> OwnerState {
    let is_own = process == std::process::id();
    // Another container may use the same process ids.
    let is_open_here = is_open_here(place).unwrap_or(is_own);
    match (is_own, is_open_here) {
        (true, true) => OwnerState::Here,
        (true, false) => OwnerState::Elsewhere,
        (false, _) if !is_gone(process) => OwnerState::Elsewhere,
        (false, true) => OwnerState::Inherited,
        (false, false) => OwnerState::Gone,
    }
}

fn is_gone(process: u32) -> bool {
    let id = i32::try_from(process).ok().and_then(Pid::from_raw);
    id.is_some_and(|id| test_kill_process(id) == Err(Errno::SRCH))
}

/// Whether this process has the file open, apart from the descriptor used here; `None` if the system does not
/// tell.
fn is_open_here(place: Place<'_>) -> Option<bool> {
    let asking = open_regular(place, OFlags::RDONLY).ok()?;
    let wanted = rustix::fs::fstat(&asking).ok()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let own = rustix::fs::openat(CWD, "/proc/self/fd", flags, Mode::empty()).ok()?;
    for entry in Dir::read_from(&own).ok()? {
        let entry = entry.ok()?;
        let number: Option<i32> = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        if number.is_none_or(|number| number == asking.as_raw_fd()) {
            continue;
        }
        // A descriptor closed meanwhile does not count.
        let status = rustix::fs::statat(&own, entry.file_name(), AtFlags::empty());
        if status.is_ok_and(|status| is_same(&status, &wanted)) {
            return Some(true);
        }
    }
    Some(false)
}

fn read_owner<'b>(descriptor: &OwnedFd, bytes: &'b mut [u8; OWNER_BYTES_MAX]) -> io::Result<&'b [u8]> {
    let length = retry_on_intr(|| rustix::io::pread(descriptor, &mut *bytes, 0))?;
    Ok(&bytes[..length])
}

/// Writes the id of this process, for messages to refused callers; `false` if the file holds something else.
fn write_owner(descriptor: &OwnedFd) -> io::Result<bool> {
    if !may_hold_owner(read_owner(descriptor, &mut [0; OWNER_BYTES_MAX])?) {
        return Ok(false);
    }
    rustix::fs::ftruncate(descriptor, 0)?;
    rustix::io::pwrite(descriptor, encode_owner(std::process::id()).as_bytes(), 0)?;
    Ok(true)
}

fn try_lock(descriptor: &OwnedFd, exclusive: bool) -> io::Result<()> {
    let operation = if exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    Ok(retry_on_intr(|| rustix::fs::flock(descriptor, operation))?)
}

/// Whether locking failed because it is not supported.
fn is_unlockable(error: &io::Error) -> bool {
    let refusals = [Errno::BADF, Errno::INVAL, Errno::NOLCK, Errno::NOSYS, Errno::NOTSUP];
    refusals.iter().any(|refusal| error.raw_os_error() == Some(refusal.raw_os_error()))
}

/// Network file systems require a writable descriptor for an exclusive lock, so that is tried first;
/// elsewhere a readable one is enough.
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

#[cfg(test)]
mod tests;
