//! A shard: two logs of segments, and the index of their records. S3-FIFO (Yang and others, SOSP 2023), with
//! logs for queues.
//!
//! New records go to the end of the log of those on probation, which has a tenth of the segments. When a
//! segment is needed that the pool does not spare, the oldest one ends: of those on probation if they have
//! more than their tenth, else of the main ones. Records on probation that were used go to the end of the
//! main log. Main ones that were used since they were written are carried on there with one use less, a clock
//! with two bits of use (TreeLine, section on the record cache). The others die, and are remembered: one that
//! comes again soon enough belongs to the main ones at once. So what is asked for once passes through, also
//! what a flush brings, and what stays was asked for again.
//!
//! Readers take the published layout and look into its index and its segments, without a lock. Who changes
//! anything holds the lock of the log. A layout keeps its segments alive: a reader never sees a segment that
//! was written anew.
//!
//! **Invariants**
//! - A slot leads to a whole record of its tag; what readers find by it in an older layout is the same record
//!   or nothing.
//! - While a record is carried on, its slot leads to the old place or the new one, never nowhere.
//! - At most three quarters of a segment are carried on, so that each one that ends makes room.
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
    index::{Bucket, Index},
    segment::{FIRST_PLACE, HEADER_BYTES, Home, Part, ROUNDED_BYTES, Record, Segment},
    slot::{Location, SEGMENTS_MAX, Slot},
};

/// Buckets of a new shard, and of an empty one.
const FIRST_BUCKETS: usize = scaled(32, 2);
/// One of so many segments is for records on probation.
const PROBATION_SHARE: usize = 10;
/// A record takes one of so many parts of a segment at most: longer ones would leave gaps at the ends.
const RECORD_PARTS: usize = 8;
/// Most segments that end for one that is needed: each leaves a quarter at least, in one log or the other.
const ENDED_MAX: usize = 8;

/// What readers look into.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) index: Arc<Index>,
    /// By number.
    segments: Vec<Option<Arc<Segment>>>,
}

/// What changes under the lock.
#[derive(Debug)]
struct Log {
    /// The published layout.
    layout: Arc<Layout>,
    probation: Queue,
    main: Queue,
    /// Numbers from here on were never used.
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

    /// The part of which a segment ends next.
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

/// A chunk for carrying records on when the pool has none to spare; of all shards together.
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

    /// What is known of the use of the record to which a slot leads.
    fn standing_of(&self, slot: Slot) -> Standing {
        let part = self.segment(slot.location()).map_or(Part::Probation, |segment| segment.part);
        Standing { part, priority: slot.priority() }
    }

    /// The record of `key`: its bucket and way, its slot, and the flushes that its state contains.
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

/// A record in the cache.
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

    /// Bytes of key and value that a record has at most, about.
    pub(crate) fn record_bytes_max(&self) -> usize {
        self.segment_bytes / RECORD_PARTS - HEADER_BYTES - ROUNDED_BYTES
    }

    /// What readers look into, for a short while.
    #[inline]
    pub(crate) fn layout(&self) -> impl std::ops::Deref<Target = Arc<Layout>> + '_ {
        self.layout.load()
    }

    /// The same, for longer.
    pub(crate) fn layout_full(&self) -> Arc<Layout> {
        self.layout.load_full()
    }

    /// The segments of this moment, the main ones first and of each part the newest, each with where its last
    /// record ends; and the layout that keeps them.
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

/// The lock of a shard, held.
pub(crate) struct Writer<'a> {
    shard: &'a Shard,
    log: MutexGuard<'a, Log>,
}

/// A record on its way from a segment that ends to the end of the main log.
struct Carried {
    tag: u32,
    from: Location,
    words: usize,
    /// What it has to its credit there.
    priority: u8,
}

/// What is known of the use of a record; more is worth more.
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

    /// Caches a record. REQUIRES: none of its key is cached.
    pub(crate) fn insert(&mut self, record: &Record<'_>, standing: Standing) {
        let Some(words) = self.words_of(record) else { return };
        if let Some(at) = self.place(standing.part, words) {
            self.put(record, standing, at);
        }
    }

    /// Words that a record takes, if it is not too long to be cached.
    fn words_of(&self, record: &Record<'_>) -> Option<usize> {
        record.words().filter(|words| words * 8 <= self.shard.segment_bytes / RECORD_PARTS)
    }

    fn put(&mut self, record: &Record<'_>, standing: Standing, at: Location) {
        self.log.layout.segment(at).expect("the segment is there").write(at.place, record);
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
            self.log.ghosts.remember(replaced.tag(), header.map_or(0, |header| header.words() * 8));
        }
        let slots = self.log.layout.index.slot_count();
        if self.log.records > slots / 4 * 3 {
            self.resize_index(self.log.layout.index.bucket_count() * 3 / 2);
        }
    }

    /// Caches a record of an earlier cache if that takes memory from nobody. It is older than all that came
    /// since, and than what came back before it: the newest come back first. REQUIRES: as
    /// [`Writer::insert`].
    pub(crate) fn restore(&mut self, record: &Record<'_>, standing: Standing) -> RestoredRecord {
        let Some(words) = self.words_of(record) else { return RestoredRecord::TooLong };
        let segment_words = self.shard.segment_bytes / 8;
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

    /// Begins the next segment of what an earlier cache had in a part.
    fn begin_restored(&mut self, part: Part, chunk: Chunk) -> Option<()> {
        let mut layout = (*self.log.layout).clone();
        let id = self.add_segment(&mut layout, part, chunk)?;
        self.log.queue(part).begin_restored(id);
        self.publish(layout);
        Some(())
    }

    /// When a record with this tag was evicted, if that is remembered.
    pub(crate) fn recall(&mut self, tag: u32) -> Option<Evicted> {
        self.log.ghosts.recall(tag)
    }

    /// Puts another value of its key in place of a record, if there is one of the same size: a record that
    /// went to the end of the log would leave a gap where it was.
    pub(crate) fn replace(&mut self, record: &Record<'_>) -> bool {
        let layout = &self.log.layout;
        let Some(found) = layout.find(record.tag, record.keyspace, record.key) else { return false };
        let place = found.slot.location().place;
        let is_as_large = Some(found.segment.header(place).words()) == record.words();
        if is_as_large {
            found.segment.rewrite(place, record);
            // What is read and written so often that write buffers answer for it is not used here. Among the
            // main ones it has a turn for each time that it was written.
            if found.segment.part == Part::Main && found.slot.priority() == 0 {
                found.bucket.raise(found.way, found.slot);
            }
        }
        is_as_large
    }

    /// Forgets the record of `key`; returns how well it was used, if there was one.
    pub(crate) fn remove(&mut self, tag: u32, keyspace: KeyspaceId, key: &[u8]) -> Option<Standing> {
        let Found { bucket, way, slot, .. } = self.log.layout.find(tag, keyspace, key)?;
        let standing = self.log.layout.standing_of(slot);
        bucket.set(way, Slot::EMPTY);
        self.log.records -= 1;
        Some(standing)
    }

    /// Gives memory back to the pool; `false` if there is none to give.
    pub(crate) fn give_up_segment(&mut self) -> bool {
        // As many segments as it takes until what they leave behind is one less.
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

    /// Room for a record, at the end of the log of a part.
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
        let segment_words = self.shard.segment_bytes / 8;
        self.log.queue(part).place_in_open(words, segment_words)
    }

    /// Begins the next segment of a part.
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

    /// An empty segment; returns its number.
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
        layout.segments[index] = Some(Segment::new(id, part, chunk, Arc::clone(&self.shard.home)));
        self.shard.home.pool.division().records_grew(u64_of(self.shard.segment_bytes));
        Some(id)
    }

    /// Makes `layout` what readers see.
    fn publish(&mut self, layout: Layout) {
        let layout = Arc::new(layout);
        self.shard.layout.store(Arc::clone(&layout));
        self.log.layout = layout;
    }

    /// The chunk for carrying records on. The first time there is none, and the bound is passed by one chunk
    /// for good.
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

    /// Ends the oldest segment of a part: its used records are carried on, its memory is returned unless a
    /// reader still has it or it is kept as the spare one. `None` if there is no segment.
    fn end_one(&mut self) -> Option<Option<Chunk>> {
        let part = self.log.next_to_end();
        let Some(Queued { id, end }) = self.log.queue(part).take_oldest() else {
            // All that is left is a main segment that still grows.
            self.log.main.close_open();
            return if self.log.main.has_no_closed() { None } else { self.end_one() };
        };
        let mut layout = (*self.log.layout).clone();
        let old = layout.segments[usize_of(u64::from(id))].take().expect("a closed segment is there");
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

    /// Decides about each record of a segment that ends: those to be carried on are returned, the others
    /// forgotten.
    fn judge(&mut self, old: &Segment, id: u32, end: usize) -> Vec<Carried> {
        let index = Arc::clone(&self.log.layout.index);
        let mut carried = Vec::new();
        let mut left = self.shard.segment_bytes / 8 / 4 * 3;
        let mut place = FIRST_PLACE;
        while place < end {
            let header = old.header(place);
            let from = Location { segment: id, place };
            let words = header.words();
            place += words;
            let Some((way, slot)) = index.bucket(header.tag).way_to(from) else { continue };
            if slot.priority() > 0 && words <= left {
                left -= words;
                // Uses on probation have brought it to the main ones. There it has to be used anew.
                let priority = if old.part == Part::Main { slot.priority() - 1 } else { 0 };
                carried.push(Carried { tag: header.tag, from, words, priority });
            } else {
                index.bucket(header.tag).set(way, Slot::EMPTY);
                self.log.records -= 1;
                self.log.evicted += 1;
                self.log.ghosts.remember(header.tag, words * 8);
            }
        }
        carried
    }

    /// Moves a record to its new place, or forgets it if there is none.
    fn carry(&mut self, layout: &Layout, old: &Segment, carried: &Carried, to: Option<Location>) {
        let bucket = layout.index.bucket(carried.tag);
        let (way, _) = bucket.way_to(carried.from).expect("the lock is held");
        let Some(to) = to else {
            bucket.set(way, Slot::EMPTY);
            self.log.records -= 1;
            self.log.evicted += 1;
            return;
        };
        let segment = layout.segment(to).expect("the open segment is there");
        segment.copy(to.place, old, carried.from.place, carried.words);
        bucket.set(way, Slot::new(carried.tag, carried.priority, to));
    }

    fn resize_index(&mut self, bucket_count: usize) {
        let layout = &self.log.layout;
        let (index, records) =
            layout.index.resized(bucket_count.max(FIRST_BUCKETS), |slot| layout.standing_of(slot));
        let before = mem::replace(&mut self.log.records, records);
        debug_assert!(records <= before, "none comes by resizing");
        self.log.evicted += u64_of(before - records);
        let layout = Layout { index: Arc::new(index), segments: self.log.layout.segments.clone() };
        self.publish(layout);
    }

    /// Gives memory of the index back that a smaller cache does not need.
    fn shrink_index(&mut self) {
        let index = &self.log.layout.index;
        if index.bucket_count() > FIRST_BUCKETS && self.log.records < index.slot_count() / 4 {
            self.resize_index(index.bucket_count() / 2);
        }
    }
}

#[cfg(test)]
mod tests;
