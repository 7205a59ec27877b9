//! The objects of value segments and value logs, in addition to those of the tree.
//!
//! **Invariants**
//! - The highest bit of an object's id marks a segment or, with the third highest, a value log; the other
//!   bits are its id.

use std::collections::BTreeMap;

use testudo_base::{Error, KeyspaceId, ObjectId, Result, RunId, codec::Damage, sync::Arc};
use testudo_contract::{PartUse, RunUse};
use testudo_run::{Run, RunRef};
use testudo_storage::{Change, DataFile};
use testudo_values::{Segment, SegmentRecord, SegmentSet, ValueLogRecord};

/// Set in the object ids of segments.
const SEGMENT_BIT: u64 = 1 << 63;

/// Objects of a keyspace, by id.
pub(crate) type Objects = BTreeMap<ObjectId, Arc<[u8]>>;

/// Also set in the object ids of value logs. Run ids never get that large: those of readers begin with the
/// bit above it, and without this one.
const VALUE_LOG_BIT: u64 = 1 << 61;

/// Splits the objects of the tree from those of its segments. Those of value logs are in neither.
pub fn split_objects(mut objects: Objects) -> (Objects, Objects) {
    let mut segments = objects.split_off(&ObjectId(SEGMENT_BIT));
    segments.retain(|id, _| !is_value_log(*id));
    (objects, segments)
}

fn is_value_log(id: ObjectId) -> bool {
    id.0 & SEGMENT_BIT != 0 && id.0 & VALUE_LOG_BIT != 0
}

fn object_of_log(record: &ValueLogRecord) -> ObjectId {
    debug_assert!(record.id.0 & (SEGMENT_BIT | VALUE_LOG_BIT) == 0, "ids of value logs leave the bits free");
    ObjectId(SEGMENT_BIT | VALUE_LOG_BIT | record.id.0)
}

/// Returns the value logs of a keyspace.
///
/// Errors: [`Damage`] if an object contradicts itself.
pub fn value_logs(objects: &Objects) -> std::result::Result<Vec<ValueLogRecord>, Damage> {
    let of_logs = objects.range(ObjectId(SEGMENT_BIT)..).filter(|(id, _)| is_value_log(**id));
    let record_of = |(id, bytes): (&ObjectId, &Arc<[u8]>)| {
        let record = ValueLogRecord::decode(bytes)?;
        let is_its_own = object_of_log(&record) == *id;
        is_its_own.then_some(record).ok_or(Damage("the object of a value log has another id"))
    };
    of_logs.map(record_of).collect()
}

/// Returns the changes that add a value log to the durable state.
pub fn put_value_log(record: &ValueLogRecord) -> Vec<Change> {
    let mut changes = vec![Change::PutObject(record.keyspace, object_of_log(record), record.encode())];
    changes.extend(record.spans.iter().map(|span| Change::References(*span, 1)));
    changes
}

/// Returns the changes that remove it from the durable state.
pub fn release_value_log(record: &ValueLogRecord) -> Vec<Change> {
    let mut changes: Vec<_> = record.spans.iter().map(|span| Change::References(*span, -1)).collect();
    changes.push(Change::DeleteObject(record.keyspace, object_of_log(record)));
    changes
}

fn object_of(segment: &Segment) -> ObjectId {
    debug_assert!(segment.id().0 & SEGMENT_BIT == 0, "ids of segments leave the bit free");
    ObjectId(SEGMENT_BIT | segment.id().0)
}

fn record_of(id: ObjectId, bytes: &[u8]) -> std::result::Result<SegmentRecord, Damage> {
    let record = SegmentRecord::decode(bytes)?;
    let is_its_own = record.id.0 == id.0 & !SEGMENT_BIT;
    is_its_own.then_some(record).ok_or(Damage("the object of a segment has another id"))
}

/// Loads the segments that `objects` describe. Reads no pages.
///
/// Errors: `Corruption` if they contradict themselves or the live extents.
pub(crate) fn load(data: &Arc<DataFile>, keyspace: KeyspaceId, objects: &Objects) -> Result<SegmentSet> {
    let mut segments = SegmentSet::default();
    for (&id, bytes) in objects {
        let damaged = |Damage(why)| Error::corruption("manifest", 0, format!("keyspace {keyspace}: {why}"));
        let record = record_of(id, bytes).map_err(damaged)?;
        let run = Run::open(Arc::clone(data), record.run.clone())?;
        segments.insert(Segment::opened(record, run).map_err(damaged)?);
    }
    Ok(segments)
}

/// Returns the runs named by the objects of segments; each counts completely. For salvage.
///
/// Errors: [`Damage`] if they contradict themselves.
pub fn read_layout(objects: &Objects) -> std::result::Result<Vec<PartUse>, Damage> {
    let part = |(id, bytes): (&ObjectId, &Arc<[u8]>)| {
        let reference = record_of(*id, bytes)?.run;
        let counts_in = vec![reference.keys.bounds()];
        Ok(PartUse::Run(RunUse { reference, counts_in }))
    };
    objects.iter().map(part).collect()
}

/// Returns the segments whose values are addressed by numbers, with their runs. For salvage.
///
/// Errors: [`Damage`] if an object contradicts itself.
pub fn logged_runs(objects: &Objects) -> std::result::Result<Vec<(RunId, RunRef)>, Damage> {
    let of_segments = objects.range(ObjectId(SEGMENT_BIT)..).filter(|(id, _)| !is_value_log(**id));
    let records = of_segments.map(|(id, bytes)| record_of(*id, bytes));
    let logged = records.filter(|record| record.as_ref().map_or(true, SegmentRecord::is_logged));
    logged.map(|record| record.map(|record| (record.id, record.run))).collect()
}

/// Returns the changes from the segments `old` to `new`: released pages, and the rest.
pub(crate) fn changes_between(
    old: &SegmentSet,
    new: &SegmentSet,
    keyspace: KeyspaceId,
) -> (Vec<Change>, Vec<Change>) {
    let (mut given_back, mut rest) = (Vec::new(), Vec::new());
    let references = |segment: &Segment, by: i32| {
        segment.spans().iter().map(move |span| Change::References(*span, by)).collect::<Vec<_>>()
    };
    for segment in old.iter() {
        let is_there = new.get(segment.id());
        if is_there.is_none_or(|now| now.run().reference().id != segment.run().reference().id) {
            given_back.extend(references(segment, -1));
        }
        if is_there.is_none() {
            rest.push(Change::DeleteObject(keyspace, object_of(segment)));
        }
    }
    for segment in new.iter() {
        let before = old.get(segment.id());
        if before.is_none_or(|before| before.run().reference().id != segment.run().reference().id) {
            rest.extend(references(segment, 1));
        }
        if before.is_none_or(|before| !Arc::ptr_eq(before, segment)) {
            rest.push(Change::PutObject(keyspace, object_of(segment), segment.encode()));
        }
    }
    (given_back, rest)
}
