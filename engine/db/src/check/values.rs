//! Checks that the values a keyspace counts as garbage are exactly those to which no entry of its tree
//! refers.
//!
//! **Invariants**
//! - Background work is blocked only until the state to be counted is pinned.

use std::collections::BTreeMap;

use testudo_base::{Cursor, Error, ErrorKind, Result, RunId, ValueReference, codec::Damage, sync::Arc};
use testudo_contract::{Part, PartUse, RunUse};
use testudo_options::stored_tree::stored_layout;
use testudo_run::{BoundedCursor, ReadAhead, Run, RunCursor};
use testudo_store::{Store, keyspace::KeyspaceCore};
use testudo_values::{DeadValues, Segment, SegmentSet};

const READ_BYTES: usize = 256 << 10;

/// Collects the references of all entries and compares them with the counts of the segments; fails with the
/// first mismatch.
pub(crate) fn check_values(store: &Store, keyspace: &KeyspaceCore) -> Result<()> {
    let round = store.flush_lock.lock();
    if store.has_failed() || keyspace.is_dropped() {
        return Ok(());
    }
    let view = Arc::clone(&keyspace.view.load());
    let objects = store.manifest.with_state(|state| state.objects_of(keyspace.id));
    drop(round);
    let Some(segments) = view.tree.value_segments() else { return Ok(()) };
    let layout = stored_layout(&view.options, objects).map_err(damaged)?;
    let runs: BTreeMap<RunId, Arc<Run>> =
        view.tree.parts().into_iter().map(|Part::Run(run)| (run.reference().id, run)).collect();
    let mut referred = BTreeMap::new();
    for PartUse::Run(used) in layout {
        let run = runs.get(&used.reference.id).ok_or_else(|| damaged(Damage("a run is missing")))?;
        note_references(run, &used, segments, &mut referred)?;
    }
    segments.iter().try_for_each(|segment| compare(segment, referred.get(&segment.id())))
}

fn damaged(Damage(why): Damage) -> Error {
    Error::new(ErrorKind::Corruption, format!("manifest: {why}"))
}

/// Records the values to which the entries of a run refer, within the ranges in which the run counts.
fn note_references(
    run: &Arc<Run>,
    used: &RunUse,
    segments: &SegmentSet,
    referred: &mut BTreeMap<RunId, DeadValues>,
) -> Result<()> {
    for bounds in &used.counts_in {
        let cursor = RunCursor::new(Arc::clone(run), ReadAhead::bytes(READ_BYTES));
        let mut cursor = BoundedCursor::new(cursor, bounds.clone());
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            if let Some(reference) = ValueReference::of(entry.kind, entry.value).map_err(damaged)?
                && reference.is_in_segment()
            {
                let segment = segments.get(reference.segment);
                let count = segment.map_or(0, |segment| segment.dead().count());
                let values = referred.entry(reference.segment).or_insert_with(|| DeadValues::none_of(count));
                if !values.insert(reference.number) {
                    return Err(wrong(
                        reference.segment,
                        "entries refer to a value twice or to a missing one",
                    ));
                }
            }
            cursor.next()?;
        }
    }
    Ok(())
}

fn wrong(segment: RunId, what: &str) -> Error {
    Error::new(ErrorKind::Corruption, format!("data: value segment {segment}: {what}"))
}

/// Checks that exactly the unreferenced values are marked as garbage, and that the byte counts match.
fn compare(segment: &Segment, referred: Option<&DeadValues>) -> Result<()> {
    let is_referred = |number| referred.is_some_and(|values| values.contains(number));
    for number in 0..segment.dead().count() {
        match (segment.dead().contains(number), is_referred(number)) {
            (true, true) => return Err(wrong(segment.id(), "an entry refers to a value counted as garbage")),
            (false, false) => return Err(wrong(segment.id(), "no entry refers to a value counted as live")),
            _ => {}
        }
    }
    let (mut stored_bytes, mut dead_bytes) = (0, 0);
    let mut cursor = RunCursor::new(Arc::clone(segment.run()), ReadAhead::bytes(READ_BYTES));
    cursor.seek_first()?;
    while let Some(entry) = cursor.entry() {
        let (reference, _) = ValueReference::split(entry.value).map_err(damaged)?;
        stored_bytes += u64::from(reference.length);
        if segment.dead().contains(reference.number) {
            dead_bytes += u64::from(reference.length);
        }
        cursor.next()?;
    }
    if (stored_bytes, dead_bytes) != (segment.stored_bytes(), segment.dead_bytes()) {
        return Err(wrong(segment.id(), "its byte counts differ from its contents"));
    }
    Ok(())
}
