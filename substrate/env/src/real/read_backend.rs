//! Backend for batches of reads and for background I/O: io_uring where the kernel allows it, otherwise a few
//! threads.
//!
//! **Invariants**
//! - Both ways give the same results, including errors; only the speed differs.
//! - When a call returns, no read of its batch accesses the caller's buffers.
//! - A forked child neither uses nor ends its parent's backend: the child does not have the threads, and the
//!   rings are not mapped.

use std::{mem, os::fd::OwnedFd};

use testudo_base::sync::{Arc, OnceLock};

#[cfg(all(feature = "io-uring", target_os = "linux"))]
use crate::real::uring::RingPool;
use crate::{
    AlignedBuffer, PendingRead, PendingWrite, Process, ReadRequest, WriteRequest,
    pending_write::FinishedWrite,
    real::{
        plain_io::{read_exact_at, write_rest},
        read_threads::ReadThreads,
    },
};

/// Performs batches of reads for all files of one environment. The first batch chooses the way, so an
/// environment costs nothing before that.
#[derive(Debug)]
pub(crate) struct ReadBackend {
    allow_ring: bool,
    way: OnceLock<Way>,
    /// The process that created it.
    process: Process,
}

#[derive(Debug)]
enum Way {
    #[cfg(all(feature = "io-uring", target_os = "linux"))]
    Ring(RingPool),
    Threads(ReadThreads),
}

impl ReadBackend {
    /// Uses io_uring if `allow_ring` and the kernel supports it, otherwise threads.
    pub(crate) fn new(allow_ring: bool) -> Self {
        Self { allow_ring, way: OnceLock::new(), process: Process::current() }
    }

    /// Returns a new backend for a forked child.
    pub(crate) fn for_child(&self) -> Arc<Self> {
        Arc::new(Self::new(self.allow_ring))
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

    /// Fails once a background request was given up because the device did not answer. Files then refuse
    /// writes and syncs: a write that was given up may still reach the device.
    #[inline]
    pub(crate) fn check(&self) -> std::io::Result<()> {
        match self.way.get() {
            #[cfg(all(feature = "io-uring", target_os = "linux"))]
            Some(Way::Ring(pool)) => pool.check(),
            _ => Ok(()),
        }
    }

    /// A backend with these rings.
    #[cfg(all(test, feature = "io-uring", target_os = "linux"))]
    pub(crate) fn with_rings(pool: RingPool) -> Self {
        let backend = Self::new(true);
        assert!(backend.way.set(Way::Ring(pool)).is_ok(), "a new backend has chosen no way");
        backend
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
    /// Completes every write; without io_uring one after the other.
    pub(crate) fn write(&self, file: &OwnedFd, requests: &mut [WriteRequest<'_>]) {
        match self.way() {
            #[cfg(all(feature = "io-uring", target_os = "linux"))]
            Way::Ring(pool) if requests.len() > 1 => pool.write(file, requests),
            _ => {
                for request in requests {
                    request.result = write_rest(file, request.offset, request.bytes, 0);
                }
            }
        }
    }

    /// Starts to write the first `length` bytes of `buffer`; without io_uring the write ends here, too.
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

impl Drop for ReadBackend {
    fn drop(&mut self) {
        if !self.process.is_current() {
            mem::forget(self.way.take());
        }
    }
}
