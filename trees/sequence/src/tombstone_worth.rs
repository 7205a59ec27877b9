//! When tombstones are worth an early job: limits that all trees share (decision 0060).
//!
//! A tombstone is dropped, with the entries it deletes, at the bottom. Moving it there costs writes, so a job
//! does that early only if the savings are a fair fraction of the bytes written.
//!
//! **Invariants**
//! - The limits are plain arithmetic.

/// Maximum ratio of bytes written to bytes saved …
const WORTH: u64 = 4;
/// … and while idle.
const WORTH_IF_IDLE: u64 = 16;
/// Runs are considered if at least one in this many entries is a tombstone.
const HEAVY_PART: u64 = 4;
/// Minimum size of a tombstone itself, in bytes.
pub const TOMBSTONE_BYTES_MIN: u64 = 8;
/// Approximate write limit of a job; if runs are small, in runs.
const WRITTEN_MAX: u64 = 32 << 20;
const WRITTEN_RUNS: u64 = 16;

/// Maximum number of bytes that a job may write for each byte that it saves.
pub fn written_per_saved(is_idle: bool) -> u64 {
    if is_idle { WORTH_IF_IDLE } else { WORTH }
}

/// Write limit of a job of a tree with full runs of `run_bytes`.
pub fn tombstone_job_bytes_max(run_bytes: u64) -> u64 {
    debug_assert!(run_bytes > 0, "a run holds something");
    WRITTEN_MAX.min(run_bytes * WRITTEN_RUNS)
}

/// Whether enough of the entries are tombstones. Costs nothing where there are none.
pub fn has_many_tombstones(tombstones: u64, entries: impl FnOnce() -> u64) -> bool {
    tombstones > 0 && tombstones * HEAVY_PART >= entries()
}
