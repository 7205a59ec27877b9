//! What is done to the machine before each run, so that no run finds what another left.

use std::fs;

/// Writes everything out and forgets what is cached of files; whether the machine allowed that.
pub(crate) fn drop_caches() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}
