//! Table of all error numbers returned by calls of the operating system, with their treatment.
//!
//! | treatment | done | consequence |
//! |---|---|---|
//! | `Again` | nothing | the environment repeats the call at once |
//! | `Wait` | nothing | the call is retried for a quarter of a second; then it fails with a transient error |
//! | | | ([`crate::Error::is_transient`]): flushes, jobs and the log continue once they can, |
//! | | | and commits that cannot be accepted meanwhile are refused |
//! | `Full` | nothing | the reserve is used, then as `Wait`; removals free space (decisions 0012, 0032) |
//! | `Refuse` | nothing | the caller gets the error; if the store needs the call to keep a promise, writes
//! end |
//! | `Poison` | unknown | writes end permanently (`Poisoned`), reads continue |
//!
//! **Invariants**
//! - Each number is listed once. A number that is not listed counts as `Poison`.
//! - A layer that passes an error up after part of the work was done makes it lasting
//!   ([`crate::Error::lasting`]), and so does every failed sync ([`lasting`]). Such a call is never retried.

use std::{fmt, io};

use rustix::io::Errno;

/// Treatment of an error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Repeat the call at once.
    Again,
    /// Wait for a resource that the system lacks.
    Wait,
    /// As [`Treatment::Wait`], and the store frees space.
    Full,
    /// Return the error to the caller.
    Refuse,
    /// End all writes.
    Poison,
}

use Treatment::{Again, Full, Poison, Refuse, Wait};

/// The error numbers, their names, and their treatment.
pub const TREATMENTS: &[(Errno, &str, Treatment)] = &[
    // Interrupted by a signal.
    (Errno::INTR, "EINTR", Again),
    // No thread, request or memory is available now. From a lock call it means that another owner holds the
    // lock; lock calls check that first.
    (Errno::AGAIN, "EAGAIN", Wait),
    (Errno::NOMEM, "ENOMEM", Wait),
    (Errno::NOBUFS, "ENOBUFS", Wait),
    (Errno::NOLCK, "ENOLCK", Wait),
    // No file descriptor left, in the process or the system.
    (Errno::MFILE, "EMFILE", Wait),
    (Errno::NFILE, "ENFILE", Wait),
    // File size limit of the process or of the file system. The environment queries the limit before it
    // writes, so that no SIGXFSZ is raised.
    (Errno::FBIG, "EFBIG", Wait),
    // Temporarily in exclusive use by another process.
    (Errno::BUSY, "EBUSY", Wait),
    (Errno::TXTBSY, "ETXTBSY", Wait),
    (Errno::NOSPC, "ENOSPC", Full),
    (Errno::DQUOT, "EDQUOT", Full),
    // Not permitted.
    (Errno::ACCESS, "EACCES", Refuse),
    (Errno::PERM, "EPERM", Refuse),
    (Errno::ROFS, "EROFS", Refuse),
    // The path does not exist or has the wrong type.
    (Errno::NOENT, "ENOENT", Refuse),
    (Errno::NOTDIR, "ENOTDIR", Refuse),
    (Errno::ISDIR, "EISDIR", Refuse),
    (Errno::LOOP, "ELOOP", Refuse),
    (Errno::NAMETOOLONG, "ENAMETOOLONG", Refuse),
    (Errno::EXIST, "EEXIST", Refuse),
    (Errno::NOTEMPTY, "ENOTEMPTY", Refuse),
    (Errno::XDEV, "EXDEV", Refuse),
    (Errno::MLINK, "EMLINK", Refuse),
    (Errno::NXIO, "ENXIO", Refuse),
    (Errno::NODEV, "ENODEV", Refuse),
    // Not supported by the system or the file system. The environment falls back to an alternative where it
    // can.
    (Errno::NOSYS, "ENOSYS", Refuse),
    (Errno::OPNOTSUPP, "EOPNOTSUPP", Refuse),
    // The call itself is invalid.
    (Errno::INVAL, "EINVAL", Refuse),
    (Errno::BADF, "EBADF", Refuse),
    (Errno::FAULT, "EFAULT", Refuse),
    (Errno::SPIPE, "ESPIPE", Refuse),
    (Errno::OVERFLOW, "EOVERFLOW", Refuse),
    // The device, or the path to it, failed: its contents are unknown.
    (Errno::IO, "EIO", Poison),
    (Errno::NODATA, "ENODATA", Poison),
    (Errno::ILSEQ, "EILSEQ", Poison),
    (Errno::UCLEAN, "EUCLEAN", Poison),
    (Errno::BADMSG, "EBADMSG", Poison),
    (Errno::REMOTEIO, "EREMOTEIO", Poison),
    (Errno::STALE, "ESTALE", Poison),
    (Errno::TIMEDOUT, "ETIMEDOUT", Poison),
    (Errno::NOTCONN, "ENOTCONN", Poison),
    (Errno::SHUTDOWN, "ESHUTDOWN", Poison),
    (Errno::NOLINK, "ENOLINK", Poison),
];

/// Returns the treatment of an error of a call.
pub fn treatment_of(error: &io::Error) -> Treatment {
    if let Some(number) = error.raw_os_error() {
        let known = TREATMENTS.iter().find(|(errno, _, _)| errno.raw_os_error() == number);
        return known.map_or(Poison, |(_, _, treatment)| *treatment);
    }
    // From environments that are no operating system.
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Full,
        io::ErrorKind::FileTooLarge | io::ErrorKind::OutOfMemory | io::ErrorKind::ResourceBusy => Wait,
        io::ErrorKind::Interrupted => Again,
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::AlreadyExists => Refuse,
        _ => Poison,
    }
}

/// Whether nothing was done, for lack of a resource that may be available again shortly.
pub fn is_transient(error: &io::Error) -> bool {
    matches!(treatment_of(error), Again | Wait)
}

/// Marks an error after which the call must not be retried: part of the work was done, or it is unknown how
/// much.
pub fn lasting(error: io::Error) -> io::Error {
    if is_transient(&error) { io::Error::other(Lasting(error)) } else { error }
}

#[derive(Debug)]
struct Lasting(io::Error);

impl fmt::Display for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Lasting {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[cfg(test)]
mod tests;
