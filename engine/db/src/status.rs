//! The file `status`, in which the writing process publishes statistics, and inspection of a store that
//! another process has open.
//!
//! A store that is open for writing is locked, and most of its statistics exist only in memory. So its sync
//! thread writes the statistics of `stats()` to a file of the store, at most once a second and only if they
//! changed (decision 0035). [`inspect_store`] reads them and the manifest without the lock.
//!
//! **Invariants**
//! - Nothing depends on the file: it is never synced, never read at opening, and after a failed write it is
//!   only stale.
//! - A file that is torn, damaged, or from another store or from a process other than the lock's owner, is
//!   ignored.
//! - An idle store writes nothing.

mod inspection;
mod status_format;

use std::{path::Path, time::Duration};

use testudo_base::{num::usize_of, planted};
use testudo_env::{Env, LockHolder, OpenMode, OpenOptions};
use testudo_store::{
    Store,
    directory::{LOCK_FILE, STATUS_FILE},
    publisher::Published,
};

use crate::{DbStats, KeyspaceStats};

pub use self::inspection::{KeyspaceInspection, PublishedStats, StoreInspection, inspect_store};
use self::status_format::{Status, StatusWriter};

/// Minimum time between two writes of the file.
const INTERVAL: Duration = Duration::from_secs(1);
/// Collecting statistics takes at most one part in this many of the sync thread's time.
const PART_OF_TIME: u32 = 100;

/// Creates the status file of a store that was just opened for writing. If that fails, or the lock names no
/// process, nothing is published.
pub(crate) fn start_publishing(store: &Store) {
    // The reserve for a full device is for writes only.
    let env = store.space.plain_env(&store.env);
    let path = store.directory.join(STATUS_FILE);
    // Left by a process that was killed.
    let _ = env.remove_file(&path);
    let Ok(LockHolder::Owner(Some(process))) = env.lock_holder(&store.directory.join(LOCK_FILE)) else {
        return;
    };
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
    if let Ok(file) = env.open(&path, options) {
        *store.publisher.lock() = Some(Published { file, process, last: None, next: Duration::ZERO });
    }
}

/// Writes the statistics if the interval has passed and they have changed.
pub(crate) fn publish_status(store: &Store) {
    let mut published = store.publisher.lock();
    let Some(published) = &mut *published else { return };
    let began = store.env.monotonic();
    if began < published.next || planted!("status-not-published") {
        return;
    }
    let mut status = Status {
        store: store.id,
        process: published.process,
        time: Duration::ZERO,
        stats: DbStats::of(store),
        keyspaces: Vec::new(),
    };
    let stats = Some(write_status(store, &status, |_, _| ()));
    if stats != published.last {
        status.time = store.env.wall_clock();
        // If it fails, readers see that the statistics are stale.
        write_status(store, &status, |offset, chunk| drop(published.file.write_at(offset, chunk)));
        published.last = stats;
    }
    let ended = store.env.monotonic();
    published.next = began + INTERVAL.max(ended.saturating_sub(began) * PART_OF_TIME);
}

/// Passes the chunks of a status with all keyspaces to `write`; returns the checksum of its text.
fn write_status(store: &Store, status: &Status, write: impl FnMut(u64, &[u8])) -> u64 {
    let mut writer = StatusWriter::begin(status, write);
    for keyspace in store.keyspaces() {
        writer.add(keyspace.id, &KeyspaceStats::of(store, &keyspace));
    }
    writer.end()
}

/// Removes the file while the store closes.
pub(crate) fn end_publishing(store: &Store) {
    if store.publisher.lock().take().is_some() {
        // A leftover file is ignored because its process no longer holds the lock.
        let _ = store.env.remove_file(&store.directory.join(STATUS_FILE));
    }
}

/// Result of reading the status file.
enum Read {
    Missing,
    /// Possibly half written.
    Torn,
    Whole(Box<Status>),
}

/// Reads the status file in `directory`.
fn read(env: &dyn Env, directory: &Path) -> Read {
    let path = directory.join(STATUS_FILE);
    let Ok(file) = env.open(&path, OpenOptions { mode: OpenMode::Read, direct: false }) else {
        return Read::Missing;
    };
    let bytes = file.len().and_then(|length| {
        let mut bytes = vec![0; usize_of(length.min(status_format::MAX_BYTES))];
        file.read_at(0, &mut bytes).map(|()| bytes)
    });
    bytes
        .ok()
        .and_then(|bytes| Status::decode(&bytes))
        .map_or(Read::Torn, |status| Read::Whole(Box::new(status)))
}

#[cfg(test)]
mod tests;
