//! A shard: two logs of segments, and the index of their records. S3-FIFO (Yang and others, SOSP 2023), with
//! logs as queues.
//!
//! New records are appended to the probation log, which has a tenth of the segments. When a segment is needed
//! and the pool has none to spare, the oldest one is evicted: from probation if it exceeds its tenth,
//! otherwise from the main log. Probation records that were used move to the end of the main log. Main
//! records that were used since they were written are carried over there with one use less, a clock with two
//! bits of use (TreeLine, section on the record cache). All others are evicted and remembered: one that
//! returns soon enough goes directly to the main log. So records requested once pass through, including those
//! from flushes, and only records requested again stay.
//!
//! Readers use the published layout, its index and its segments without a lock. Every change requires the
//! lock of the log. A layout keeps its segments alive: a reader never sees a segment that was reused.
//!
//! **Invariants**
//! - A slot refers to a complete record of its tag; with an older layout, readers find the same record
//!   through it or nothing.
//! - While a record is carried over, its slot refers to the old position or the new one, at all times.
//! - At most three quarters of a segment are carried over, so that each eviction frees space.
//! - A record stays in its part when it is replaced.

mod queue;

use std::mem;

use testudo_base::{
    KeyspaceId,
    chunks::{Chunk, ChunkPool},
    num::{u64_of, usize_of},
    sync::{Arc, ArcSwap, Mutex, MutexGuard, scaled},
};

use self::queue::{Queue, Queued};
use crate::{
    RestoredRecord,
    ghosts::{Evicted, Ghosts},
    index::{Bucket, Index, Location, SEGMENTS_MAX, Slot},
    segment::{FIRST_PLACE, HEADER_BYTES, Home, Part, ROUNDED_BYTES, Record, Segment},
};

/// Number of buckets of a new or empty shard.
const FIRST_BUCKETS: usize = scaled(32, 2);
/// One in this many segments is for records on probation.
const PROBATION_SHARE: usize = 10;
/// A record takes at most this fraction of a segment: longer ones would leave gaps at the ends.
const RECORD_PARTS: usize = 8;
/// Maximum segments evicted for one that is needed: each frees at least a quarter, in one log or the other.
const ENDED_MAX: usize = 8;
/// Maximum part of an evicted segment that is carried over, in quarters: at least a quarter is freed.
const CARRIED_QUARTERS: usize = 3;
/// The index grows by half when more than this many quarters of its slots are in use: beyond that, many
/// buckets are full and evict records although there is memory.
const FULL_QUARTERS: usize = 3;
/// The index is halved when fewer than one in this many slots is in use: afterwards it is at most half full,
/// so that it does not grow again soon.
const SPARSE_PARTS: usize = 4;
/// Bytes of a word.
const WORD_BYTES: usize = 8;

/// The index and the segments as readers see them.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) index: Arc<Index>,
    /// Segments by id.
    segments: Vec<Option<Arc<Segment>>>,
}

/// State that changes under the lock.
#[derive(Debug)]
struct Log {
    /// The published layout.
    layout: Arc<Layout>,
    probation: Queue,
    main: Queue,
    /// Ids from here on were never used.
    next_id: u32,
    /// Slots in use.
    records: usize,
    ghosts: Ghosts,
    inserted: u64,
    evicted: u64,
}

impl Log {
    fn queue(&mut self, part: Part) -> &mut Queue {
        match part {
            Part::Probation => &mut self.probation,
            Part::Main => &mut self.main,
        }
    }

    /// Part from which a segment is evicted next.
    fn next_to_end(&self) -> Part {
        let probation = self.probation.len();
        let share = ((probation + self.main.len()) / PROBATION_SHARE).max(1);
        if probation > share || self.main.has_no_closed() { Part::Probation } else { Part::Main }
    }
}

/// Statistics of a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShardStats {
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    pub(crate) inserted: u64,
    pub(crate) evicted: u64,
}

/// A chunk for carrying over records when the pool has none to spare; shared by all shards.
#[derive(Debug)]
pub(crate) struct Spare {
    pool: Arc<ChunkPool>,
    chunk: Mutex<Option<Chunk>>,
}

impl Spare {
    pub(crate) fn new(pool: &Arc<ChunkPool>) -> Arc<Self> {
        Arc::new(Self { pool: Arc::clone(pool), chunk: Mutex::new(None) })
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.pool.give_back(self.chunk.get_mut().take());
    }
}

#[derive(Debug)]
pub(crate) struct Shard {
    layout: ArcSwap<Layout>,
    log: Mutex<Log>,
    home: Arc<Home>,
    spare: Arc<Spare>,
    segment_bytes: usize,
}

impl Layout {
    #[inline]
    pub(crate) fn segment(&self, at: Location) -> Option<&Arc<Segment>> {
        self.segments.get(usize_of(u64::from(at.segment)))?.as_ref()
    }

    /// Returns the standing of the record to which a slot refers.
    fn standing_of(&self, slot: Slot) -> Standing {
        let part = self.segment(slot.location()).map_or(Part::Probation, |segment| segment.part);
        Standing { part, priority: slot.priority() }
    }

    /// Finds the record of `key`: its bucket and way, its slot, its segment, and the flushes in its state.
    #[inline]
    pub(crate) fn find(&self, tag: u32, keyspace: KeyspaceId, key: &[u8]) -> Option<Found<'_>> {
        let bucket = self.index.bucket(tag);
        for (way, slot) in bucket.load().into_iter().enumerate() {
            if slot.tag() != tag || slot.is_empty() {
                continue;
            }
            let Some(segment) = self.segment(slot.location()) else { continue };
            if let Some(flushes) = segment.flushes_of(slot.location().place, keyspace, key) {
                return Some(Found { bucket, way, slot, segment, flushes });
            }
        }
        None
    }

    /// Whether there may be a record with this tag.
    #[inline]
    pub(crate) fn may_have(&self, tag: u32) -> bool {
        self.index.bucket(tag).load().iter().any(|slot| slot.tag() == tag && !slot.is_empty())
    }
}

/// A record found in the cache.
pub(crate) struct Found<'a> {
    pub(crate) bucket: &'a Bucket,
    pub(crate) way: usize,
    pub(crate) slot: Slot,
    pub(crate) segment: &'a Arc<Segment>,
    pub(crate) flushes: u32,
}

impl Shard {
    /// One of `shards` shards.
    pub(crate) fn new(pool: &Arc<ChunkPool>, spare: Arc<Spare>, segment_bytes: usize, shards: u64) -> Self {
        let layout = Layout { index: Arc::new(Index::new(FIRST_BUCKETS, pool)), segments: Vec::new() };
        let layout = Arc::new(layout);
        let log = Log {
            layout: Arc::clone(&layout),
            probation: Queue::default(),
            main: Queue::default(),
            next_id: 0,
            records: 0,
            ghosts: Ghosts::new(pool, shards),
            inserted: 0,
            evicted: 0,
        };
        let home = Home { pool: Arc::clone(pool), free_ids: Mutex::new(Vec::new()) };
        let published = ArcSwap::from_pointee((*layout).clone());
        published.store(layout);
        Self { layout: published, log: Mutex::new(log), home: Arc::new(home), spare, segment_bytes }
    }

    /// Approximate maximum bytes of key and value of a record.
    pub(crate) fn record_bytes_max(&self) -> usize {
        self.segment_bytes / RECORD_PARTS - HEADER_BYTES - ROUNDED_BYTES
    }

    /// The published layout, for short use.
    #[inline]
    pub(crate) fn layout(&self) -> impl std::ops::Deref<Target = Arc<Layout>> + '_ {
        self.layout.load()
    }

    /// The published layout, for longer use.
    pub(crate) fn layout_full(&self) -> Arc<Layout> {
        self.layout.load_full()
    }

    /// Returns the current segments, main ones first and newest first within each part, each with the end of
    /// its last record; and the layout that keeps them.
    pub(crate) fn best_segments(&self) -> (Arc<Layout>, Vec<(u32, usize)>) {
        let log = self.log.lock();
        let segments = log.main.newest_first().chain(log.probation.newest_first());
        (Arc::clone(&log.layout), segments.map(|segment| (segment.id, segment.end)).collect())
    }

    /// Locks the shard for changes.
    pub(crate) fn lock(&self) -> Writer<'_> {
        Writer { shard: self, log: self.log.lock() }
    }

    pub(crate) fn stats(&self) -> ShardStats {
        let log = self.log.lock();
        let segments = u64_of(log.probation.len() + log.main.len());
        ShardStats {
            bytes: segments * u64_of(self.segment_bytes) + log.layout.index.bytes() + log.ghosts.bytes(),
            records: u64_of(log.records),
            inserted: log.inserted,
            evicted: log.evicted,
        }
    }
}

/// The held lock of a shard.
pub(crate) struct Writer<'a> {
    shard: &'a Shard,
    log: MutexGuard<'a, Log>,
}

/// A record being moved from an evicted segment to the end of the main log.
struct Carried {
    tag: u32,
    from: Location,
    words: usize,
    /// Its priority at the new position.
    priority: u8,
}

/// Usage of a record; a greater one is more valuable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Standing {
    pub(crate) part: Part,
    pub(crate) priority: u8,
}

impl Standing {
    pub(crate) const NEW: Self = Self { part: Part::Probation, priority: 0 };
    pub(crate) const RETURNED: Self = Self { part: Part::Main, priority: 0 };
}

impl Writer<'_> {
    pub(crate) fn layout(&self) -> &Layout {
        &self.log.layout
    }

    /// Caches a record. REQUIRES: its key has no cached record.
    pub(crate) fn insert(&mut self, record: &Record<'_>, standing: Standing) {
        debug_assert!(
            self.log.layout.find(record.tag, record.keyspace, record.key).is_none(),
            "a key has one record"
        );
        let Some(words) = self.words_of(record) else { return };
        if let Some(at) = self.place(standing.part, words) {
            self.put(record, standing, at);
        }
    }

    /// Number of words of a record, if it is not too long to be cached.
    fn words_of(&self, record: &Record<'_>) -> Option<usize> {
        record.words().filter(|words| words * WORD_BYTES <= self.shard.segment_bytes / RECORD_PARTS)
    }

    fn put(&mut self, record: &Record<'_>, standing: Standing, at: Location) {
        self.log.layout.segment(at).expect("the segment exists").write(at.place, record);
        let layout = &self.log.layout;
        let (way, replaced) =
            layout.index.bucket(record.tag).way_for(record.tag, |slot| layout.standing_of(slot));
        self.log.layout.index.bucket(record.tag).set(way, Slot::new(record.tag, standing.priority, at));
        self.log.inserted += 1;
        if replaced.is_empty() {
            self.log.records += 1;
        } else {
            self.log.evicted += 1;
            let header =
                self.log.layout.segment(replaced.location()).map(|old| old.header(replaced.location().place));
            self.log.ghosts.remember(replaced.tag(), header.map_or(0, |header| header.words() * WORD_BYTES));
        }
        let slots = self.log.layout.index.slot_count();
        debug_assert!(self.log.records <= slots, "a record has a slot");
        if self.log.records > slots / 4 * FULL_QUARTERS {
            let buckets = self.log.layout.index.bucket_count();
            self.resize_index(buckets + buckets / 2);
        }
    }

    /// Caches a record of an earlier cache if no other user's memory is needed. It counts as older than all
    /// records inserted since, and than those restored before it: the newest are restored first. REQUIRES: as
    /// [`Writer::insert`].
    pub(crate) fn restore(&mut self, record: &Record<'_>, standing: Standing) -> RestoredRecord {
        let Some(words) = self.words_of(record) else { return RestoredRecord::TooLong };
        let segment_words = self.shard.segment_bytes / WORD_BYTES;
        let mut at = self.log.queue(standing.part).place_in_restored(words, segment_words);
        if at.is_none() {
            let chunk = self.shard.home.pool.take_for_records(self.shard.segment_bytes);
            let begun = chunk.and_then(|chunk| self.begin_restored(standing.part, chunk));
            at = begun.and_then(|()| self.log.queue(standing.part).place_in_restored(words, segment_words));
        }
        let Some(at) = at else { return RestoredRecord::Full };
        self.put(record, standing, at);
        RestoredRecord::Done
    }

    /// Starts the next segment for restored records of a part.
    fn begin_restored(&mut self, part: Part, chunk: Chunk) -> Option<()> {
        let mut layout = (*self.log.layout).clone();
        let id = self.add_segment(&mut layout, part, chunk)?;
        self.log.queue(part).begin_restored(id);
        self.publish(layout);
        Some(())
    }

    /// Returns when a record with this tag was evicted, if remembered.
    pub(crate) fn recall(&mut self, tag: u32) -> Option<Evicted> {
        self.log.ghosts.recall(tag)
    }

    /// Replaces the value of a key's record in place if both have the same size: appending to the log would
    /// leave a gap.
    pub(crate) fn replace(&mut self, record: &Record<'_>) -> bool {
        let layout = &self.log.layout;
        let Some(found) = layout.find(record.tag, record.keyspace, record.key) else { return false };
        let place = found.slot.location().place;
        let is_as_large = Some(found.segment.header(place).words()) == record.words();
        if is_as_large {
            found.segment.rewrite(place, record);
            // Records read and written so often that write buffers answer for them are not used here. In the
            // main log such a record gets one use for each time it was written.
            if found.segment.part == Part::Main && found.slot.priority() == 0 {
                found.bucket.raise(found.way, found.slot);
            }
        }
        is_as_large
    }

    /// Removes the record of `key`; returns its standing, if there was one.
    pub(crate) fn remove(&mut self, tag: u32, keyspace: KeyspaceId, key: &[u8]) -> Option<Standing> {
        let Found { bucket, way, slot, .. } = self.log.layout.find(tag, keyspace, key)?;
        let standing = self.log.layout.standing_of(slot);
        bucket.set(way, Slot::EMPTY);
        debug_assert!(self.log.records > 0, "the removed record was counted");
        self.log.records -= 1;
        Some(standing)
    }

    /// Returns memory to the pool; `false` if there is none to give.
    pub(crate) fn give_up_segment(&mut self) -> bool {
        // Evict segments until the carried-over records take one segment less.
        for _ in 0..ENDED_MAX {
            let Some(chunk) = self.end_one() else { return false };
            if let Some(chunk) = chunk {
                self.shard.home.pool.give_back([chunk]);
                self.shrink_index();
                return true;
            }
        }
        true
    }

    /// Returns room for a record at the end of the log of a part.
    fn place(&mut self, part: Part, words: usize) -> Option<Location> {
        for _ in 0..ENDED_MAX {
            if let Some(at) = self.place_in_open(part, words) {
                return Some(at);
            }
            let chunk = self.shard.home.pool.take_for_records(self.shard.segment_bytes);
            let chunk = if chunk.is_some() { chunk } else { self.end_one()? };
            if let Some(at) = self.place_in_open(part, words) {
                self.keep_spare(chunk);
                return Some(at);
            }
            if let Some(chunk) = chunk {
                self.begin_segment(part, chunk)?;
            }
        }
        None
    }

    fn place_in_open(&mut self, part: Part, words: usize) -> Option<Location> {
        let segment_words = self.shard.segment_bytes / WORD_BYTES;
        self.log.queue(part).place_in_open(words, segment_words)
    }

    /// Starts the next segment of a part.
    fn begin_segment(&mut self, part: Part, chunk: Chunk) -> Option<()> {
        let mut layout = (*self.log.layout).clone();
        self.open_in(&mut layout, part, chunk)?;
        self.publish(layout);
        Some(())
    }

    fn open_in(&mut self, layout: &mut Layout, part: Part, chunk: Chunk) -> Option<()> {
        let id = self.add_segment(layout, part, chunk)?;
        self.log.queue(part).begin(id);
        Some(())
    }

    /// Adds an empty segment; returns its id.
    fn add_segment(&mut self, layout: &mut Layout, part: Part, chunk: Chunk) -> Option<u32> {
        let free = self.shard.home.free_ids.lock().pop();
        let id = free.unwrap_or(self.log.next_id);
        if id == SEGMENTS_MAX {
            self.shard.home.pool.give_back([chunk]);
            return None;
        }
        self.log.next_id = self.log.next_id.max(id + 1);
        let index = usize_of(u64::from(id));
        if layout.segments.len() <= index {
            layout.segments.resize(index + 1, None);
        }
        debug_assert!(layout.segments[index].is_none(), "the id of a segment is not in use");
        layout.segments[index] = Some(Segment::new(id, part, chunk, Arc::clone(&self.shard.home)));
        self.shard.home.pool.division().records_grew(u64_of(self.shard.segment_bytes));
        Some(id)
    }

    /// Publishes `layout` to readers.
    fn publish(&mut self, layout: Layout) {
        debug_assert!(u64_of(layout.segments.len()) <= u64::from(SEGMENTS_MAX), "ids are bounded");
        let layout = Arc::new(layout);
        self.shard.layout.store(Arc::clone(&layout));
        self.log.layout = layout;
    }

    /// Takes the chunk for carrying over records. The first time there is none, and the limit is permanently
    /// exceeded by one chunk.
    fn take_spare(&self) -> Chunk {
        let spare = self.shard.spare.chunk.lock().take();
        spare.unwrap_or_else(|| self.shard.home.pool.take_beyond(self.shard.segment_bytes))
    }

    fn keep_spare(&self, chunk: Option<Chunk>) {
        let Some(chunk) = chunk else { return };
        let mut spare = self.shard.spare.chunk.lock();
        if spare.is_none() {
            *spare = Some(chunk);
        } else {
            drop(spare);
            self.shard.home.pool.give_back([chunk]);
        }
    }

    /// Evicts the oldest segment of a part: its used records are carried over. Returns its memory, unless a
    /// reader still holds it or it becomes the spare one; `None` if there is no segment.
    fn end_one(&mut self) -> Option<Option<Chunk>> {
        let part = self.log.next_to_end();
        let Some(Queued { id, end }) = self.log.queue(part).take_oldest() else {
            // The only segment left is an open main segment.
            self.log.main.close_open();
            return if self.log.main.has_no_closed() { None } else { self.end_one() };
        };
        let mut layout = (*self.log.layout).clone();
        let old = layout.segments[usize_of(u64::from(id))].take().expect("a closed segment exists");
        self.shard.home.pool.division().records_shrank(u64_of(self.shard.segment_bytes));
        let carried = self.judge(&old, id, end);
        let mut took_spare = false;
        for carried in carried {
            let mut at = self.place_in_open(Part::Main, carried.words);
            if at.is_none() && !took_spare {
                took_spare = true;
                let chunk = self.take_spare();
                at = self
                    .open_in(&mut layout, Part::Main, chunk)
                    .and_then(|()| self.place_in_open(Part::Main, carried.words));
            }
            self.carry(&layout, &old, &carried, at);
        }
        self.publish(layout);
        let chunk = Arc::try_unwrap(old).ok().and_then(Segment::into_chunk);
        if took_spare {
            self.keep_spare(chunk);
            return Some(None);
        }
        Some(chunk)
    }

    /// Decides on each record of an evicted segment: returns those to carry over and evicts the others.
    fn judge(&mut self, old: &Segment, id: u32, end: usize) -> Vec<Carried> {
        let index = Arc::clone(&self.log.layout.index);
        let mut carried = Vec::new();
        let mut left = self.shard.segment_bytes / WORD_BYTES / 4 * CARRIED_QUARTERS;
        let mut place = FIRST_PLACE;
        while place < end {
            let header = old.header(place);
            let from = Location { segment: id, place };
            let words = header.words();
            debug_assert!(words > 0 && place + words <= end, "records are adjacent and end at the end");
            place += words;
            let Some((way, slot)) = index.bucket(header.tag).way_to(from) else { continue };
            if slot.priority() > 0 && words <= left {
                left -= words;
                // Uses on probation have brought it into the main log. There it must be used again.
                let priority = if old.part == Part::Main { slot.priority() - 1 } else { 0 };
                carried.push(Carried { tag: header.tag, from, words, priority });
            } else {
                index.bucket(header.tag).set(way, Slot::EMPTY);
                self.log.records -= 1;
                self.log.evicted += 1;
                self.log.ghosts.remember(header.tag, words * WORD_BYTES);
            }
        }
        carried
    }

    /// Moves a record to its new position, or evicts it if there is none.
    fn carry(&mut self, layout: &Layout, old: &Segment, carried: &Carried, to: Option<Location>) {
        let bucket = layout.index.bucket(carried.tag);
        let (way, _) = bucket.way_to(carried.from).expect("the lock is held");
        let Some(to) = to else {
            bucket.set(way, Slot::EMPTY);
            self.log.records -= 1;
            self.log.evicted += 1;
            return;
        };
        let segment = layout.segment(to).expect("the open segment exists");
        debug_assert_eq!(segment.part, Part::Main, "used records move to the main log");
        segment.copy(to.place, old, carried.from.place, carried.words);
        bucket.set(way, Slot::new(carried.tag, carried.priority, to));
    }

    fn resize_index(&mut self, bucket_count: usize) {
        let layout = &self.log.layout;
        let (index, records) =
            layout.index.resized(bucket_count.max(FIRST_BUCKETS), |slot| layout.standing_of(slot));
        let before = mem::replace(&mut self.log.records, records);
        debug_assert!(records <= before, "resizing adds no records");
        self.log.evicted += u64_of(before - records);
        let layout = Layout { index: Arc::new(index), segments: self.log.layout.segments.clone() };
        self.publish(layout);
    }

    /// Releases index memory that a smaller cache does not need.
    fn shrink_index(&mut self) {
        let index = &self.log.layout.index;
        if index.bucket_count() > FIRST_BUCKETS && self.log.records < index.slot_count() / SPARSE_PARTS {
            self.resize_index(index.bucket_count() / 2);
        }
    }
}

#[cfg(test)]
mod tests;
