//! Threads of the operating system, or of the seeded scheduler, behind the [`Thread`] trait.
//!
//! **Invariants**
//! - A panic of the body is reported as [`ThreadPanicked`] by the join, nowhere else.

#[cfg(not(testudo_shuttle))]
use std::thread::{Builder, JoinHandle};
use std::{fmt, io};

#[cfg(testudo_shuttle)]
use shuttle::thread::{Builder, JoinHandle};

use crate::{Thread, ThreadPanicked};

struct StartedThread(JoinHandle<()>);

impl fmt::Debug for StartedThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StartedThread")
    }
}

impl Thread for StartedThread {
    fn join(self: Box<Self>) -> Result<(), ThreadPanicked> {
        self.0.join().map_err(|_| ThreadPanicked)
    }
}

/// Starts a thread named `name`.
pub(crate) fn spawn(name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Thread>> {
    let handle = Builder::new().name(name.to_owned()).spawn(body)?;
    Ok(Box::new(StartedThread(handle)))
}

/// Number of threads that the machine can run in parallel.
pub(crate) fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Suspends the calling thread.
#[cfg(not(testudo_shuttle))]
#[expect(clippy::disallowed_methods, reason = "the only real sleep")]
pub(crate) fn sleep(duration: std::time::Duration) {
    std::thread::sleep(duration);
}

/// Yields to the other threads of the scheduler.
#[cfg(testudo_shuttle)]
pub(crate) fn sleep(_duration: std::time::Duration) {
    shuttle::thread::yield_now();
}
