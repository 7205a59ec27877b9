//! The cached records of one keyspace: which record is valid for which state of its tree.
//!
//! The states of a tree are numbered by the *flushes* that they contain; work that changes no query result
//! does not count. Each record carries the number of the state from which it was read. When updates are about
//! to be published as state `n`, [`KeyspaceRecords::advance`] first makes `n` the fill state. Then it
//! processes the updates: a cached record of an updated key is replaced or removed. So the remaining records
//! are valid for `n` as well.
//!
//! A reader of state `v` therefore uses a record of any state up to `v`, but no later one: a snapshot's state
//! may be much older than the newest. And it adds a record only while the fill state is `v`: afterwards that
//! record could be one of those already removed.
//!
//! **Invariants**
//! - The fill state is compared under the lock of the shard being filled. Updated keys are looked up only
//!   after each shard was locked once since the fill state changed. So no fill of an older state can follow.
//! - A record that was cached before `advance` is found by it, wherever it is moved concurrently.

use testudo_base::{
    Cursor, KeyspaceId, Kind, Result, checksum, planted,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
        scaled,
    },
};

use crate::{
    ghosts::Evicted,
    hot_record::{HotRecord, RestoredRecord},
    index::{PRIORITY_MAX, tag_of},
    record_cache::{RecordCache, hash_in},
    segment::{Part, Record},
    shard::{Found, Shard, Standing},
};

/// Number of updates looked up together, so that their cache misses overlap.
const BATCH: usize = scaled(256, 2);
/// A batch also ends at this many bytes of keys and values.
const BATCH_BYTES: usize = 48 << 10;

/// A page from which this many other records were requested is worth keeping as a whole (decision 0037).
const NEIGHBOURS_MAX: u32 = 4;

/// The number of the state in which a keyspace is opened. Records of an earlier cache belong to the state
/// before.
const FIRST_STATE: u32 = 1;
const RESTORED_STATE: u32 = 0;

/// Longer values are not copied, because they would be rejected as too long.
const VALUE_BYTES_MAX: usize = 32 << 10;

/// Data shared by all states of a keyspace.
#[derive(Debug)]
struct Shared {
    keyspace: KeyspaceId,
    fill_state: AtomicU32,
    /// Whether any record was ever cached.
    is_cached: AtomicBool,
}

/// The cached records of a keyspace as seen by one state of its tree; see the head of `keyspace_records.rs`.
#[derive(Clone, Debug)]
pub struct KeyspaceRecords {
    cache: Arc<RecordCache>,
    shared: Arc<Shared>,
    /// Number of the state.
    flushes: u32,
}

/// A copy of some updates.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    updates: Vec<Update>,
}

struct Update {
    hash: u64,
    key_end: usize,
    /// `None` for a deleted key.
    value_end: Option<usize>,
}

impl KeyspaceRecords {
    /// The records of a keyspace that was just opened or created.
    pub fn new(cache: &Arc<RecordCache>, keyspace: KeyspaceId) -> Self {
        let shared = Shared { keyspace, fill_state: FIRST_STATE.into(), is_cached: false.into() };
        Self { cache: Arc::clone(cache), shared: Arc::new(shared), flushes: FIRST_STATE }
    }

    /// Returns the value of `key` in this state of the tree, if it is cached. `hash` is the key's
    /// [`checksum::hash_key`].
    #[inline]
    pub fn get(&self, key: &[u8], hash: u64) -> Option<Vec<u8>> {
        let hash = hash_in(self.shared.keyspace.0, hash);
        let counters = self.cache.counters();
        let layout = self.cache.shard(hash).layout();
        let found = layout.find(tag_of(hash), self.shared.keyspace, key);
        let is_later = |found: &Found<'_>| found.flushes > self.flushes && !planted!("later-record-in-cache");
        let Some(found) = found.filter(|found| !is_later(found)) else {
            counters.misses.fetch_add(1, Relaxed);
            return None;
        };
        // `None` if a flush is replacing it right now: then it belongs to a later state.
        let Some(value) = found.segment.value(found.slot.location().place, found.flushes) else {
            counters.misses.fetch_add(1, Relaxed);
            return None;
        };
        debug_assert!(
            found.flushes <= self.flushes || planted!("later-record-in-cache"),
            "a state reads no later records"
        );
        counters.hits.fetch_add(1, Relaxed);
        if found.flushes == RESTORED_STATE {
            counters.restored_hits.fetch_add(1, Relaxed);
        }
        found.bucket.raise(found.way, found.slot);
        Some(value)
    }

    /// Counts a read that was answered without the cache.
    #[inline]
    pub fn record_buffered(&self) {
        self.cache.counters().buffered.fetch_add(1, Relaxed);
    }

    /// Caches a record read from this state of the tree, unless the state is no longer the newest, or the
    /// page is the better cache entry: `neighbours` is the number of other records requested from the page
    /// since it was loaded.
    pub fn fill(&self, key: &[u8], hash: u64, value: &[u8], neighbours: u32) {
        if neighbours >= NEIGHBOURS_MAX || !self.cache.takes_records() {
            return;
        }
        let hash = hash_in(self.shared.keyspace.0, hash);
        let tag = tag_of(hash);
        let mut shard = self.cache.shard(hash).lock();
        if self.shared.fill_state.load(Acquire) != self.flushes && !planted!("stale-record-filled") {
            return;
        }
        if shard.layout().find(tag, self.shared.keyspace, key).is_some() {
            return;
        }
        if !self.shared.is_cached.load(Relaxed) {
            self.shared.is_cached.store(true, Relaxed);
        }
        let evicted = shard.recall(tag);
        if neighbours == 0 && evicted == Some(Evicted::Recently) {
            let pool = self.cache.pool();
            pool.division().record_was_missed(pool.limit_bytes());
        }
        shard.insert(&self.record(tag, key, value), standing_of(evicted));
    }

    /// The keyspace.
    pub fn keyspace(&self) -> KeyspaceId {
        self.shared.keyspace
    }

    /// Whether this is the newest state.
    pub fn is_newest(&self) -> bool {
        self.shared.fill_state.load(Acquire) == self.flushes
    }

    /// Whether a record of state `flushes` is valid for this one.
    pub(crate) fn covers(&self, flushes: u32) -> bool {
        flushes <= self.flushes
    }

    /// Restores a record that an earlier cache had for the current state of the tree. REQUIRES: the keyspace
    /// was opened with this state.
    pub fn restore(&self, hot: &HotRecord) -> RestoredRecord {
        if !self.cache.takes_records() {
            return RestoredRecord::Full;
        }
        let hash = hash_in(self.shared.keyspace.0, checksum::hash_key(&hot.key));
        let tag = tag_of(hash);
        let mut shard = self.cache.shard(hash).lock();
        if self.shared.fill_state.load(Acquire) != self.flushes {
            return RestoredRecord::Outdated;
        }
        if shard.layout().find(tag, self.shared.keyspace, &hot.key).is_some() {
            return RestoredRecord::Present;
        }
        self.shared.is_cached.store(true, Relaxed);
        let record = Record { flushes: RESTORED_STATE, ..self.record(tag, &hot.key, &hot.value) };
        let part = if hot.priority > 0 { Part::Main } else { Part::Probation };
        let outcome = shard.restore(&record, Standing { part, priority: hot.priority.min(PRIORITY_MAX) });
        if outcome == RestoredRecord::Done {
            self.cache.counters().restored.fetch_add(1, Relaxed);
        }
        outcome
    }

    fn record<'a>(&self, tag: u32, key: &'a [u8], value: &'a [u8]) -> Record<'a> {
        Record { tag, keyspace: self.shared.keyspace, flushes: self.flushes, key, value }
    }

    /// Returns the records as seen by the next state of the tree, which contains `updates`. With `admits`,
    /// all updates with a value are cached.
    ///
    /// REQUIRES: every other `advance` of the keyspace has returned and its state was published; this state
    /// is not yet published.
    pub fn advance(&self, updates: &mut dyn Cursor, admits: bool) -> Result<Self> {
        let admits = admits && self.cache.takes_records();
        let flushes = self.flushes.checked_add(1).expect("flushes are counted in 32 bits");
        let next = Self { cache: Arc::clone(&self.cache), shared: Arc::clone(&self.shared), flushes };
        let before = self.shared.fill_state.swap(flushes, AcqRel);
        debug_assert!(before == self.flushes, "states advance one at a time, in order");
        // Fills that did not see the new state have finished after this.
        for shard in self.cache.shards() {
            drop(shard.lock());
        }
        let is_cached = self.shared.is_cached.load(Acquire);
        if (!is_cached && !admits) || planted!("cached-record-kept-at-flush") {
            return Ok(next);
        }
        if admits {
            self.shared.is_cached.store(true, Relaxed);
        }
        let mut batch = Batch::default();
        updates.seek_first()?;
        while let Some(entry) = updates.entry() {
            let hash = hash_in(self.shared.keyspace.0, checksum::hash_key(entry.key));
            batch.push(
                hash,
                entry.key,
                (entry.kind == Kind::Value)
                    .then_some(entry.value)
                    .filter(|value| value.len() <= VALUE_BYTES_MAX),
            );
            updates.next()?;
            if batch.updates.len() == BATCH || batch.bytes.len() >= BATCH_BYTES {
                next.replace_all(&batch, admits);
                batch.clear();
            }
        }
        next.replace_all(&batch, admits);
        Ok(next)
    }

    /// Replaces or removes the records of these keys.
    fn replace_all(&self, batch: &Batch, admits: bool) {
        // The current layouts contain all relevant records, and lookups in them do not wait for each other.
        let layouts: Vec<_> = self.cache.shards().iter().map(Shard::layout_full).collect();
        let may_have =
            |update: &Update| layouts[self.cache.shard_of(update.hash)].may_have(tag_of(update.hash));
        debug_assert!(batch.updates.len() <= BATCH, "a batch is bounded");
        let mut are_cached = [false; BATCH];
        for (update, is_cached) in batch.updates.iter().zip(&mut are_cached) {
            *is_cached = may_have(update);
        }
        let mut start = 0;
        for (update, is_cached) in batch.updates.iter().zip(are_cached) {
            let key = &batch.bytes[start..update.key_end];
            let value = update.value_end.map(|end| &batch.bytes[update.key_end..end]);
            start = update.value_end.unwrap_or(update.key_end);
            if is_cached || admits {
                self.replace(update.hash, key, value, admits);
            }
        }
        debug_assert_eq!(start, batch.bytes.len(), "the batch consists of its updates");
    }

    fn replace(&self, hash: u64, key: &[u8], value: Option<&[u8]>, admits: bool) {
        let tag = tag_of(hash);
        let mut shard = self.cache.shard(hash).lock();
        if value.is_some_and(|value| shard.replace(&self.record(tag, key, value))) {
            return;
        }
        let present = shard.remove(tag, self.shared.keyspace, key);
        if let Some(value) = value.filter(|_| present.is_some() || admits) {
            let standing = present.unwrap_or_else(|| standing_of(shard.recall(tag)));
            shard.insert(&self.record(tag, key, value), standing);
        }
    }
}

/// Returns the initial standing of a record that was not in the cache.
fn standing_of(evicted: Option<Evicted>) -> Standing {
    if evicted.is_some() { Standing::RETURNED } else { Standing::NEW }
}

impl Batch {
    fn push(&mut self, hash: u64, key: &[u8], value: Option<&[u8]>) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.updates.push(Update { hash, key_end, value_end: value.map(|_| self.bytes.len()) });
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.updates.clear();
    }
}

#[cfg(test)]
mod tests;
