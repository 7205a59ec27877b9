//! When the manifest's log is worth replacing with a snapshot.

/// A shorter log is not rotated by commits.
const COMMIT_BYTES_MIN: u64 = 1 << 20;
/// Commits rotate a log of this many times its snapshot: writing a snapshot costs a third of the edits since
/// the previous one.
const COMMIT_TIMES: u64 = 4;
/// A shorter log is not rotated on close.
const CLOSE_BYTES_MIN: u64 = 64 << 10;
/// On close, a log of this many times its snapshot is rotated: half of it is obsolete, and the next opening
/// reads all of it.
const CLOSE_TIMES: u64 = 2;

/// Length beyond which a commit rotates a log with a snapshot of this length.
pub(super) fn worth_rotating(snapshot_bytes: u64) -> u64 {
    (snapshot_bytes * COMMIT_TIMES).max(COMMIT_BYTES_MIN)
}

/// Length beyond which closing rotates it.
pub(super) fn worth_shortening(snapshot_bytes: u64) -> u64 {
    (snapshot_bytes * CLOSE_TIMES).max(CLOSE_BYTES_MIN)
}
