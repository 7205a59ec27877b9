//! Threads of the operating system, behind the [`Thread`] of the contract.
//!
//! **Invariants**
//! - A panic of the body ends in [`ThreadPanicked`] at the join, nowhere else.

use std::{io, thread::JoinHandle};

use crate::{Thread, ThreadPanicked};

#[derive(Debug)]
struct OsThread(JoinHandle<()>);

impl Thread for OsThread {
    fn join(self: Box<Self>) -> Result<(), ThreadPanicked> {
        self.0.join().map_err(|_| ThreadPanicked)
    }
}

/// Starts a thread named `name`.
pub(crate) fn spawn(name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Thread>> {
    let handle = std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
    Ok(Box::new(OsThread(handle)))
}

/// Number of threads that the machine runs at once.
pub(crate) fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Lets the calling thread rest.
#[expect(clippy::disallowed_methods, reason = "this is the sleep that everything else asks for")]
pub(crate) fn sleep(duration: std::time::Duration) {
    std::thread::sleep(duration);
}
