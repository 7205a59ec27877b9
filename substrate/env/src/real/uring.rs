#![expect(unsafe_code, reason = "the kernel writes into buffers while io_uring requests are in flight")]
//! Batches of reads and writes through Linux io_uring.
//!
//! Rings are pooled: a batch takes one, keeps up to [`RING_DEPTH`] requests in flight on it and returns it. A
//! single background read or write has its own ring while it lasts.
//!
//! **Invariants**
//! - The kernel holds no pointer into a caller's buffer: a batch uses its own staging memory
//!   (`uring/flight.rs`), and a background read or write owns its buffer.
//! - Memory that the kernel may still access is released only after its completion was reaped; if none comes
//!   within [`SILENCE_MAX`], the memory and the ring are leaked on purpose.
//! - After such a failure every request of the pool fails, and [`RingPool::check`] makes the files refuse
//!   writes and syncs: a write that was given up may still reach the device, and must not replace newer data.
//! - A pooled ring has nothing in flight and an empty submission queue; a failed ring is dropped.
//! - Nothing between the first submission and the last completion may panic.
//! - A forked child uses no ring of its parent: their memory is not mapped there, and requests in flight
//!   belong to the parent.

use std::{
    fmt, io, mem,
    os::fd::{AsRawFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use io_uring::{IoUring, Probe, opcode, types};
use parking_lot::Mutex;
use rustix::io::Errno;
use testudo_base::sync::Arc;

use self::flight::{End, Flight, Request};
use crate::{
    AlignedBuffer, PendingRead, PendingWrite, Process, ReadRequest, WriteRequest,
    real::{
        plain_io::{read_exact_at, read_rest, write_rest},
        read_monotonic,
    },
};

mod flight;

/// Reads in flight on one ring.
const RING_DEPTH: usize = 64;
/// Maximum idle rings in the pool; concurrent readers create more, which are dropped afterwards.
const IDLE_RINGS_MAX: usize = 16;
/// Maximum bytes of a request; the rest of a longer one is read or written the ordinary way.
const BYTES_MAX: usize = 1 << 30;
/// Maximum time without a completion. Linux aborts a command of a disk or an NVMe drive after 30 s, resets
/// the device and repeats the command; a device that is silent for two such periods is given up.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The rings of a pool, and whether one of them has failed.
struct Rings {
    /// Lock: a leaf, held for a push or a pop only.
    idle: Mutex<Vec<IoUring>>,
    /// A request was given up; permanent.
    has_failed: AtomicBool,
    silence_max: Duration,
}

impl Rings {
    /// Takes an idle ring or creates one; `None` if there is no descriptor or memory for it, or after a
    /// failure.
    fn take(&self) -> Option<IoUring> {
        if self.has_failed.load(Relaxed) {
            return None;
        }
        let pooled = self.idle.lock().pop();
        pooled.or_else(|| new_ring().ok())
    }

    fn put_back(&self, ring: IoUring) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_RINGS_MAX {
            idle.push(ring);
        }
    }

    /// Declares the pool failed. The ring is leaked together with the memory of its requests.
    fn fail(&self, ring: IoUring) -> io::Error {
        self.has_failed.store(true, Relaxed);
        mem::forget(ring);
        silence_error()
    }

    fn check(&self) -> io::Result<()> {
        if self.has_failed.load(Relaxed) { Err(silence_error()) } else { Ok(()) }
    }
}

/// The error of a request that was given up: the state of the device is unknown, so it ends all writes of a
/// store (`Poison` in `testudo_base::errno`).
fn silence_error() -> io::Error {
    Errno::TIMEDOUT.into()
}

/// Time since the last completion.
struct Silence {
    since: Instant,
    max: Duration,
}

impl Silence {
    fn new(max: Duration) -> Self {
        Self { since: read_monotonic(), max }
    }

    fn end(&mut self) {
        self.since = read_monotonic();
    }

    fn left(&self) -> Duration {
        self.max.saturating_sub(read_monotonic().saturating_duration_since(self.since))
    }

    fn is_over(&self) -> bool {
        self.left().is_zero()
    }
}

/// Submits what is queued and waits for `awaited` completions, or until the silence is too long. `Ok` and
/// `Err` say nothing about completions.
fn submit_and_wait(ring: &IoUring, awaited: usize, silence: &Silence) -> io::Result<()> {
    let left = types::Timespec::from(silence.left());
    let arguments = types::SubmitArgs::new().timespec(&left);
    match ring.submitter().submit_with_args(awaited, &arguments) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(Errno::TIME.raw_os_error()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A pool of rings.
pub(crate) struct RingPool {
    rings: Arc<Rings>,
    /// The process that created it.
    process: Process,
}

impl fmt::Debug for RingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingPool({} idle)", self.rings.idle.lock().len())
    }
}

impl RingPool {
    /// A pool with one ring, or `None` if this kernel or its policy refuses io_uring, or cannot bound a wait.
    pub(crate) fn probe() -> Option<Self> {
        let ring = new_ring().ok()?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).ok()?;
        let is_supported = probe.is_supported(opcode::Read::CODE)
            && probe.is_supported(opcode::Write::CODE)
            && ring.params().is_feature_ext_arg();
        is_supported.then(|| Self::of(vec![ring], SILENCE_MAX))
    }

    /// A pool of these rings.
    fn of(idle: Vec<IoUring>, silence_max: Duration) -> Self {
        let rings = Rings { idle: Mutex::new(idle), has_failed: AtomicBool::new(false), silence_max };
        Self { rings: Arc::new(rings), process: Process::current() }
    }

    /// Fails once a request was given up.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.rings.check()
    }

    /// Completes every read.
    pub(crate) fn read(&self, file: &OwnedFd, requests: &mut [ReadRequest<'_>]) {
        if !self.fly(file, requests) {
            for request in requests {
                // Without a failure there was no descriptor or memory for a ring: slower, but it works.
                request.result =
                    self.check().and_then(|()| read_exact_at(file, request.offset, request.buffer));
            }
        }
    }

    /// Completes every write.
    pub(crate) fn write(&self, file: &OwnedFd, requests: &mut [WriteRequest<'_>]) {
        if !self.fly(file, requests) {
            for request in requests {
                request.result =
                    self.check().and_then(|()| write_rest(file, request.offset, request.bytes, 0));
            }
        }
    }

    /// Completes every request on a ring; `false` without one.
    fn fly<R: Request>(&self, file: &OwnedFd, requests: &mut [R]) -> bool {
        let Some(mut ring) = self.rings.take() else { return false };
        match Flight::new(&mut ring, file, requests).run(Silence::new(self.rings.silence_max)) {
            End::Complete => self.rings.put_back(ring),
            End::Refused => drop(ring),
            End::Silent => drop(self.rings.fail(ring)),
        }
        true
    }

    /// Starts to fill `buffer`.
    pub(crate) fn start(
        &self,
        file: &Arc<OwnedFd>,
        offset: u64,
        buffer: AlignedBuffer,
    ) -> Box<dyn PendingRead> {
        let mut transfer = self.transfer(file, offset, buffer);
        let length = transfer.buffer.len();
        transfer.submit(Direction::Read, length);
        Box::new(RingRead(transfer))
    }

    /// Starts to write the first `length` bytes of `buffer`.
    pub(crate) fn start_write(
        &self,
        file: &Arc<OwnedFd>,
        offset: u64,
        buffer: AlignedBuffer,
        length: usize,
    ) -> Box<dyn PendingWrite> {
        assert!(length <= buffer.len(), "a write stays within its buffer");
        let mut transfer = self.transfer(file, offset, buffer);
        transfer.submit(Direction::Write, length);
        Box::new(RingWrite { transfer, length })
    }

    fn transfer(&self, file: &Arc<OwnedFd>, offset: u64, buffer: AlignedBuffer) -> Transfer {
        let (rings, process) = (Arc::clone(&self.rings), self.process.clone());
        Transfer { ring: rings.take(), rings, file: Arc::clone(file), offset, buffer, process }
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// A read or write in the background.
struct Transfer {
    /// The ring on which it is in flight; `None` if it is not.
    ring: Option<IoUring>,
    rings: Arc<Rings>,
    file: Arc<OwnedFd>,
    offset: u64,
    buffer: AlignedBuffer,
    process: Process,
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {}", self.buffer.len(), self.offset)
    }
}

impl Transfer {
    /// Submits `length` bytes to the kernel. If the kernel does not accept them, `ring` is dropped with the
    /// request. REQUIRES: the buffer has at least `length` bytes.
    fn submit(&mut self, direction: Direction, length: usize) {
        assert!(length <= self.buffer.len(), "the transfer stays within its buffer");
        let Some(mut ring) = self.ring.take() else { return };
        let length = testudo_base::num::u32_of(length.min(BYTES_MAX));
        let file = types::Fd(self.file.as_raw_fd());
        let entry = match direction {
            Direction::Read => {
                opcode::Read::new(file, self.buffer.as_mut_ptr(), length).offset(self.offset).build()
            }
            Direction::Write => {
                opcode::Write::new(file, self.buffer.as_ptr(), length).offset(self.offset).build()
            }
        };
        // SAFETY: descriptor and buffer belong to `self`, whose `Drop` and `reap` wait for the completion
        // before the buffer is released, or leak it; it is not accessed before that. The request holds the
        // file open.
        let pushed = unsafe { ring.submission().push(&entry) };
        if pushed.is_err() {
            return;
        }
        let submitted = ring.submit();
        if submitted.is_ok() || ring.submission().is_empty() {
            self.ring = Some(ring);
        }
    }

    /// Waits until the kernel has released the buffer; returns the number of bytes moved, or `None` if the
    /// transfer must be repeated. After an error the buffer is another one: the kernel may still access the
    /// original, which is leaked.
    fn reap(&mut self) -> io::Result<Option<usize>> {
        let Some(mut ring) = self.ring.take() else { return self.rings.check().map(|()| None) };
        if !self.process.is_current() {
            mem::forget(ring);
            return Ok(None);
        }
        let silence = Silence::new(self.rings.silence_max);
        loop {
            let completion = ring.completion().next();
            if let Some(completion) = completion {
                self.rings.put_back(ring);
                return Ok(usize::try_from(completion.result()).ok());
            }
            if silence.is_over() {
                mem::forget(self.take_buffer());
                return Err(self.rings.fail(ring));
            }
            if submit_and_wait(&ring, 1, &silence).is_err() {
                std::thread::yield_now();
            }
        }
    }

    fn take_buffer(&mut self) -> AlignedBuffer {
        mem::replace(&mut self.buffer, AlignedBuffer::zeroed(0))
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        // An error is remembered by the pool.
        let _ = self.reap();
    }
}

#[derive(Debug)]
struct RingRead(Transfer);

impl PendingRead for RingRead {
    fn wait(self: Box<Self>) -> (AlignedBuffer, io::Result<()>) {
        let mut read = self.0;
        let length = read.buffer.len();
        let done = match read.reap() {
            Ok(done) => done,
            Err(error) => return (AlignedBuffer::zeroed(length), Err(error)),
        };
        let mut buffer = read.take_buffer();
        if let Err(error) = read.process.check() {
            return (buffer, Err(io::Error::other(error)));
        }
        debug_assert!(done.is_none_or(|done| done <= buffer.len()), "the kernel stays within the buffer");
        let result = match done {
            Some(0) if !buffer.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(count) => read_rest(&read.file, read.offset, &mut buffer, count),
            // Not accepted by the kernel, a ring error, or a real one: the ordinary read determines which.
            None => read_exact_at(&read.file, read.offset, &mut buffer),
        };
        (buffer, result)
    }
}

#[derive(Debug)]
struct RingWrite {
    transfer: Transfer,
    length: usize,
}

impl PendingWrite for RingWrite {
    fn wait(self: Box<Self>) -> (AlignedBuffer, io::Result<()>) {
        let Self { mut transfer, length } = *self;
        let buffer_bytes = transfer.buffer.len();
        // As for a read: missing bytes or errors are left to the ordinary write.
        let done = match transfer.reap() {
            Ok(done) => done.unwrap_or(0),
            Err(error) => return (AlignedBuffer::zeroed(buffer_bytes), Err(error)),
        };
        debug_assert!(done <= length, "the kernel writes no more than requested");
        let buffer = transfer.take_buffer();
        if let Err(error) = transfer.process.check() {
            return (buffer, Err(io::Error::other(error)));
        }
        let result = write_rest(&transfer.file, transfer.offset, &buffer[..length], done);
        (buffer, result)
    }
}

fn new_ring() -> io::Result<IoUring> {
    let depth = testudo_base::num::u32_of(RING_DEPTH);
    IoUring::builder().dontfork().build(depth)
}

#[cfg(test)]
mod tests;
