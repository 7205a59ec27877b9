//! Export of the cache's contents for a later cache.
//!
//! **Invariants**
//! - A record is exported only if it is valid for the given state of its keyspace.
//! - No lock is held while records are visited, and only one shard's memory is held at a time.

use std::{collections::BTreeMap, mem, ptr};

use testudo_base::{KeyspaceId, prefetch::prefetch};

use crate::{
    hot_record::HotRecord,
    index::Location,
    keyspace_records::KeyspaceRecords,
    record_cache::RecordCache,
    segment::{FIRST_PLACE, Part},
    shard::{Layout, Shard},
};

/// Number of records whose index buckets are prefetched: they are scattered.
const LOADED_AHEAD: usize = 16;

impl RecordCache {
    /// Calls `act` with the records that are valid for these states of their keyspaces, until it returns
    /// `false`. Main records and those used since their insertion come first; within each shard, newest
    /// first. Because of concurrent changes, a few may be missing or repeated.
    pub fn each_hot_record(
        &self,
        states: &BTreeMap<KeyspaceId, KeyspaceRecords>,
        mut act: impl FnMut(&HotRecord) -> bool,
    ) {
        let (keyspace, key, value) = (KeyspaceId(0), Vec::new(), Vec::new());
        let mut record = HotRecord { keyspace, priority: 0, key, value };
        for is_used in [true, false] {
            for (layout, segments) in self.shards().iter().map(Shard::best_segments) {
                let places = segments.iter().flat_map(|segment| places(&layout, *segment));
                let mut ahead = places.clone();
                let mut load_next = || _ = ahead.next().map(|at| load(&layout, at));
                (0..LOADED_AHEAD).for_each(|_| load_next());
                for at in places {
                    load_next();
                    if take(&layout, at, states, is_used, &mut record).is_some() && !act(&record) {
                        return;
                    }
                }
            }
        }
    }
}

/// Iterates over the positions of the records in a segment.
fn places(layout: &Layout, (segment, end): (u32, usize)) -> impl Iterator<Item = Location> + Clone {
    let mut next = Location { segment, place: FIRST_PLACE };
    std::iter::from_fn(move || {
        let at = next;
        if at.place >= end {
            return None;
        }
        next.place += layout.segment(at)?.header(at.place).words();
        debug_assert!(next.place > at.place, "a record has words");
        Some(at)
    })
}

/// Prefetches the index bucket of the record at a position.
fn load(layout: &Layout, at: Location) {
    if let Some(segment) = layout.segment(at) {
        prefetch::<1>(ptr::from_ref(layout.index.bucket(segment.header(at.place).tag)).cast());
    }
}

/// Copies the record at a position if the index refers to it, it is valid for its keyspace, and its use since
/// insertion matches `is_used`.
fn take(
    layout: &Layout,
    at: Location,
    states: &BTreeMap<KeyspaceId, KeyspaceRecords>,
    is_used: bool,
    to: &mut HotRecord,
) -> Option<()> {
    let segment = layout.segment(at)?;
    let (_, slot) = layout.index.bucket(segment.header(at.place).tag).way_to(at)?;
    to.priority = slot.priority().max(u8::from(segment.part == Part::Main));
    let (keyspace, flushes) = segment.owner(at.place);
    states.get(&keyspace).filter(|records| records.covers(flushes) && (to.priority > 0) == is_used)?;
    to.keyspace = keyspace;
    to.key = segment.key_in(mem::take(&mut to.key), at.place);
    to.value = segment.value_in(mem::take(&mut to.value), at.place, flushes)?;
    Some(())
}

#[cfg(test)]
mod tests;
