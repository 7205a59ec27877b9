//! What the process that writes a store tells others about it: the file `status`, and a look at a store in
//! use by it.
//!
//! A store that is open for writing is locked, and most of what people ask about it stands only in its
//! memory. So its sync thread writes the statistics of `stats()` into a file beside the others, once a second
//! at most and only if they changed (decision 0035). [`inspect_store`] reads them together with the manifest,
//! without the lock.
//!
//! **Invariants**
//! - Nothing ever depends on the file: it is never synced, never read by an opening, and a failed write only
//!   makes it old.
//! - What is half written, damaged, of another store or of another process than the lock's owner is no
//!   status.
//! - A store in which nothing happens writes nothing.

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

/// It is written at most this often.
const INTERVAL: Duration = Duration::from_secs(1);
/// Collecting statistics takes at most this part of the sync thread's time.
const PART_OF_TIME: u32 = 100;

/// Creates the file of a store that was just opened for writing. Without it, or without a process that
/// the lock could name, nothing is published.
pub(crate) fn start_publishing(store: &Store) {
    // What is kept back for a full device is for writes.
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

/// Writes the statistics if it is time, and if they are not those of the last time.
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
        // If it fails, whoever reads sees that nothing comes any more.
        write_status(store, &status, |offset, piece| drop(published.file.write_at(offset, piece)));
        published.last = stats;
    }
    let ended = store.env.monotonic();
    published.next = began + INTERVAL.max(ended.saturating_sub(began) * PART_OF_TIME);
}

/// Hands the pieces of a status with all keyspaces to `write`; the checksum of its text.
fn write_status(store: &Store, status: &Status, write: impl FnMut(u64, &[u8])) -> u64 {
    let mut writer = StatusWriter::begin(status, write);
    for keyspace in store.keyspaces() {
        writer.add(keyspace.id, KeyspaceStats::of(store, &keyspace));
    }
    writer.end()
}

/// Removes the file: the store is being closed.
pub(crate) fn end_publishing(store: &Store) {
    if store.publisher.lock().take().is_some() {
        // One that stays is known by its process to be of nobody.
        let _ = store.env.remove_file(&store.directory.join(STATUS_FILE));
    }
}

/// What there is of a status.
enum Read {
    Missing,
    /// Half written, perhaps.
    Torn,
    Whole(Box<Status>),
}

/// The status that stands in `directory`.
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
