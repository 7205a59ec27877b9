//! Threads of the operating system, or of the seeded scheduler, behind the [`Thread`] of the contract.
//!
//! **Invariants**
//! - A panic of the body ends in [`ThreadPanicked`] at the join, nowhere else.

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

/// Number of threads that the machine runs at once.
pub(crate) fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Lets the calling thread rest.
#[cfg(not(testudo_shuttle))]
#[expect(clippy::disallowed_methods, reason = "this is the sleep that everything else asks for")]
pub(crate) fn sleep(duration: std::time::Duration) {
    std::thread::sleep(duration);
}

/// Lets the other threads of the scheduler go first.
#[cfg(testudo_shuttle)]
pub(crate) fn sleep(_duration: std::time::Duration) {
    shuttle::thread::yield_now();
}
