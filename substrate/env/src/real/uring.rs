#![expect(unsafe_code, reason = "the kernel writes into buffers while io_uring requests are in flight")]
//! Batches of reads through Linux io_uring.
//!
//! Rings are pooled: a batch takes one, keeps up to [`RING_DEPTH`] reads in flight on it and returns it. A
//! single background read or write has its own ring while it lasts.
//!
//! **Invariants**
//! - The kernel holds no pointer into a caller's buffer after [`RingPool::read`] has returned; on a ring
//!   error, requests accepted by the kernel are awaited first.
//! - A pooled ring has nothing in flight and an empty submission queue; a failed ring is dropped.
//! - A background read or write owns its buffer, and frees or returns it only after its completion was
//!   reaped.
//! - Nothing between the first submission and the last completion may panic.
//! - A forked child uses no ring of its parent: their memory is not mapped there, and requests in flight
//!   belong to the parent.

use std::{
    fmt, io, mem,
    os::fd::{AsRawFd, OwnedFd},
};

use io_uring::{IoUring, Probe, opcode, types};
use parking_lot::Mutex;
use testudo_base::{
    num::{u64_of, usize_of},
    sync::Arc,
};

use crate::{
    AlignedBuffer, PendingRead, PendingWrite, Process, ReadRequest,
    real::plain_io::{read_exact_at, read_rest, write_rest},
};

/// Reads in flight on one ring.
const RING_DEPTH: usize = 64;
/// Maximum idle rings in the pool; concurrent readers create more, which are dropped afterwards.
const IDLE_RINGS_MAX: usize = 16;
/// Maximum bytes of a request; the rest of a longer one is read or written the ordinary way.
const BYTES_MAX: usize = 1 << 30;
/// Retries for a kernel short of memory before the ring counts as failed.
const BUSY_RETRIES_MAX: usize = 1000;

/// Idle rings. Lock: a leaf, held for a push or a pop only.
pub(crate) struct RingPool {
    idle: Arc<Mutex<Vec<IoUring>>>,
    /// The process that created it.
    process: Process,
}

impl fmt::Debug for RingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingPool({} idle)", self.idle.lock().len())
    }
}

impl RingPool {
    /// A pool with one ring, or `None` if this kernel or its policy refuses io_uring.
    pub(crate) fn probe() -> Option<Self> {
        let ring = new_ring().ok()?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).ok()?;
        let is_supported = probe.is_supported(opcode::Read::CODE) && probe.is_supported(opcode::Write::CODE);
        is_supported.then(|| {
            let process = Process::current();
            Self { idle: Arc::new(Mutex::new(vec![ring])), process }
        })
    }

    /// Completes every request.
    pub(crate) fn read(&self, file: &OwnedFd, requests: &mut [ReadRequest<'_>]) {
        let pooled = self.idle.lock().pop();
        let Some(mut ring) = pooled.or_else(|| new_ring().ok()) else {
            // No descriptor or memory for another ring: slower, but it works.
            for request in requests {
                request.result = read_exact_at(file, request.offset, request.buffer);
            }
            return;
        };
        if Flight::new(&mut ring, file, requests).run() {
            put_back(&self.idle, ring);
        }
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
        let pooled = self.idle.lock().pop();
        let ring = pooled.or_else(|| new_ring().ok());
        let (idle, process) = (Arc::clone(&self.idle), self.process.clone());
        Transfer { ring, idle, file: Arc::clone(file), offset, buffer, process }
    }
}

fn put_back(idle: &Mutex<Vec<IoUring>>, ring: IoUring) {
    let mut idle = idle.lock();
    if idle.len() < IDLE_RINGS_MAX {
        idle.push(ring);
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
    idle: Arc<Mutex<Vec<IoUring>>>,
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
        debug_assert!(length <= self.buffer.len(), "the transfer stays within its buffer");
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
        // before either is released; the buffer is not accessed before that.
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
    /// transfer must be repeated.
    fn reap(&mut self) -> Option<usize> {
        let mut ring = self.ring.take()?;
        if !self.process.is_current() {
            mem::forget(ring);
            return None;
        }
        let result = loop {
            if let Some(completion) = ring.completion().next() {
                break completion.result();
            }
            if ring.submit_and_wait(1).is_err() {
                std::thread::yield_now();
            }
        };
        put_back(&self.idle, ring);
        usize::try_from(result).ok()
    }

    fn take_buffer(&mut self) -> AlignedBuffer {
        mem::replace(&mut self.buffer, AlignedBuffer::zeroed(0))
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.reap();
    }
}

#[derive(Debug)]
struct RingRead(Transfer);

impl PendingRead for RingRead {
    fn wait(self: Box<Self>) -> (AlignedBuffer, io::Result<()>) {
        let mut read = self.0;
        let done = read.reap();
        let mut buffer = read.take_buffer();
        if let Err(error) = read.process.check() {
            return (buffer, Err(io::Error::other(error)));
        }
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
        // As for a read: missing bytes or errors are left to the ordinary write.
        let done = transfer.reap().unwrap_or(0);
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

/// One batch on one ring.
struct Flight<'a, 'b> {
    ring: &'a mut IoUring,
    file: &'a OwnedFd,
    requests: &'a mut [ReadRequest<'b>],
    /// Whether each request has its result.
    finished: Vec<bool>,
    /// Index of the first request not yet pushed.
    next: usize,
    /// Requests pushed but not reaped.
    in_flight: usize,
}

impl<'a, 'b> Flight<'a, 'b> {
    fn new(ring: &'a mut IoUring, file: &'a OwnedFd, requests: &'a mut [ReadRequest<'b>]) -> Self {
        let finished = vec![false; requests.len()];
        Self { ring, file, requests, finished, next: 0, in_flight: 0 }
    }

    /// Completes every request; false if the ring must not be used again.
    fn run(mut self) -> bool {
        let mut busy = 0;
        loop {
            self.push_requests();
            if self.in_flight == 0 {
                return true;
            }
            // With more to push, wake up when half of the ring is free again.
            let awaited =
                if self.next < self.requests.len() { self.in_flight.div_ceil(2) } else { self.in_flight };
            match self.ring.submit_and_wait(awaited) {
                Ok(_) => busy = 0,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_busy(&error) && busy < BUSY_RETRIES_MAX => {
                    busy += 1;
                    std::thread::yield_now();
                }
                Err(_) => {
                    self.abandon();
                    return false;
                }
            }
            self.reap();
        }
    }

    fn push_requests(&mut self) {
        let file = types::Fd(self.file.as_raw_fd());
        let mut queue = self.ring.submission();
        while self.in_flight < RING_DEPTH && self.next < self.requests.len() {
            let request = &mut self.requests[self.next];
            let length = testudo_base::num::u32_of(request.buffer.len().min(BYTES_MAX));
            let entry = opcode::Read::new(file, request.buffer.as_mut_ptr(), length)
                .offset(request.offset)
                .build()
                .user_data(u64_of(self.next));
            // SAFETY: the descriptor and the exclusively borrowed buffer outlive the request, since `run`
            // returns only after every request accepted by the kernel was reaped. The buffer is not accessed
            // before that.
            let pushed = unsafe { queue.push(&entry) };
            if pushed.is_err() {
                return;
            }
            self.next += 1;
            self.in_flight += 1;
        }
    }

    fn reap(&mut self) {
        for completion in self.ring.completion() {
            self.in_flight -= 1;
            let index = usize_of(completion.user_data());
            let (Some(request), Some(finished)) =
                (self.requests.get_mut(index), self.finished.get_mut(index))
            else {
                continue;
            };
            *finished = true;
            request.result = match usize::try_from(completion.result()) {
                Ok(0) if !request.buffer.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => read_rest(self.file, request.offset, request.buffer, count),
                // A ring error or a real one: the ordinary read determines which.
                Err(_) => read_exact_at(self.file, request.offset, request.buffer),
            };
        }
    }

    /// The kernel accepts no more requests: waits for those in flight and reads the rest the ordinary way.
    fn abandon(&mut self) {
        let untaken = self.ring.submission().len();
        while self.in_flight > untaken {
            self.reap();
            std::thread::yield_now();
        }
        for (request, finished) in self.requests.iter_mut().zip(&self.finished) {
            if !finished {
                request.result = read_exact_at(self.file, request.offset, request.buffer);
            }
        }
    }
}

fn is_busy(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    number == Some(rustix::io::Errno::AGAIN.raw_os_error())
        || number == Some(rustix::io::Errno::BUSY.raw_os_error())
}

#[cfg(test)]
mod tests;
