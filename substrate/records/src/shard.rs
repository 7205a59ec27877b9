//! A shard: a log of segments, and the index of their records.
//!
//! New records go to the end of the log. When it may not grow, its oldest segment ends: records that were
//! used since they were written are carried to the end of the log with one use less, the others die. That is
//! a clock whose hand is the end of the log (FIFO with reinsertion), with two bits of use for each record;
//! TreeLine, section on the record cache.
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

use std::{collections::VecDeque, mem};

use testudo_base::{
    KeyspaceId,
    chunks::{Chunk, ChunkPool},
    num::{u64_of, usize_of},
    sync::{Arc, ArcSwap, Mutex, MutexGuard, scaled},
};

use crate::{
    ghosts::Ghosts,
    index::{Bucket, Index},
    segment::{FIRST_PLACE, Home, Record, Segment},
    slot::{Location, SEGMENTS_MAX, Slot},
};

/// Buckets of a new shard, and of an empty one.
const FIRST_BUCKETS: usize = scaled(32, 2);

/// What readers look into.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) index: Arc<Index>,
    /// By number.
    segments: Vec<Option<Arc<Segment>>>,
}

/// A segment that is full.
#[derive(Clone, Copy, Debug)]
struct Closed {
    id: u32,
    /// Where its last record ends.
    end: usize,
}

/// What changes under the lock.
#[derive(Debug)]
struct Log {
    /// The published layout.
    layout: Arc<Layout>,
    /// Oldest first.
    closed: VecDeque<Closed>,
    /// The segment that grows, and where.
    open: Option<Closed>,
    /// Numbers from here on were never used.
    next_id: u32,
    /// Slots in use.
    records: usize,
    ghosts: Ghosts,
    inserted: u64,
    evicted: u64,
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
            closed: VecDeque::new(),
            open: None,
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

    /// What readers look into, for a short while.
    #[inline]
    pub(crate) fn layout(&self) -> impl std::ops::Deref<Target = Arc<Layout>> + '_ {
        self.layout.load()
    }

    /// The same, for longer.
    pub(crate) fn layout_full(&self) -> Arc<Layout> {
        self.layout.load_full()
    }

    /// The segments of this moment, newest first, each with where its last record ends; and the layout that
    /// keeps them.
    pub(crate) fn newest_segments(&self) -> (Arc<Layout>, Vec<(u32, usize)>) {
        let log = self.log.lock();
        let segments = log.open.iter().chain(log.closed.iter().rev());
        (Arc::clone(&log.layout), segments.map(|segment| (segment.id, segment.end)).collect())
    }

    /// Locks the shard for changes.
    pub(crate) fn lock(&self) -> Writer<'_> {
        Writer { shard: self, log: self.log.lock() }
    }

    pub(crate) fn stats(&self) -> ShardStats {
        let log = self.log.lock();
        let segments = u64_of(log.closed.len() + usize::from(log.open.is_some()));
        ShardStats {
            bytes: segments * u64_of(self.segment_bytes) + log.layout.index.bytes(),
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

/// A record on its way from a segment that ends to the end of the log.
struct Carried {
    tag: u32,
    from: Location,
    words: usize,
}

impl Writer<'_> {
    pub(crate) fn layout(&self) -> &Layout {
        &self.log.layout
    }

    /// Caches a record. REQUIRES: none of its key is cached.
    pub(crate) fn insert(&mut self, record: &Record<'_>, priority: u8) {
        let Some(words) = record.words().filter(|words| words * 8 <= self.shard.segment_bytes / 8) else {
            return;
        };
        let Some(at) = self.place(words) else { return };
        self.log.layout.segment(at).expect("the segment is there").write(at.place, record);
        let (way, replaced) = self.log.layout.index.bucket(record.tag).way_for(record.tag);
        self.log.layout.index.bucket(record.tag).set(way, Slot::new(record.tag, priority, at));
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

    /// Caches a record of an earlier cache if that takes memory from nobody; `false` if there is none.
    /// REQUIRES: as [`Writer::insert`].
    pub(crate) fn restore(&mut self, record: &Record<'_>, priority: u8) -> bool {
        let Some(words) = record.words() else { return true };
        let segment_words = self.shard.segment_bytes / 8;
        let has_room = self.log.open.is_some_and(|open| open.end + words <= segment_words);
        if !has_room {
            let chunk = self.shard.home.pool.take_for_records(self.shard.segment_bytes);
            if chunk.and_then(|chunk| self.begin_segment(chunk)).is_none() {
                return false;
            }
        }
        self.insert(record, priority);
        true
    }

    /// Whether a record with this tag was evicted a short while ago.
    pub(crate) fn recall(&mut self, tag: u32) -> bool {
        self.log.ghosts.recall(tag)
    }

    /// Forgets the record of `key`; returns how well it was used, if there was one.
    pub(crate) fn remove(&mut self, tag: u32, keyspace: KeyspaceId, key: &[u8]) -> Option<u8> {
        let Found { bucket, way, slot, .. } = self.log.layout.find(tag, keyspace, key)?;
        bucket.set(way, Slot::EMPTY);
        self.log.records -= 1;
        Some(slot.priority())
    }

    /// Gives memory back to the pool; `false` if there is none to give.
    pub(crate) fn give_up_segment(&mut self) -> bool {
        // As many segments as it takes until what they leave behind is one less.
        for _ in 0..6 {
            if self.log.closed.is_empty() {
                self.close_open();
            }
            let Some(chunk) = self.end_oldest() else { return false };
            if let Some(chunk) = chunk {
                self.shard.home.pool.give_back([chunk]);
                self.shrink_index();
                return true;
            }
        }
        true
    }

    /// Room for a record, at the end of the log.
    fn place(&mut self, words: usize) -> Option<Location> {
        for _ in 0..3 {
            if let Some(at) = self.place_in_open(words) {
                return Some(at);
            }
            let chunk = self.shard.home.pool.take_for_records(self.shard.segment_bytes);
            match chunk {
                Some(chunk) => self.begin_segment(chunk)?,
                None => {
                    if self.log.closed.is_empty() {
                        self.close_open();
                    }
                    let chunk = self.end_oldest()?;
                    if let Some(at) = self.place_in_open(words) {
                        self.keep_spare(chunk);
                        return Some(at);
                    }
                    self.begin_segment(chunk?)?;
                }
            }
        }
        None
    }

    fn place_in_open(&mut self, words: usize) -> Option<Location> {
        let segment_words = self.shard.segment_bytes / 8;
        let open = self.log.open.as_mut().filter(|open| open.end + words <= segment_words)?;
        debug_assert!(words > 0 && open.end >= FIRST_PLACE, "behind what is there");
        let at = Location { segment: open.id, place: open.end };
        open.end += words;
        Some(at)
    }

    fn close_open(&mut self) {
        let open = self.log.open.take();
        self.log.closed.extend(open);
    }

    /// Begins the next segment of the log.
    fn begin_segment(&mut self, chunk: Chunk) -> Option<()> {
        let mut layout = (*self.log.layout).clone();
        self.open_in(&mut layout, chunk)?;
        self.publish(layout);
        Some(())
    }

    fn open_in(&mut self, layout: &mut Layout, chunk: Chunk) -> Option<()> {
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
        layout.segments[index] = Some(Segment::new(id, chunk, Arc::clone(&self.shard.home)));
        self.shard.home.pool.division().records_grew(u64_of(self.shard.segment_bytes));
        self.close_open();
        self.log.open = Some(Closed { id, end: FIRST_PLACE });
        Some(())
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

    /// Ends the oldest segment: its used records are carried on, its memory is returned unless a reader still
    /// has it or it is kept as the spare one. `None` if there is no such segment.
    fn end_oldest(&mut self) -> Option<Option<Chunk>> {
        let Closed { id, end } = self.log.closed.pop_front()?;
        let mut layout = (*self.log.layout).clone();
        let old = layout.segments[usize_of(u64::from(id))].take().expect("a closed segment is there");
        self.shard.home.pool.division().records_shrank(u64_of(self.shard.segment_bytes));
        let carried = self.judge(&old, id, end);
        let mut took_spare = false;
        for Carried { tag, from, words } in carried {
            let mut at = self.place_in_open(words);
            if at.is_none() && !took_spare {
                took_spare = true;
                let chunk = self.take_spare();
                at = self.open_in(&mut layout, chunk).and_then(|()| self.place_in_open(words));
            }
            self.carry(&layout, &old, &Carried { tag, from, words }, at);
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
                carried.push(Carried { tag: header.tag, from, words });
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
        let (way, slot) = bucket.way_to(carried.from).expect("the lock is held");
        let Some(to) = to else {
            bucket.set(way, Slot::EMPTY);
            self.log.records -= 1;
            self.log.evicted += 1;
            return;
        };
        let segment = layout.segment(to).expect("the open segment is there");
        segment.copy(to.place, old, carried.from.place, carried.words);
        bucket.set(way, Slot::new(carried.tag, slot.priority() - 1, to));
    }

    fn resize_index(&mut self, bucket_count: usize) {
        let (index, records) = self.log.layout.index.resized(bucket_count.max(FIRST_BUCKETS));
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
