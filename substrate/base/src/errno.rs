//! Every error number that the calls of the operating system give, and its treatment: the one table of them.
//!
//! | treatment | what was done | what follows |
//! |---|---|---|
//! | `Again` | nothing | the environment makes the call again at once |
//! | `Wait` | nothing | the call is made again for a quarter of a second; then it fails with an error |
//! | | | that is transient ([`crate::Error::is_transient`]): flushes, jobs and the log go on once they can, |
//! | | | and a commit that cannot be taken meanwhile is refused |
//! | `Full` | nothing | the reserve is used, then as `Wait`, and removals make room (decisions 0012, 0032) |
//! | `Refuse` | nothing | the caller is told; what the store needs for what it has promised ends its writes |
//! | `Poison` | not known | writes end for good (`Poisoned`), reads go on |
//!
//! **Invariants**
//! - A number stands here once. One that does not stand here counts as `Poison`.
//! - Whoever gives an error up the layers after a part of the work was done makes it last
//!   ([`crate::Error::lasting`]), and so does every failed sync ([`lasting`]): it is never made again.

use std::{fmt, io};

use rustix::io::Errno;

/// What is done about an error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The call is made again at once.
    Again,
    /// Something that the system lacks is awaited.
    Wait,
    /// As [`Treatment::Wait`], and the store makes room.
    Full,
    /// The caller is told.
    Refuse,
    /// Writes end.
    Poison,
}

use Treatment::{Again, Full, Poison, Refuse, Wait};

/// The numbers, their names, and what is done about them.
pub const TREATMENTS: &[(Errno, &str, Treatment)] = &[
    // A signal came.
    (Errno::INTR, "EINTR", Again),
    // No thread, no request or no memory for it now. Of a lock this says that another has it: whoever takes
    // a lock looks at that first.
    (Errno::AGAIN, "EAGAIN", Wait),
    (Errno::NOMEM, "ENOMEM", Wait),
    (Errno::NOBUFS, "ENOBUFS", Wait),
    (Errno::NOLCK, "ENOLCK", Wait),
    // No descriptor, of the process or of the system.
    (Errno::MFILE, "EMFILE", Wait),
    (Errno::NFILE, "ENFILE", Wait),
    // The limit of file sizes of the process, or of the file system. The environment asks for the limit
    // before it writes, so that no SIGXFSZ comes.
    (Errno::FBIG, "EFBIG", Wait),
    // Someone else uses it exclusively for a moment.
    (Errno::BUSY, "EBUSY", Wait),
    (Errno::TXTBSY, "ETXTBSY", Wait),
    (Errno::NOSPC, "ENOSPC", Full),
    (Errno::DQUOT, "EDQUOT", Full),
    // Not allowed.
    (Errno::ACCESS, "EACCES", Refuse),
    (Errno::PERM, "EPERM", Refuse),
    (Errno::ROFS, "EROFS", Refuse),
    // The path leads nowhere, or to something else.
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
    // The system or the file system does not have it. The environment does without where it can.
    (Errno::NOSYS, "ENOSYS", Refuse),
    (Errno::OPNOTSUPP, "EOPNOTSUPP", Refuse),
    // The call is wrong.
    (Errno::INVAL, "EINVAL", Refuse),
    (Errno::BADF, "EBADF", Refuse),
    (Errno::FAULT, "EFAULT", Refuse),
    (Errno::SPIPE, "ESPIPE", Refuse),
    (Errno::OVERFLOW, "EOVERFLOW", Refuse),
    // The device, or the way to it, failed: what it has is not known.
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

/// What is done about an error of a call.
pub fn treatment_of(error: &io::Error) -> Treatment {
    if let Some(number) = error.raw_os_error() {
        let known = TREATMENTS.iter().find(|(errno, _, _)| errno.raw_os_error() == number);
        return known.map_or(Poison, |(_, _, treatment)| *treatment);
    }
    // Of environments that are no operating system.
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Full,
        io::ErrorKind::FileTooLarge | io::ErrorKind::OutOfMemory | io::ErrorKind::ResourceBusy => Wait,
        io::ErrorKind::Interrupted => Again,
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::AlreadyExists => Refuse,
        _ => Poison,
    }
}

/// Whether nothing was done, for want of something that may be there again shortly.
pub fn is_transient(error: &io::Error) -> bool {
    matches!(treatment_of(error), Again | Wait)
}

/// The same error as one after which the call must not be made again: a part of the work was done, or what
/// was done is not known.
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
