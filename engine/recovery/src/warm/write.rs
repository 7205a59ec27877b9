//! Writes the content of the caches to the file `hot-set`.
//!
//! The hottest data comes first: index and filter pages, then used records and pages of the main set, then
//! the rest. Pages are saved by number, records with their values.
//!
//! **Invariants**
//! - A new file is renamed into place only when complete; until then the previous one stays.
//! - Writing takes at most `TIME_MAX`; the file takes at most [`FILE_BYTES_MAX`], a quarter of the stored
//!   bytes, and no reserved space. A nearly full device has no file.

use std::{collections::BTreeMap, io, time::Duration};

use testudo_base::{
    KeyspaceId, LargeVec, PAGE_BYTES, Seqno,
    num::u64_of,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_env::{Env, File, OpenMode, OpenOptions};
use testudo_flush::{
    log_release::stored_bytes,
    space::hold_space::{may_be_nearly_full, remove_hot_set},
};
use testudo_records::KeyspaceRecords;
use testudo_storage::Keeping;
use testudo_store::{
    Store,
    directory::{HOT_SET_FILE, NEW_HOT_SET_FILE},
    warm_restart::{
        WarmRestart, Written,
        hot_set_format::{
            BlockKind, FILE_BYTES_MAX, HEADER_BYTES, HotSetHeader, PAYLOAD_BYTES, encode_block, encode_pages,
            encode_states, put_record,
        },
    },
};

use super::newest_opening;
use crate::warm::{plain_keyspaces, restore::end_restoring};

/// Time limit; the file then has the entries written by then.
const TIME_MAX: Duration = Duration::from_millis(500);
/// Divisor: the file takes at most this fraction of the stored bytes.
const STORE_PARTS: u64 = 4;
/// The file is written again while the store is in use once the caches took in this fraction of what they
/// hold.
const CHANGED_PARTS: u64 = 4;
/// Blocks that must still fit for another one to begin: itself, and a last one.
const BLOCKS_LEFT: u64 = 2;
/// Below this size, caches warm up as fast without the file.
const HOT_BYTES_MIN: u64 = 64 << 10;
/// Maximum keyspaces whose records are saved: their states fit into one block.
const STATES_MAX: usize = 32 << 10;
/// Pages in one block.
const PAGES: usize = 8 << 10;

/// The states of trees for which records are cached.
struct RecordStates {
    /// Flushed seqno of each keyspace.
    flushed: Vec<(KeyspaceId, Seqno)>,
    records: BTreeMap<KeyspaceId, KeyspaceRecords>,
}

/// Runs and numbers of the cached pages, by kind of keeping.
type HotPages = [(Keeping, LargeVec<[u64; 2]>); 3];

/// A hot-set file being written.
struct HotSetWriter<'a> {
    warm: &'a WarmRestart,
    file: Arc<dyn File>,
    number: u64,
    offset: u64,
    bytes_max: u64,
}

impl HotSetWriter<'_> {
    fn put(&mut self, kind: BlockKind, payload: &[u8]) -> io::Result<()> {
        debug_assert!(self.offset >= u64_of(HEADER_BYTES), "blocks follow the header");
        let block = encode_block(kind, payload, self.number, self.offset);
        self.write_at(self.offset, &block)?;
        self.offset += u64_of(block.len());
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)?;
        self.warm.bytes_written.fetch_add(u64_of(bytes.len()), Relaxed);
        Ok(())
    }

    /// Whether this block and the next one fit.
    fn has_room(&self) -> bool {
        self.offset + BLOCKS_LEFT * u64_of(PAYLOAD_BYTES) <= self.bytes_max
    }
}

/// Saves the hot set when the store is closed. REQUIRES: no reads, writes or flushes are in progress.
pub fn leave_hot_set(store: &Store) {
    debug_assert!(store.health.is_closing(), "no reads or writes are in progress");
    end_restoring(store);
    let taken_in = taken_in(store);
    let is_changed = taken_in != *store.warm.written.lock();
    if store.log.wal.is_some() && is_changed {
        replace_hot_set(store, taken_in, record_states(store));
    }
}

/// Saves the hot set of a store in use, if much of it has changed.
pub fn note_hot_set(store: &Store) {
    let taken_in = taken_in(store);
    let held = store.records.stats().records + store.data.cache_stats().used_bytes / PAGE_BYTES;
    if taken_in.since(&store.warm.written.lock()) >= held / CHANGED_PARTS {
        let states = {
            let _flush = store.flush_lock.lock();
            record_states(store)
        };
        replace_hot_set(store, taken_in, states);
    }
}

fn taken_in(store: &Store) -> Written {
    let records = store.records.stats();
    Written {
        page_reads: store.data.io_stats().page_reads,
        inserted: records.inserted - records.restored,
        flushes: store.counters.flushes.load(Relaxed),
    }
}

/// The states of the trees with cached records, as many as fit. REQUIRES: no flush is in progress.
fn record_states(store: &Store) -> RecordStates {
    debug_assert!(store.is_flush_locked(), "trees do not change meanwhile");
    let mut states = RecordStates { flushed: Vec::new(), records: BTreeMap::new() };
    if !store.warm.is_on {
        return states;
    }
    states.flushed.reserve_exact(plain_keyspaces(store).count().min(STATES_MAX));
    for keyspace in plain_keyspaces(store) {
        let records = keyspace.view.load().records.clone();
        let flushed =
            store.manifest.with_state(|state| state.keyspaces.get(&keyspace.id).map(|record| record.flushed));
        if let Some(flushed) = flushed.filter(|_| records.is_newest()) {
            states.flushed.push((keyspace.id, flushed));
            states.records.insert(keyspace.id, records);
        }
        debug_assert_eq!(
            states.flushed.len(),
            states.records.len(),
            "a state for the records of each keyspace"
        );
        if states.flushed.len() == STATES_MAX {
            break;
        }
    }
    states
}

fn replace_hot_set(store: &Store, taken_in: Written, states: RecordStates) {
    // The earlier hot set is worth more than the part of it that is restored by now.
    if !store.warm.is_on || store.has_failed() || store.warm.state().is_under_way() {
        return;
    }
    if may_be_nearly_full(store) {
        remove_hot_set(store);
        return;
    }
    let kept = [Keeping::Structure, Keeping::Main, Keeping::Probation];
    let pages = kept.map(|keeping| (keeping, store.data.hot_pages(keeping)));
    let page_bytes: u64 = pages.iter().map(|(_, pages)| u64_of(pages.len()) * PAGE_BYTES).sum();
    let records = store.records.stats();
    let record_bytes = if records.records > 0 { records.used_bytes } else { 0 };
    if page_bytes + record_bytes < HOT_BYTES_MIN {
        return;
    }
    // The reserve for a full device is only for writes.
    let env = store.space.plain_env(&store.env);
    let new = store.directory.join(NEW_HOT_SET_FILE);
    let _ = env.remove_file(&new);
    let renamed = write_hot_set(store, &*env, pages, &states).and_then(|bytes| {
        env.rename(&new, &store.directory.join(HOT_SET_FILE))?;
        Ok(bytes)
    });
    let Ok(bytes) = renamed else {
        let _ = env.remove_file(&new);
        return;
    };
    store.warm.file_bytes.store(bytes, Relaxed);
    *store.warm.written.lock() = taken_in;
}

/// Writes the file and returns its length.
fn write_hot_set(store: &Store, env: &dyn Env, pages: HotPages, states: &RecordStates) -> io::Result<u64> {
    debug_assert!(store.log.wal.is_some(), "a reader writes no file");
    let began = env.monotonic();
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
    let file = env.open(&store.directory.join(NEW_HOT_SET_FILE), options)?;
    let bytes_max = (stored_bytes(store) / STORE_PARTS).min(store.memory.total()).min(FILE_BYTES_MAX);
    let (number, offset) = (env.random_u64(), u64_of(HEADER_BYTES));
    let mut writer = HotSetWriter { warm: &store.warm, file, number, offset, bytes_max };
    writer.put(BlockKind::States, &encode_states(states.flushed.iter().copied()))?;
    put_pages(&mut writer, pages)?;
    put_records(store, &mut writer, &states.records, || env.monotonic().saturating_sub(began) < TIME_MAX)?;
    debug_assert!(writer.offset > u64_of(HEADER_BYTES), "the first block has the states");
    let header = HotSetHeader {
        store: store.id,
        incarnation: store.manifest.with_state(newest_opening),
        number: writer.number,
        border: store.arena_pool.division().border(),
        file_bytes: writer.offset,
    };
    writer.write_at(0, &header.encode())?;
    Ok(writer.offset)
}

/// Writes records while time and space last.
fn put_records(
    store: &Store,
    writer: &mut HotSetWriter<'_>,
    states: &BTreeMap<KeyspaceId, KeyspaceRecords>,
    has_time: impl Fn() -> bool,
) -> io::Result<()> {
    let (mut payload, mut outcome) = (Vec::new(), Ok(()));
    store.records.each_hot_record(states, |record| {
        put_record(&mut payload, record);
        if payload.len() >= PAYLOAD_BYTES {
            outcome = writer.put(BlockKind::Records, &payload);
            payload.clear();
            return outcome.is_ok() && writer.has_room() && has_time();
        }
        true
    });
    outcome?;
    if payload.is_empty() { Ok(()) } else { writer.put(BlockKind::Records, &payload) }
}

/// Writes page numbers, those kept longest first, while space lasts.
fn put_pages(writer: &mut HotSetWriter<'_>, pages: HotPages) -> io::Result<()> {
    for (keeping, mut pages) in pages {
        pages.sort_unstable();
        for block in pages.chunks(PAGES) {
            if !writer.has_room() {
                return Ok(());
            }
            writer.put(BlockKind::Pages, &encode_pages(keeping, block))?;
        }
    }
    Ok(())
}
