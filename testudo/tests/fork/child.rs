#![expect(unsafe_code, reason = "forks, and ends children at once")]
//! Forked children, for tests.
//!
//! **Invariants**
//! - A child never returns into the test harness: it ends where [`end`] is called.

use std::io;

/// A child that is not done by then hangs, and is ended by a signal.
const SECONDS_MAX: u32 = 60;

/// A forked child.
#[derive(Debug)]
#[must_use]
pub(crate) struct Child(libc::pid_t);

/// Forks; `None` in the child.
pub(crate) fn fork() -> Option<Child> {
    // SAFETY: the child runs what a child of threads may: calls of the store that fail, and its end.
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

/// Ends the process at once, as `_exit` does, and says what went wrong if something did.
pub(crate) fn end(outcome: Result<(), String>) -> ! {
    let code = match &outcome {
        Ok(()) => 0,
        Err(message) => {
            let line = format!("\nchild {}: {message}\n", std::process::id());
            // SAFETY: the bytes are there. The locks of `std` may be held by a thread of the parent.
            unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
            1
        }
    };
    // SAFETY: nothing of this process is needed any more.
    unsafe { libc::_exit(code) }
}

/// Runs `body` in a child, which ends with it.
pub(crate) fn fork_and(body: impl FnOnce() -> Result<(), String>) -> Child {
    fork().unwrap_or_else(|| end(body()))
}

impl Child {
    /// Waits for its end, and fails unless it ended well.
    pub(crate) fn wait(self) -> Result<(), String> {
        let mut status = 0;
        // SAFETY: it waits for a child of this process and writes its status.
        let ended = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!(ended, self.0, "{}", io::Error::last_os_error());
        match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
            (true, 0) => Ok(()),
            (true, code) => Err(format!("the child ended with {code}")),
            (false, _) if libc::WTERMSIG(status) == libc::SIGALRM => Err("the child hangs".to_owned()),
            (false, _) => Err(format!("the child died of signal {}", libc::WTERMSIG(status))),
        }
    }
}
