//! Retries of a call that did nothing because the system temporarily lacked a resource: a descriptor, memory,
//! a request slot.
//!
//! **Invariants**
//! - The pauses are bounded: a quarter of a second in total. The caller postpones work that fails for longer;
//!   the error is marked as transient ([`testudo_base::Error::is_transient`]).

use std::{io, time::Duration};

use testudo_base::errno::is_transient;

use crate::Env;

/// The first pause; each is twice as long as the previous one.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The last pause.
const LAST_PAUSE: Duration = Duration::from_millis(128);

/// Progress of the retries of one call.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    last_pause: Duration,
}

impl Patience {
    /// Pauses and returns true if a call that failed with this error should be retried.
    pub(crate) fn waits_for(&mut self, error: &io::Error, env: &dyn Env) -> bool {
        // A file size limit does not go away by itself.
        let passes = is_transient(error) && error.kind() != io::ErrorKind::FileTooLarge;
        if self.last_pause >= LAST_PAUSE || !passes {
            return false;
        }
        self.last_pause = (self.last_pause * 2).max(FIRST_PAUSE);
        env.sleep(self.last_pause);
        true
    }
}
