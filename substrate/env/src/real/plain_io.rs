//! Complete reads and writes at an offset, with as many system calls as needed.
//!
//! **Invariants**
//! - A call that was interrupted or partial continues where it stopped; any other error is returned.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::io::Errno;
use testudo_base::{errno::lasting, num::u64_of};

/// Writes the bytes after the first `done`, with as many system calls as needed.
pub(crate) fn write_rest(file: &OwnedFd, offset: u64, bytes: &[u8], done: usize) -> io::Result<()> {
    let mut done = done;
    while done < bytes.len() {
        let position = crate::file::range_end(offset, u64_of(done))?;
        match rustix::io::pwrite(file, &bytes[done..], position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            // An error with nothing written may be retried.
            Err(error) if done == 0 => return Err(error.into()),
            Err(error) => return Err(lasting(error.into())),
        }
    }
    Ok(())
}

/// Fills `buffer` from `offset` with as many system calls as needed.
pub(crate) fn read_exact_at(file: &OwnedFd, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    read_rest(file, offset, buffer, 0)
}

/// Like [`read_exact_at`], with the first `done` bytes already read.
pub(crate) fn read_rest(file: &OwnedFd, offset: u64, buffer: &mut [u8], done: usize) -> io::Result<()> {
    use std::os::fd::AsFd;
    let file = file.as_fd();
    let mut done = done;
    while done < buffer.len() {
        let position = crate::file::range_end(offset, u64_of(done))?;
        match rustix::io::pread(file, &mut buffer[done..], position) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(Errno::INTR | Errno::AGAIN) => {}
            // After a short direct read at the end of the file the offset is no longer aligned.
            Err(Errno::INVAL) if done > 0 && is_at_end(file, position)? => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn is_at_end(file: BorrowedFd<'_>, position: u64) -> io::Result<bool> {
    Ok(position >= file_length(file)?)
}

/// Length in bytes.
pub(crate) fn file_length(file: BorrowedFd<'_>) -> io::Result<u64> {
    let status = rustix::fs::fstat(file)?;
    u64::try_from(status.st_size).map_err(|_| io::ErrorKind::InvalidData.into())
}
