//! Remembers the first failure; after it, every call that writes is refused.
//!
//! **Invariants**
//! - The caller that met the failure gets the original error; every later caller gets `Poisoned` with its
//!   message.
//! - Once set it is never cleared. A closed log is refused in the same way, with `Closed`.

use testudo_base::{
    Error, ErrorKind, Result,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

#[derive(Debug, Default)]
pub(crate) struct Poison {
    is_set: AtomicBool,
    refusal: OnceLock<Error>,
}

impl Poison {
    /// `Ok` as long as nothing has failed.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set.load(Ordering::Acquire) { Err(self.refusal()) } else { Ok(()) }
    }

    /// Remembers `failure` if it is the first one, and returns it.
    pub(crate) fn set(&self, failure: Error) -> Error {
        let message = format!("the log failed earlier: {failure}");
        self.refuse(Error::new(ErrorKind::Poisoned, message));
        failure
    }

    /// Refuses all later calls with `Closed`.
    pub(crate) fn close(&self) {
        self.refuse(Error::new(ErrorKind::Closed, "the log was closed"));
    }

    fn refuse(&self, refusal: Error) {
        // A second failure changes nothing: the first one is the cause.
        let _ = self.refusal.set(refusal);
        self.is_set.store(true, Ordering::Release);
    }

    #[cold]
    fn refusal(&self) -> Error {
        self.refusal.get().expect("set before the flag").clone()
    }
}
