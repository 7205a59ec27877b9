//! Preparation of the machine before each run, so that no run benefits from an earlier one.

use std::fs;

/// Syncs all file systems and drops the page cache. Returns whether the machine allowed it.
pub(crate) fn drop_caches() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}
