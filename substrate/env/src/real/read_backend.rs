//! How a batch of reads, and what goes on in the background, reaches the disk: io_uring where the kernel allows it, else a few threads.
//!
//! **Invariants**
//! - Both ways give the same results, errors included; only the speed differs.
//! - When a call returns, no read of its batch is under way any more.

use std::{io, os::fd::BorrowedFd, os::fd::OwnedFd};

use rustix::io::Errno;
use testudo_base::{
    num::u64_of,
    sync::{Arc, OnceLock},
};

#[cfg(all(feature = "io-uring", target_os = "linux"))]
use crate::real::uring::RingPool;
use crate::{
    AlignedBuffer, PendingRead, PendingWrite, ReadRequest, pending_write::FinishedWrite,
    real::read_threads::ReadThreads,
};

/// Performs batches of reads for all files of one environment. The way is chosen by the first batch, so that an environment
/// costs nothing before.
#[derive(Debug)]
pub(crate) struct ReadBackend {
    allow_ring: bool,
    way: OnceLock<Way>,
}

#[derive(Debug)]
enum Way {
    #[cfg(all(feature = "io-uring", target_os = "linux"))]
    Ring(RingPool),
    Threads(ReadThreads),
}

impl ReadBackend {
    /// io_uring if `allow_ring` and the kernel has it, else threads.
    pub(crate) fn new(allow_ring: bool) -> Self {
        Self { allow_ring, way: OnceLock::new() }
    }

    fn way(&self) -> &Way {
        self.way.get_or_init(|| {
            #[cfg(all(feature = "io-uring", target_os = "linux"))]
            if self.allow_ring
                && let Some(pool) = RingPool::probe()
            {
                return Way::Ring(pool);
            }
            let _ = self.allow_ring;
            Way::Threads(ReadThreads::default())
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.way() {
            #[cfg(all(feature = "io-uring", target_os = "linux"))]
            Way::Ring(_) => "io_uring",
            Way::Threads(_) => "threads",
        }
    }

    /// Completes every request; a single one is an ordinary read.
    pub(crate) fn read(&self, file: &Arc<OwnedFd>, requests: &mut [ReadRequest<'_>]) {
        if let [request] = requests {
            request.result = read_exact_at(file, request.offset, request.buffer);
            return;
        }
        match self.way() {
            #[cfg(all(feature = "io-uring", target_os = "linux"))]
            Way::Ring(pool) => pool.read(file, requests),
            Way::Threads(threads) => threads.read(file, requests),
        }
    }
}

impl ReadBackend {
    /// Starts to fill `buffer`.
    pub(crate) fn start(
        &self,
        file: &Arc<OwnedFd>,
        offset: u64,
        buffer: AlignedBuffer,
    ) -> Box<dyn PendingRead> {
        match self.way() {
            #[cfg(all(feature = "io-uring", target_os = "linux"))]
            Way::Ring(pool) => pool.start(file, offset, buffer),
            Way::Threads(threads) => threads.start(file, offset, buffer),
        }
    }
}

impl ReadBackend {
    /// Starts to write the first `length` bytes of `buffer`; without io_uring, ends it too.
    pub(crate) fn start_write(
        &self,
        file: &Arc<OwnedFd>,
        offset: u64,
        buffer: AlignedBuffer,
        length: usize,
    ) -> Box<dyn PendingWrite> {
        match self.way() {
            #[cfg(all(feature = "io-uring", target_os = "linux"))]
            Way::Ring(pool) => pool.start_write(file, offset, buffer, length),
            Way::Threads(_) => {
                let result = write_rest(file, offset, &buffer[..length], 0);
                Box::new(FinishedWrite { buffer, result })
            }
        }
    }
}

/// Writes what follows the first `done` bytes, with as many system calls as it takes.
pub(crate) fn write_rest(file: &OwnedFd, offset: u64, bytes: &[u8], done: usize) -> io::Result<()> {
    let mut done = done;
    while done < bytes.len() {
        let position = crate::file::range_end(offset, u64_of(done))?;
        match rustix::io::pwrite(file, &bytes[done..], position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Fills `buffer` from `offset` with as many system calls as it takes.
pub(crate) fn read_exact_at(file: &OwnedFd, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    read_rest(file, offset, buffer, 0)
}

/// As [`read_exact_at`], when the first `done` bytes are there already.
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
            // Past a short direct read at the end of the file the position is no longer aligned.
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
