#![expect(unsafe_code, reason = "forks, and exits in the child without cleanup")]
//! Forked children, for tests.
//!
//! **Invariants**
//! - A child never returns to the test harness: it ends in [`end`].

use std::io;

/// Timeout after which a child counts as hung, and a signal ends it.
const SECONDS_MAX: u32 = 60;

/// A forked child.
#[derive(Debug)]
#[must_use]
pub(crate) struct Child(libc::pid_t);

/// Forks; `None` in the child.
pub(crate) fn fork() -> Option<Child> {
    // SAFETY: the child runs only what a child of a multithreaded process may: failing calls of the store,
    // and its exit.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: it only sets a timer of this process.
            unsafe { libc::alarm(SECONDS_MAX) };
            None
        }
        -1 => panic!("no fork: {}", io::Error::last_os_error()),
        child => Some(Child(child)),
    }
}

/// Exits immediately, as `_exit` does, and prints the failure if there is one.
pub(crate) fn end(outcome: Result<(), String>) -> ! {
    let code = match &outcome {
        Ok(()) => 0,
        Err(message) => {
            let line = format!("\nchild {}: {message}\n", std::process::id());
            // SAFETY: the buffer is valid. `std`'s locks may be held by a thread of the parent.
            unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
            1
        }
    };
    // SAFETY: nothing of this process is needed any longer.
    unsafe { libc::_exit(code) }
}

/// Runs `body` in a child, which exits afterwards.
pub(crate) fn fork_and(body: impl FnOnce() -> Result<(), String>) -> Child {
    fork().unwrap_or_else(|| end(body()))
}

impl Child {
    /// Waits for its exit, and fails unless it succeeded.
    pub(crate) fn wait(self) -> Result<(), String> {
        let mut status = 0;
        // SAFETY: it waits for a child of this process and writes its status.
        let ended = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!(ended, self.0, "{}", io::Error::last_os_error());
        match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
            (true, 0) => Ok(()),
            (true, code) => Err(format!("the child exited with {code}")),
            (false, _) if libc::WTERMSIG(status) == libc::SIGALRM => Err("the child hangs".to_owned()),
            (false, _) => Err(format!("the child was killed by signal {}", libc::WTERMSIG(status))),
        }
    }
}
