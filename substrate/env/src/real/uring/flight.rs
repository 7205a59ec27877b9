#![expect(unsafe_code, reason = "the kernel accesses staging memory while requests are in flight")]
//! One batch of reads, or of writes, on one ring.
//!
//! The kernel reads into staging memory, from which the bytes are copied, and writes from it. A caller's
//! buffer could not be leaked if a device stops answering; the copy costs a few percent of the request.
//!
//! **Invariants**
//! - A slot of the staging memory is in use by one request at a time, from its submission until its
//!   completion was reaped.
//! - Staging memory is freed only if nothing is in flight; otherwise it is leaked, also by a panic.

use std::{
    io,
    mem::ManuallyDrop,
    os::fd::{AsRawFd, OwnedFd},
    ptr::NonNull,
    slice,
};

use io_uring::{IoUring, opcode, squeue, types};
use testudo_base::{
    PAGE_SIZE,
    num::{u32_of, u64_of, usize_of},
};

use super::{RING_DEPTH, Silence, silence_error, submit_and_wait};
use crate::{
    AlignedBuffer, ReadRequest, WriteRequest,
    real::plain_io::{read_exact_at, read_rest, write_rest},
};

/// Retries for a kernel short of memory before the ring counts as failed.
const BUSY_RETRIES_MAX: usize = 1000;
/// Maximum bytes of a part; longer requests are several parts, which devices read concurrently.
const PART_BYTES_MAX: usize = 64 << 10;
/// Maximum staging memory of a batch: a full ring of eight pages per part. It is not part of any budget, so
/// it is small.
const STAGING_BYTES_MAX: usize = 2 << 20;

/// How a flight ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing is in flight.
    Complete,
    /// The ring refused requests; nothing is in flight, and the ring must not be used again.
    Refused,
    /// Requests are in flight and were given up.
    Silent,
}

/// A read or a write of a batch.
pub(super) trait Request {
    /// The kernel's request for `length` bytes at `memory`.
    fn entry(file: types::Fd, offset: u64, memory: *mut u8, length: u32) -> squeue::Entry;
    /// Copies the bytes from `start` on to the staging memory, if they are to be written.
    fn stage(&self, start: usize, staging: &mut [u8]);
    /// Completes a part of which the kernel has moved all bytes of `staged`, by ordinary calls if more
    /// remain.
    fn complete(&mut self, file: &OwnedFd, part: Part, staged: &[u8]) -> io::Result<()>;
    /// Performs a part by ordinary calls.
    fn perform(&mut self, file: &OwnedFd, part: Part) -> io::Result<()>;
    fn offset(&self) -> u64;
    fn length(&self) -> usize;
    fn result(&mut self) -> &mut io::Result<()>;
}

impl Request for ReadRequest<'_> {
    fn entry(file: types::Fd, offset: u64, memory: *mut u8, length: u32) -> squeue::Entry {
        opcode::Read::new(file, memory, length).offset(offset).build()
    }

    fn stage(&self, _: usize, _: &mut [u8]) {}

    fn complete(&mut self, file: &OwnedFd, part: Part, staged: &[u8]) -> io::Result<()> {
        if staged.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let target = &mut self.buffer[part.start..part.start + part.length];
        target[..staged.len()].copy_from_slice(staged);
        read_rest(file, self.offset + u64_of(part.start), target, staged.len())
    }

    fn perform(&mut self, file: &OwnedFd, part: Part) -> io::Result<()> {
        let target = &mut self.buffer[part.start..part.start + part.length];
        read_exact_at(file, self.offset + u64_of(part.start), target)
    }

    fn offset(&self) -> u64 {
        self.offset
    }

    fn length(&self) -> usize {
        self.buffer.len()
    }

    fn result(&mut self) -> &mut io::Result<()> {
        &mut self.result
    }
}

impl Request for WriteRequest<'_> {
    fn entry(file: types::Fd, offset: u64, memory: *mut u8, length: u32) -> squeue::Entry {
        opcode::Write::new(file, memory, length).offset(offset).build()
    }

    fn stage(&self, start: usize, staging: &mut [u8]) {
        staging.copy_from_slice(&self.bytes[start..start + staging.len()]);
    }

    fn complete(&mut self, file: &OwnedFd, part: Part, staged: &[u8]) -> io::Result<()> {
        let source = &self.bytes[part.start..part.start + part.length];
        write_rest(file, self.offset + u64_of(part.start), source, staged.len())
    }

    fn perform(&mut self, file: &OwnedFd, part: Part) -> io::Result<()> {
        self.complete(file, part, &[])
    }

    fn offset(&self) -> u64 {
        self.offset
    }

    fn length(&self) -> usize {
        self.bytes.len()
    }

    fn result(&mut self) -> &mut io::Result<()> {
        &mut self.result
    }
}

/// A part of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    request: usize,
    start: usize,
    length: usize,
}

/// One batch on one ring.
pub(super) struct Flight<'a, R> {
    ring: &'a mut IoUring,
    file: &'a OwnedFd,
    requests: &'a mut [R],
    staging: ManuallyDrop<AlignedBuffer>,
    /// The first byte of `staging`, which has no references while requests are in flight.
    base: NonNull<u8>,
    slot_bytes: usize,
    /// The part in each slot: in the submission queue or in the kernel.
    slots: Vec<Option<Part>>,
    free_slots: Vec<usize>,
    /// Start of the first part not yet pushed.
    next: (usize, usize),
}

impl<'a, R: Request> Flight<'a, R> {
    pub(super) fn new(ring: &'a mut IoUring, file: &'a OwnedFd, requests: &'a mut [R]) -> Self {
        let lengths = || requests.iter().map(Request::length);
        let slot_bytes = lengths().max().unwrap_or(0).clamp(1, PART_BYTES_MAX).next_multiple_of(PAGE_SIZE);
        let part_count: usize = lengths().map(|length| length.div_ceil(PART_BYTES_MAX)).sum();
        let slot_count = part_count.min(RING_DEPTH).min(STAGING_BYTES_MAX / slot_bytes).max(1);
        let mut staging = ManuallyDrop::new(AlignedBuffer::unfilled(slot_count * slot_bytes));
        let base = NonNull::from(&mut **staging).cast();
        let free_slots = (0..slot_count).rev().collect();
        Self {
            ring,
            file,
            requests,
            staging,
            base,
            slot_bytes,
            slots: vec![None; slot_count],
            free_slots,
            next: (0, 0),
        }
    }

    fn in_flight(&self) -> usize {
        debug_assert!(self.free_slots.len() <= self.slots.len(), "a slot is freed once");
        self.slots.len() - self.free_slots.len()
    }

    /// Completes every request.
    pub(super) fn run(mut self, mut silence: Silence) -> End {
        let mut busy = 0;
        loop {
            self.push_parts();
            let in_flight = self.in_flight();
            if in_flight == 0 && self.next.0 == self.requests.len() {
                self.free_staging();
                return End::Complete;
            }
            if in_flight == 0 {
                // A submission queue that accepts nothing although it is empty.
                return self.abandon(silence);
            }
            // With more to push, wake up when half of the ring is free again.
            let awaited = if self.next.0 < self.requests.len() { in_flight.div_ceil(2) } else { in_flight };
            match submit_and_wait(self.ring, awaited, &silence) {
                Ok(()) => busy = 0,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_busy(&error) && busy < BUSY_RETRIES_MAX => {
                    busy += 1;
                    std::thread::yield_now();
                }
                Err(_) => return self.abandon(silence),
            }
            if self.reap() {
                silence.end();
            } else if silence.is_over() {
                return self.give_up();
            }
        }
    }

    /// The next part that was not pushed.
    fn next_part(&self) -> Option<Part> {
        let (mut request, mut start) = self.next;
        while start >= self.requests.get(request)?.length() {
            (request, start) = (request + 1, 0);
        }
        let length = (self.requests[request].length() - start).min(self.slot_bytes);
        Some(Part { request, start, length })
    }

    fn push_parts(&mut self) {
        let file = types::Fd(self.file.as_raw_fd());
        while let Some(&slot) = self.free_slots.last() {
            let Some(part) = self.next_part() else {
                self.next = (self.requests.len(), 0);
                return;
            };
            let request = &self.requests[part.request];
            let offset = request.offset() + u64_of(part.start);
            debug_assert!(part.length <= self.slot_bytes && slot < self.slots.len(), "a part fits its slot");
            let memory = self.base.as_ptr().wrapping_add(slot * self.slot_bytes);
            // SAFETY: the slot is within the staging memory, whose bytes were all initialized, and free: the
            // kernel does not access it, and nothing else has a reference to it.
            request.stage(part.start, unsafe { slice::from_raw_parts_mut(memory, part.length) });
            let entry = R::entry(file, offset, memory, u32_of(part.length)).user_data(u64_of(slot));
            // SAFETY: the slot is free and within the staging memory, which is freed only if nothing is in
            // flight; nothing else accesses it before its completion was reaped. The request holds the file
            // open.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_err() {
                return;
            }
            self.free_slots.pop();
            debug_assert!(self.slots[slot].is_none(), "a free slot has no part");
            self.slots[slot] = Some(part);
            self.next = (part.request, part.start + part.length);
        }
    }

    /// Takes over the parts that were completed; returns whether there were any.
    fn reap(&mut self) -> bool {
        let mut any = false;
        while let Some(completion) = self.ring.completion().next() {
            let slot = usize_of(completion.user_data());
            let Some(part) = self.slots.get_mut(slot).and_then(Option::take) else { continue };
            self.free_slots.push(slot);
            any = true;
            let request = &mut self.requests[part.request];
            let done = match usize::try_from(completion.result()) {
                Ok(count) => {
                    let staged = self.base.as_ptr().wrapping_add(slot * self.slot_bytes);
                    // SAFETY: the slot is within the staging memory, whose bytes were all initialized, and
                    // the kernel has released it.
                    let staged = unsafe { slice::from_raw_parts(staged, count.min(part.length)) };
                    request.complete(self.file, part, staged)
                }
                // A ring error or a real one: the ordinary call determines which.
                Err(_) => request.perform(self.file, part),
            };
            if request.result().is_ok() {
                *request.result() = done;
            }
        }
        any
    }

    /// The kernel accepts no more requests: waits for those in flight and performs the rest the ordinary way.
    fn abandon(mut self, mut silence: Silence) -> End {
        let untaken = self.ring.submission().len();
        while self.in_flight() > untaken {
            if self.reap() {
                silence.end();
            } else if silence.is_over() {
                return self.give_up();
            }
            std::thread::yield_now();
        }
        let refused: Vec<Part> = self.slots.iter_mut().filter_map(Option::take).collect();
        refused.into_iter().for_each(|part| self.perform(part));
        while let Some(part) = self.next_part() {
            self.perform(part);
            self.next = (part.request, part.start + part.length);
        }
        self.free_staging();
        End::Refused
    }

    fn perform(&mut self, part: Part) {
        let request = &mut self.requests[part.request];
        if request.result().is_ok() {
            *request.result() = request.perform(self.file, part);
        }
    }

    /// Fails all incomplete requests. The kernel may still access the staging memory, which is leaked.
    fn give_up(&mut self) -> End {
        debug_assert!(self.in_flight() > 0, "something was awaited");
        for part in self.slots.iter().flatten() {
            *self.requests[part.request].result() = Err(silence_error());
        }
        let (request, start) = self.next;
        let is_partial = self.requests.get(request).is_some_and(|request| start < request.length());
        let first = if is_partial { request } else { request + 1 };
        for request in self.requests.iter_mut().skip(first) {
            *request.result() = Err(silence_error());
        }
        End::Silent
    }

    /// Frees the staging memory. Nothing is in flight.
    fn free_staging(&mut self) {
        debug_assert!(self.slots.iter().all(Option::is_none), "nothing is in flight");
        // SAFETY: this is the end of the flight: the memory is used no more, by the kernel or by `self`.
        unsafe { ManuallyDrop::drop(&mut self.staging) };
    }
}

fn is_busy(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    number == Some(rustix::io::Errno::AGAIN.raw_os_error())
        || number == Some(rustix::io::Errno::BUSY.raw_os_error())
}
