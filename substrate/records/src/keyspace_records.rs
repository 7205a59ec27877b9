//! The cached records of one keyspace: which of them are true for which state of its tree.
//!
//! The states of a tree are numbered by the *flushes* that they contain; work that changes no answer does not
//! count. Each record carries the number of the state that it was read from. When updates are about to be
//! published as state `n`, [`KeyspaceRecords::advance`] first makes `n` the state of fills and then goes
//! through the updates: a record of a key among them is replaced or forgotten. So what stays is true for `n`
//! as well.
//!
//! A reader of state `v` therefore uses a record of any state up to `v`, and of no later one: a snapshot's
//! may be much older than the newest. And it adds what it read only while the state of fills is `v`: after
//! that the record could be one of those that were already forgotten.
//!
//! **Invariants**
//! - The state of fills is compared under the lock of the shard that is filled, and a key among the updates
//!   is looked for after every shard was locked once since that state was changed: no fill of an older state
//!   comes behind.
//! - A record that was in the cache before `advance` is found by it, wherever it is moved to meanwhile.

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
    index::tag_of,
    record_cache::{RecordCache, hash_in},
    segment::{Part, Record},
    shard::{Found, Shard, Standing},
    slot::PRIORITY_MAX,
};

/// Updates that are looked at together, so that their cache misses overlap.
const BATCH: usize = scaled(256, 2);
/// Bytes of keys and values from which on they are as many.
const BATCH_BYTES: usize = 48 << 10;

/// A page of which so many other records were asked for is worth keeping whole (decision 0037).
const NEIGHBOURS_MAX: u32 = 4;

/// The number of the state that a keyspace is opened with. Records that an earlier cache had are of the state
/// before.
const FIRST_STATE: u32 = 1;
const RESTORED_STATE: u32 = 0;

/// Longer values are not copied only to be found too long.
const VALUE_BYTES_MAX: usize = 32 << 10;

/// What all states of a keyspace share.
#[derive(Debug)]
struct Shared {
    keyspace: KeyspaceId,
    fill_state: AtomicU32,
    /// Something was ever cached.
    is_cached: AtomicBool,
}

/// The cached records of a keyspace as one state of its tree sees them; see the head of
/// `keyspace_records.rs`.
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
    /// `None` for a key that was deleted.
    value_end: Option<usize>,
}

impl KeyspaceRecords {
    /// Of a keyspace that was just opened or created.
    pub fn new(cache: &Arc<RecordCache>, keyspace: KeyspaceId) -> Self {
        let shared = Shared { keyspace, fill_state: FIRST_STATE.into(), is_cached: false.into() };
        Self { cache: Arc::clone(cache), shared: Arc::new(shared), flushes: FIRST_STATE }
    }

    /// The value of `key` in this state of the tree, if it is cached. `hash` is the key's
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
        // Nothing if a flush replaces it right now: then it is of a later state.
        let Some(value) = found.segment.value(found.slot.location().place, found.flushes) else {
            counters.misses.fetch_add(1, Relaxed);
            return None;
        };
        counters.hits.fetch_add(1, Relaxed);
        if found.flushes == RESTORED_STATE {
            counters.restored_hits.fetch_add(1, Relaxed);
        }
        found.bucket.raise(found.way, found.slot);
        Some(value)
    }

    /// A read was answered without the cache.
    #[inline]
    pub fn record_buffered(&self) {
        self.cache.counters().buffered.fetch_add(1, Relaxed);
    }

    /// Adds what was read from this state of the tree, unless that is no longer the newest one, or the page
    /// that it was read from serves: `neighbours` other records of it were asked for since it came.
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

    /// Whether a record of state `flushes` is true for this one.
    pub(crate) fn covers(&self, flushes: u32) -> bool {
        flushes <= self.flushes
    }

    /// Puts a record back that an earlier cache had for what is this state of the tree now. REQUIRES: the
    /// keyspace was opened with this state.
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

    /// The records as the next state of the tree sees them, in which `updates` are contained; with `admits`
    /// all of these are cached that have a value.
    ///
    /// To be called after every other `advance` of the keyspace has returned and its state was published, and
    /// before this state is published.
    pub fn advance(&self, updates: &mut dyn Cursor, admits: bool) -> Result<Self> {
        let admits = admits && self.cache.takes_records();
        let flushes = self.flushes.checked_add(1).expect("flushes are counted in 32 bits");
        let next = Self { cache: Arc::clone(&self.cache), shared: Arc::clone(&self.shared), flushes };
        let before = self.shared.fill_state.swap(flushes, AcqRel);
        debug_assert!(before == self.flushes, "one at a time, in order");
        // Fills that did not see the new state are over after this.
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

    /// Replaces or forgets the records of these keys.
    fn replace_all(&self, batch: &Batch, admits: bool) {
        // The layouts of this moment know all records that are of interest, and looks into them do not wait
        // for each other.
        let layouts: Vec<_> = self.cache.shards().iter().map(Shard::layout_full).collect();
        let may_have =
            |update: &Update| layouts[self.cache.shard_of(update.hash)].may_have(tag_of(update.hash));
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

/// Where a record begins that was not in the cache.
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
