//! A file of the operating system.
//!
//! **Invariants**
//! - The descriptor is of a regular file, blocking, close-on-exec.
//! - Interrupted and short calls are continued; the caller sees a whole result or an error.
//! - A failed sync is returned unchanged and never retried here.
//! - After a background request was given up ([`ReadBackend::check`]), writes and syncs fail.
//! - Only the process that opened it reads, writes or syncs it; a forked child gets an error.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fs::{FallocateFlags, FileType, Mode, OFlags, SeekFrom},
    io::{Errno, retry_on_intr},
};
use testudo_base::{errno::lasting, num::u64_of};

use crate::{
    AlignedBuffer, File, OpenMode, OpenOptions, PendingRead, PendingWrite, Process, ReadRequest,
    WriteRequest,
    file::{range_end, require_direct_alignment},
    pending_read::FinishedRead,
    pending_write::FinishedWrite,
    real::{
        plain_io::{file_length, read_exact_at, write_rest},
        read_backend::ReadBackend,
    },
    wrappers::anchor::{self, Place},
};

/// Bytes of the unit of `st_blocks`, whatever the file system's block size.
const STATUS_BLOCK_BYTES: u64 = 512;

/// An open file and the backend for its batches.
#[derive(Debug)]
pub(crate) struct RealFile {
    descriptor: Arc<OwnedFd>,
    /// The caller requested direct I/O and must align.
    aligned: bool,
    /// Whether the kernel bypasses its page cache on this descriptor.
    direct: AtomicBool,
    reads: Arc<ReadBackend>,
    /// The process that opened it.
    process: Process,
}

impl RealFile {
    pub(crate) fn open(place: Place<'_>, options: OpenOptions, reads: Arc<ReadBackend>) -> io::Result<Self> {
        let flags = match options.mode {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::Write => OFlags::RDWR,
            OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
        Self::of(open_regular(place, flags)?, options.direct, reads)
    }

    fn of(descriptor: OwnedFd, aligned: bool, reads: Arc<ReadBackend>) -> io::Result<Self> {
        // Set after the open, because an open refused for O_DIRECT would leave a created file behind.
        let direct = aligned && set_direct(&descriptor, true).is_ok();
        if !direct {
            set_direct(&descriptor, false)?;
        }
        let (descriptor, process) = (Arc::new(descriptor), Process::current());
        Ok(Self { descriptor, aligned, direct: AtomicBool::new(direct), reads, process })
    }

    /// Creates an unnamed file in `TMPDIR`, `/var/tmp` or `/tmp`, the first that works. `random` is for file
    /// systems without unnamed files: the file briefly has a name.
    pub(crate) fn temporary(random: u64, reads: Arc<ReadBackend>) -> io::Result<Self> {
        let given = std::env::var_os("TMPDIR").filter(|given| !given.is_empty());
        let places = match given {
            Some(given) => vec![PathBuf::from(given)],
            None => vec!["/var/tmp".into(), "/tmp".into()],
        };
        let mut outcome = Err(io::ErrorKind::NotFound.into());
        for place in places {
            outcome = open_unnamed(&place, random);
            if outcome.is_ok() {
                break;
            }
        }
        Self::of(outcome?, true, reads)
    }

    /// Fails in a forked child.
    #[inline]
    fn check_process(&self) -> io::Result<()> {
        self.process.check().map_err(io::Error::other)
    }

    fn check(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_process()?;
        range_end(offset, u64_of(bytes.len()))?;
        if self.aligned { require_direct_alignment(offset, bytes) } else { Ok(()) }
    }

    /// Like [`RealFile::check`], for a write.
    fn check_write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(offset, bytes)?;
        self.reads.check()?;
        if exceeds_limit(offset + u64_of(bytes.len())) { Err(Errno::FBIG.into()) } else { Ok(()) }
    }

    /// Falls back to ordinary I/O: some file systems accept O_DIRECT and then refuse the I/O (a device with
    /// larger sectors). Returns true if the failed call should be retried.
    fn leave_direct(&self, error: &io::Error) -> bool {
        if !self.aligned || error.raw_os_error() != Some(Errno::INVAL.raw_os_error()) {
            return false;
        }
        if self.direct.swap(false, Ordering::Relaxed) {
            return set_direct(&self.descriptor, false).is_ok();
        }
        // Another thread has just disabled direct I/O.
        true
    }
}

impl File for RealFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.check(offset, buffer)?;
        match read_exact_at(&self.descriptor, offset, buffer) {
            Err(error) if self.leave_direct(&error) => read_exact_at(&self.descriptor, offset, buffer),
            result => result,
        }
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        let mut valid = true;
        for request in &mut *requests {
            request.result = self.check(request.offset, request.buffer);
            valid &= request.result.is_ok();
        }
        if valid {
            self.reads.read(&self.descriptor, requests);
        }
        for request in requests {
            let unread = !valid && request.result.is_ok();
            let refused = valid && request.result.as_ref().is_err_and(|error| self.leave_direct(error));
            if unread || refused {
                request.result = self.read_at(request.offset, request.buffer);
            }
        }
    }

    fn start_read(&self, offset: u64, buffer: AlignedBuffer) -> Box<dyn PendingRead> {
        if let Err(error) = self.check(offset, &buffer) {
            return Box::new(FinishedRead { buffer, result: Err(error) });
        }
        if self.aligned && !self.direct.load(Ordering::Relaxed) {
            // Without direct I/O the kernel itself reads ahead.
            let mut buffer = buffer;
            let result = self.read_at(offset, &mut buffer);
            return Box::new(FinishedRead { buffer, result });
        }
        self.reads.start(&self.descriptor, offset, buffer)
    }

    fn write_batch(&self, requests: &mut [WriteRequest<'_>]) {
        let are_valid =
            requests.iter().all(|request| self.check_write(request.offset, request.bytes).is_ok());
        if are_valid {
            self.reads.write(&self.descriptor, requests);
        }
        for request in requests {
            let is_refused = request.result.as_ref().is_err_and(|error| self.leave_direct(error));
            if !are_valid || is_refused {
                request.result = self.write_at(request.offset, request.bytes);
            }
        }
    }

    fn start_write(&self, offset: u64, buffer: AlignedBuffer, length: usize) -> Box<dyn PendingWrite> {
        // Without direct I/O a write only reaches memory anyway.
        let is_direct = self.aligned && self.direct.load(Ordering::Relaxed);
        if is_direct && self.check_write(offset, &buffer[..length]).is_ok() {
            return self.reads.start_write(&self.descriptor, offset, buffer, length);
        }
        let result = self.write_at(offset, &buffer[..length]);
        Box::new(FinishedWrite { buffer, result })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_write(offset, bytes)?;
        match write_rest(&self.descriptor, offset, bytes, 0) {
            Err(error) if self.leave_direct(&error) => write_rest(&self.descriptor, offset, bytes, 0),
            result => result,
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.check_process()?;
        self.reads.check()?;
        retry_on_intr(|| rustix::fs::fdatasync(&*self.descriptor)).map_err(|error| lasting(error.into()))
    }

    fn len(&self) -> io::Result<u64> {
        file_length(self.descriptor.as_fd())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.check_process()?;
        range_end(length, 0)?;
        if exceeds_limit(length) && self.len()? < length {
            return Err(Errno::FBIG.into());
        }
        Ok(retry_on_intr(|| rustix::fs::ftruncate(&*self.descriptor, length))?)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check_process()?;
        let end = range_end(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        if exceeds_limit(end) && self.len()? < end {
            return Err(Errno::FBIG.into());
        }
        let reserve = || rustix::fs::fallocate(&*self.descriptor, FallocateFlags::empty(), offset, length);
        match retry_on_intr(reserve) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if self.len()? < end => self.set_len(end),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            result => Ok(result?),
        }
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check_process()?;
        range_end(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| rustix::fs::fallocate(&*self.descriptor, flags, offset, length)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            result => Ok(result?),
        }
    }

    fn next_data(&self, offset: u64) -> u64 {
        match rustix::fs::seek(&*self.descriptor, SeekFrom::Data(offset)) {
            Ok(data) => data.max(offset),
            Err(Errno::NXIO) => u64::MAX,
            Err(_) => offset,
        }
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        let status = rustix::fs::fstat(&*self.descriptor)?;
        let blocks = u64::try_from(status.st_blocks).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(blocks * STATUS_BLOCK_BYTES)
    }
}

/// Whether the file size limit of the process forbids writing up to `end`. An attempt would raise SIGXFSZ,
/// which ends the process unless it is handled.
fn exceeds_limit(end: u64) -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some_and(|limit| end > limit)
}

/// Opens a regular file without following a link in the last component and without blocking on a FIFO. The
/// descriptor is left non-blocking.
pub(crate) fn open_regular(place: Place<'_>, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let open = || rustix::fs::openat(place.directory, place.name, flags, Mode::RUSR | Mode::WUSR);
    match retry_on_intr(open) {
        Ok(descriptor) => {
            let status = rustix::fs::fstat(&descriptor)?;
            let is_regular = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
            if is_regular { Ok(descriptor) } else { Err(not_regular(place.path)) }
        }
        // Errors for a link, a directory opened for writing, and a socket.
        Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => Err(not_regular(place.path)),
        Err(error) => Err(error.into()),
    }
}

/// Opens a new unnamed file in `directory`.
fn open_unnamed(directory: &Path, random: u64) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match retry_on_intr(|| rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let path = directory.join(format!("testudo-{random:016x}"));
            let descriptor =
                open_regular(anchor::place(None, &path), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
            rustix::fs::unlink(&path)?;
            Ok(descriptor)
        }
        opened => Ok(opened?),
    }
}

fn not_regular(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a regular file", path.display()))
}

/// Sets the status flags of the descriptor: direct or not, always blocking.
fn set_direct(descriptor: &OwnedFd, direct: bool) -> rustix::io::Result<()> {
    let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
    rustix::fs::fcntl_setfl(descriptor, flags)
}

#[cfg(test)]
mod tests;
