//! How long a call is made again that has done nothing, for want of something that the system may have again
//! in a moment: a descriptor, memory, a request slot.
//!
//! **Invariants**
//! - The pauses are bounded, all together a quarter of a second. What lasts longer is for the caller to put
//!   off: the error says that it can be ([`testudo_base::Error::is_transient`]).

use std::{io, time::Duration};

use testudo_base::errno::is_transient;

use crate::Env;

/// The first pause; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The last pause.
const LAST_PAUSE: Duration = Duration::from_millis(128);

/// How long one call has been tried.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    last_pause: Duration,
}

impl Patience {
    /// Pauses, if a call that failed with this error is to be made again.
    pub(crate) fn waits_for(&mut self, error: &io::Error, env: &dyn Env) -> bool {
        // A limit of file sizes is nothing that passes by itself.
        let passes = is_transient(error) && error.kind() != io::ErrorKind::FileTooLarge;
        if self.last_pause >= LAST_PAUSE || !passes {
            return false;
        }
        self.last_pause = (self.last_pause * 2).max(FIRST_PAUSE);
        env.sleep(self.last_pause);
        true
    }
}
