//! What the process that writes a store tells others about it: the file `status`, and a look at a store in use by it.
//!
//! A store that is open for writing is locked, and most of what people ask about it stands only in its memory. So its log
//! thread writes the figures of `stats()` into a file beside the others, once a second at most and only if they changed
//! (decision 0035). [`inspect_store`] reads them together with the manifest, without the lock.
//!
//! **Invariants**
//! - Nothing ever depends on the file: it is never synced, never read by an opening, and a failed write only makes it old.
//! - What is half written, damaged, of another store or of another process than the lock's owner is no status.
//! - A store in which nothing happens writes nothing.

mod inspection;
mod status_format;

use std::{path::Path, time::Duration};

use testudo_base::{
    checksum::checksum64,
    num::usize_of,
    sync::{Arc, Mutex},
};
use testudo_env::{Env, File, LockHolder, OpenMode, OpenOptions};

use crate::{
    DbStats, KeyspaceStats,
    directory::{LOCK_FILE, STATUS_FILE},
    store::Store,
    view::KeyspaceCore,
};

pub use self::inspection::{KeyspaceInspection, PublishedFigures, StoreInspection, inspect_store};
use self::status_format::Status;

/// It is written at most this often.
const INTERVAL: Duration = Duration::from_secs(1);
/// Collecting figures takes at most this part of the log thread's time.
const PART_OF_TIME: u32 = 100;

/// What the writing process knows of its status file.
#[derive(Debug, Default)]
pub(crate) struct Publisher(Mutex<Option<Published>>);

#[derive(Debug)]
struct Published {
    file: Arc<dyn File>,
    process: u32,
    /// Checksum of the figures as they were written last, with the time 0: to see whether anything changed.
    last: Option<u64>,
    /// The next look at the figures is not before this.
    next: Duration,
}

impl Publisher {
    /// Creates the file of a store that was just opened for writing. Without it, or without a process that the lock
    /// could name, nothing is published.
    pub(crate) fn start(&self, store: &Store) {
        // What is kept back for a full device is for writes.
        let env = store.room.plain_env(&store.env);
        let path = store.directory.join(STATUS_FILE);
        // Left by a process that was killed.
        let _ = env.remove_file(&path);
        let Ok(LockHolder::Owner(Some(process))) = env.lock_holder(&store.directory.join(LOCK_FILE)) else {
            return;
        };
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
        if let Ok(file) = env.open(&path, options) {
            *self.0.lock() = Some(Published { file, process, last: None, next: Duration::ZERO });
        }
    }

    /// Writes the figures if it is time, and if they are not those of the last time.
    pub(crate) fn publish(&self, store: &Store) {
        let mut published = self.0.lock();
        let Some(published) = &mut *published else { return };
        let began = store.env.monotonic();
        if began < published.next {
            return;
        }
        let figures = |keyspace: &Arc<KeyspaceCore>| (keyspace.id, KeyspaceStats::of(store, keyspace));
        let mut status = Status {
            store: store.id,
            process: published.process,
            time: Duration::ZERO,
            stats: DbStats::of(store),
            keyspaces: store.keyspaces().iter().map(figures).collect(),
        };
        // There may be thousands of keyspaces: their text is never held twice.
        let figures = Some(checksum64(&status.encode(), 0));
        if figures != published.last {
            status.time = store.env.wall_clock();
            // Whoever reads sees that nothing comes any more.
            let _ = published.file.write_at(0, &status.encode());
            published.last = figures;
        }
        let ended = store.env.monotonic();
        published.next = began + INTERVAL.max(ended.saturating_sub(began) * PART_OF_TIME);
    }

    /// Removes the file: the store is being closed.
    pub(crate) fn end(&self, store: &Store) {
        if self.0.lock().take().is_some() {
            // One that stays is known by its process to be of nobody.
            let _ = store.env.remove_file(&store.directory.join(STATUS_FILE));
        }
    }
}

/// The status that stands in `directory`, if it is whole.
fn read(env: &dyn Env, directory: &Path) -> Option<Status> {
    let path = directory.join(STATUS_FILE);
    let file = env.open(&path, OpenOptions { mode: OpenMode::Read, direct: false }).ok()?;
    let mut bytes = vec![0; usize_of(file.len().ok()?.min(status_format::MAX_BYTES))];
    file.read_at(0, &mut bytes).ok()?;
    Status::decode(&bytes)
}

#[cfg(test)]
mod tests;
