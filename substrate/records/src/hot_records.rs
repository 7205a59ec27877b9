//! What is in the cache, for a later one.
//!
//! **Invariants**
//! - A record is handed out only if it is true for the given state of its keyspace.
//! - No lock is held while records are looked at, and one shard's memory is kept at a time.

use std::collections::BTreeMap;

use testudo_base::KeyspaceId;

use crate::{
    hot_record::HotRecord,
    keyspace_records::KeyspaceRecords,
    record_cache::RecordCache,
    segment::{FIRST_PLACE, Part},
    shard::{Layout, Shard},
    slot::Location,
};

impl RecordCache {
    /// Lets `act` see the records that are true for these states of their keyspaces, until it returns
    /// `false`: first the main ones and those that were used since they came, of each shard the newest first.
    /// Others come and go meanwhile: a few may be missing or come twice.
    pub fn each_hot_record(
        &self,
        states: &BTreeMap<KeyspaceId, KeyspaceRecords>,
        mut act: impl FnMut(&HotRecord) -> bool,
    ) {
        for is_used in [true, false] {
            for (layout, segments) in self.shards().iter().map(Shard::best_segments) {
                for location in segments.into_iter().flat_map(|segment| places(&layout, segment)) {
                    let record = hot_record(&layout, location, states);
                    if let Some(record) = record.filter(|record| (record.priority > 0) == is_used)
                        && !act(&record)
                    {
                        return;
                    }
                }
            }
        }
    }
}

/// Where the records of a segment are.
fn places(layout: &Layout, (segment, end): (u32, usize)) -> impl Iterator<Item = Location> + '_ {
    let mut next = Location { segment, place: FIRST_PLACE };
    std::iter::from_fn(move || {
        let at = next;
        if at.place >= end {
            return None;
        }
        next.place += layout.segment(at)?.header(at.place).words();
        Some(at)
    })
}

/// The record at a place, if the index leads there and the record is true for its keyspace.
fn hot_record(
    layout: &Layout,
    at: Location,
    states: &BTreeMap<KeyspaceId, KeyspaceRecords>,
) -> Option<HotRecord> {
    let segment = layout.segment(at)?;
    let (_, slot) = layout.index.bucket(segment.header(at.place).tag).way_to(at)?;
    let (keyspace, flushes) = segment.owner(at.place);
    states.get(&keyspace).filter(|records| records.covers(flushes))?;
    let (key, value) = (segment.key(at.place), segment.value(at.place, flushes)?);
    let priority = if segment.part == Part::Main { slot.priority().max(1) } else { slot.priority() };
    Some(HotRecord { keyspace, priority, key, value })
}

#[cfg(test)]
mod tests;
