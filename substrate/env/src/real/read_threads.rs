//! A few threads that read in parallel, for kernels without io_uring.
//!
//! The caller of a batch also works on it, so a batch completes even if no thread could be started. Threads
//! read into their own buffers, which the caller copies. So a thread that outlives the caller never holds the
//! caller's memory, without unsafe code.
//!
//! **Invariants**
//! - Threads start with the first batch, never more than [`THREADS_MAX`], and end with the environment.
//! - A thread holds only descriptors and buffers, never the environment, which joins it on drop.
//! - Locks: a batch's `done` and the queue are never held together.

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
};

use parking_lot::{Condvar, Mutex};

use crate::{AlignedBuffer, PendingRead, ReadRequest, real::plain_io::read_exact_at};

/// More threads than this do not help a device without a better interface.
const THREADS_MAX: usize = 8;

/// The pool.
#[derive(Debug, Default)]
pub(crate) struct ReadThreads {
    shared: Arc<Shared>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// Each entry invites one thread to help with the batch.
    invitations: VecDeque<Arc<Batch>>,
    closing: bool,
}

#[derive(Debug)]
struct Batch {
    file: Arc<OwnedFd>,
    /// Offset and length of each read.
    reads: Vec<(u64, usize)>,
    /// Index of the next read that is not taken.
    next: AtomicUsize,
    done: Mutex<Vec<(usize, io::Result<AlignedBuffer>)>>,
    progress: Condvar,
}

impl Batch {
    fn take(&self) -> Option<usize> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.reads.len()).then_some(index)
    }

    /// Reads for a batch until no read is left.
    fn help(&self) {
        while let Some(index) = self.take() {
            let (offset, length) = self.reads[index];
            let mut buffer = AlignedBuffer::unfilled(length);
            let result = read_exact_at(&self.file, offset, &mut buffer[..length]).map(|()| buffer);
            self.done.lock().push((index, result));
            self.progress.notify_one();
        }
    }
}

impl ReadThreads {
    /// Completes every request.
    pub(crate) fn read(&self, file: &Arc<OwnedFd>, requests: &mut [ReadRequest<'_>]) {
        let batch = Arc::new(Batch {
            file: Arc::clone(file),
            reads: requests.iter().map(|request| (request.offset, request.buffer.len())).collect(),
            next: AtomicUsize::new(0),
            done: Mutex::default(),
            progress: Condvar::new(),
        });
        self.invite(&batch, requests.len().saturating_sub(1));
        let mut own = 0;
        while let Some(index) = batch.take() {
            let request = &mut requests[index];
            request.result = read_exact_at(file, request.offset, request.buffer);
            own += 1;
        }
        let helped = requests.len() - own;
        let mut done = batch.done.lock();
        while done.len() < helped {
            batch.progress.wait(&mut done);
        }
        for (index, result) in done.drain(..) {
            let request = &mut requests[index];
            request.result = result.map(|bytes| {
                let length = request.buffer.len();
                request.buffer.copy_from_slice(&bytes[..length]);
            });
        }
    }

    /// Starts to read into a separate buffer.
    pub(crate) fn start(
        &self,
        file: &Arc<OwnedFd>,
        offset: u64,
        buffer: AlignedBuffer,
    ) -> Box<dyn PendingRead> {
        let batch = Arc::new(Batch {
            file: Arc::clone(file),
            reads: vec![(offset, buffer.len())],
            next: AtomicUsize::new(0),
            done: Mutex::default(),
            progress: Condvar::new(),
        });
        self.invite(&batch, 1);
        Box::new(ThreadRead { batch, buffer })
    }

    /// Invites up to `wanted` threads to help.
    fn invite(&self, batch: &Arc<Batch>, wanted: usize) {
        let wanted = THREADS_MAX.min(wanted);
        self.ensure_threads(wanted);
        let mut queue = self.shared.queue.lock();
        queue.invitations.extend((0..wanted).map(|_| Arc::clone(batch)));
        drop(queue);
        self.shared.wake.notify_all();
    }

    fn ensure_threads(&self, wanted: usize) {
        let mut handles = self.handles.lock();
        while handles.len() < wanted {
            let shared = Arc::clone(&self.shared);
            let started = std::thread::Builder::new()
                .name("testudo-read".to_owned())
                .spawn(move || while_open(&shared, |batch| batch.help()));
            match started {
                Ok(handle) => handles.push(handle),
                // Then the caller reads alone.
                Err(_) => return,
            }
        }
    }
}

/// A single read by a thread.
#[derive(Debug)]
struct ThreadRead {
    batch: Arc<Batch>,
    /// The caller's buffer, used only if no thread has taken the read.
    buffer: AlignedBuffer,
}

impl PendingRead for ThreadRead {
    fn wait(self: Box<Self>) -> (AlignedBuffer, io::Result<()>) {
        let mut read = self;
        let mut buffer = std::mem::replace(&mut read.buffer, AlignedBuffer::zeroed(0));
        let batch = &read.batch;
        if batch.take().is_some() {
            let result = read_exact_at(&batch.file, batch.reads[0].0, &mut buffer);
            return (buffer, result);
        }
        let mut done = batch.done.lock();
        loop {
            match done.pop() {
                Some((_, Ok(filled))) => return (filled, Ok(())),
                Some((_, Err(error))) => return (buffer, Err(error)),
                None => batch.progress.wait(&mut done),
            }
        }
    }
}

impl Drop for ThreadRead {
    fn drop(&mut self) {
        // A thread that is reading has its own buffer and descriptor; no other thread needs to start.
        let _ = self.batch.take();
    }
}

/// Serves invitations until the pool closes.
fn while_open(shared: &Shared, serve: impl Fn(&Batch)) {
    let mut queue = shared.queue.lock();
    while !queue.closing {
        let Some(batch) = queue.invitations.pop_front() else {
            shared.wake.wait(&mut queue);
            continue;
        };
        drop(queue);
        serve(&batch);
        drop(batch);
        queue = shared.queue.lock();
    }
}

impl Drop for ReadThreads {
    fn drop(&mut self) {
        self.shared.queue.lock().closing = true;
        self.shared.wake.notify_all();
        for handle in self.handles.get_mut().drain(..) {
            // A panicked reader has nothing more to report.
            let _ = handle.join();
        }
    }
}
