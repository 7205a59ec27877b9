//! Replays the log into memtables, and checks its commits.
//!
//! Every commit newer than the flushed seqno of its keyspace goes into its memtable. Memtables are flushed if
//! they outgrow their share; the whole log is checked before the first of these flushes.

use std::collections::BTreeMap;

use testudo_base::{
    Error, ErrorKind, KeyspaceId, Kind, Result, Seqno, codec::Damage, num::u64_of, planted,
    sync::atomic::Ordering::Relaxed,
};
use testudo_flush::{round::flush_sealed::flush_if_full, seal::begin_value_log::has_found_value_logs};
use testudo_storage::ManifestState;
use testudo_store::{
    Store,
    commits::batch_format::{self, Operation, logged_value},
};
use testudo_wal::{LogEvidence, Record, ReplayEnd, Verdict, segment_file_name};

use crate::found_values::{FoundValues, flush_recovered};

/// Replays the commits of the log into memtables.
pub fn replay(store: &Store, read_only: bool, evidence: &LogEvidence, log_seqno: Seqno) -> Result<ReplayEnd> {
    debug_assert!(store.log.wal.is_none(), "nothing is written while the log is read");
    let log_segment = evidence.first_segment;
    let flushed = store.manifest.with_state(flushed_of);
    let newest_flushed = flushed.values().copied().max().unwrap_or_default().max(log_seqno);
    let mut next = None;
    let mut is_device_full = false;
    let is_planted = read_only && planted!("reader-holds-the-whole-log");
    let mut is_checked = false;
    let mut found = FoundValues::of_store(store);
    let deliver = |record: Record<'_>| {
        if next.is_none() && record.first_seqno.0 > log_seqno.0 + 1 {
            return Err(hole(log_segment, "commits before the first one in the log are missing"));
        }
        let end = record.first_seqno.0 + u64::from(record.seqno_count);
        next = Some(end);
        if end <= log_seqno.0 + 1 {
            return Ok(Verdict::Taken);
        }
        if replay_record(store, &record, &flushed, &mut found)? == Verdict::Unbacked {
            return Ok(Verdict::Unbacked);
        }
        store.log.record_recovered(Seqno(end - 1));
        // A log can hold more than the write buffer limit. On a full device the buffers exceed the limit, or
        // the store would not open.
        while store.backpressure.may_be_full() && !is_device_full && !is_planted {
            if !read_only && !std::mem::replace(&mut is_checked, true) {
                check_log(store, evidence)?;
            }
            match flush_some(store) {
                Err(error) if error.kind() == ErrorKind::OutOfSpace && !read_only => is_device_full = true,
                outcome => outcome?,
            }
        }
        Ok(Verdict::Taken)
    };
    let end = testudo_wal::replay(&*store.env, &store.directory, store.id, evidence, deliver)?;
    // A segment that lost its header looks like an unused one; the next segment tells them apart.
    let first = end.segments.iter().find(|segment| segment.first_seqno.0 > 0);
    if first.is_some_and(|segment| segment.first_seqno.0 > log_seqno.0 + 1) {
        return Err(hole(log_segment, "the segment lost its header"));
    }
    if end.last_seqno < newest_flushed && newest_flushed > log_seqno {
        return Err(hole(log_segment, "the log ends before commits that the trees already hold"));
    }
    Ok(end)
}

/// Frees write memory. If values came from value logs, which may exist only in volatile caches, everything is
/// flushed with one edit: its statement about the log must also hold for the values there.
fn flush_some(store: &Store) -> Result<()> {
    if has_found_value_logs(store) { flush_recovered(store) } else { flush_if_full(store) }
}

fn replay_record(
    store: &Store,
    record: &Record<'_>,
    flushed: &Flushed,
    found: &mut FoundValues,
) -> Result<Verdict> {
    let catalogue = store.catalogue.read();
    let Some(values) = values_of(record, flushed, found)? else { return Ok(Verdict::Unbacked) };
    let mut values = values.into_iter().peekable();
    let next_keyspace = store.manifest.with_state(|state| state.next_keyspace);
    let mut count = 0;
    let outcome = batch_format::decode::<Damage>(record.payload, |index, operation| {
        count = index + 1;
        let seqno = Seqno(record.first_seqno.0 + index);
        if index > 0 && index + 1 == u64::from(record.seqno_count) && planted!("last-of-batch-not-replayed") {
            return Ok(());
        }
        check_keyspace(&operation, next_keyspace)?;
        let Some(keyspace) = catalogue.by_id.get(&operation.keyspace) else { return Ok(()) };
        let is_flushed = flushed.get(&operation.keyspace).is_some_and(|flushed| seqno <= *flushed);
        if is_flushed && !(operation.kind == Kind::Operands && planted!("flushed-operand-replayed")) {
            return Ok(());
        }
        let view = keyspace.view.load();
        if view.active.record_commit(seqno) {
            store.buffered.insert(keyspace);
        }
        let logged = values.next_if(|(of, _)| *of == index);
        let (kind, value) = match (&logged, operation.kind) {
            (Some((_, value)), _) => (Kind::Value, value.as_slice()),
            (None, Kind::Tombstone) => (Kind::Tombstone, &[][..]),
            (None, kind) => (kind, operation.value),
        };
        let outcome = view.active.table.insert(seqno, kind, operation.key, value, None);
        let grown = u64_of(outcome.memory_bytes_added);
        store.backpressure.active_bytes.fetch_add(grown, Relaxed);
        Ok(())
    });
    if outcome.is_err() || count != u64::from(record.seqno_count) {
        let why = outcome.err().map_or("a commit's operation count does not match its header", |d| d.0);
        return Err(damaged_commit(record, why));
    }
    debug_assert!(
        values.next().is_none() || planted!("last-of-batch-not-replayed"),
        "each value that was read belongs to an operation"
    );
    Ok(Verdict::Taken)
}

/// Flushed seqno of each keyspace.
pub type Flushed = BTreeMap<KeyspaceId, Seqno>;

/// Values of a commit, each with the index of its operation.
type ValuesOfCommit = Vec<(u64, Vec<u8>)>;

/// Reads a commit's values from value logs, by operation, as far as they are needed; `None` if one is
/// missing. Values already in a tree, or of a dropped keyspace, are not needed.
///
/// Errors: `Corruption` of the commit; `Io` if the device cannot read a value that may be present: ending the
/// log here would lose a commit over a read that may succeed on retry.
fn values_of(
    record: &Record<'_>,
    flushed: &Flushed,
    found: &mut FoundValues,
) -> Result<Option<ValuesOfCommit>> {
    let mut values = Vec::new();
    let (mut is_backed, mut failure) = (true, None);
    let decoded = batch_format::decode::<Damage>(record.payload, |index, operation| {
        let Some(reference) = logged_value(&operation) else { return Ok(()) };
        let is_needed =
            flushed.get(&operation.keyspace).is_some_and(|flushed| record.first_seqno.0 + index > flushed.0);
        // One missing value is enough to stop.
        if is_needed && is_backed {
            match found.read(&reference) {
                Ok(Some(value)) => values.push((index, value)),
                Ok(None) => is_backed = false,
                Err(error) => (is_backed, failure) = (false, Some(error)),
            }
        }
        Ok(())
    });
    decoded.map_err(|Damage(why)| damaged_commit(record, why))?;
    if let Some(error) = failure {
        return Err(error);
    }
    if planted!("replay-trusts-references") && !is_backed {
        return Ok(Some(values));
    }
    Ok(is_backed.then_some(values))
}

/// Reads the log as recovery does, without applying it.
pub fn check_log(store: &Store, evidence: &LogEvidence) -> Result<()> {
    let next_keyspace = store.manifest.with_state(|state| state.next_keyspace);
    let flushed = store.manifest.with_state(flushed_of);
    let mut found = FoundValues::of_store(store);
    let check = |record: Record<'_>| check_commit(&record, next_keyspace, &flushed, &mut found);
    testudo_wal::replay(&*store.env, &store.directory, store.id, evidence, check).map(|_| ())
}

/// Returns the flushed seqnos of the keyspaces in a state.
pub fn flushed_of(state: &ManifestState) -> Flushed {
    state.keyspaces.iter().map(|(&id, record)| (id, record.flushed)).collect()
}

/// Checks that a commit decodes and names only keyspaces that have existed, and whether the values it refers
/// to are present.
pub fn check_commit(
    record: &Record<'_>,
    next_keyspace: KeyspaceId,
    flushed: &Flushed,
    found: &mut FoundValues,
) -> Result<Verdict> {
    let mut count = 0;
    let decoded = batch_format::decode(record.payload, |_, operation| {
        count += 1;
        check_keyspace(&operation, next_keyspace)
    });
    let why = match decoded {
        Ok(()) if count == record.seqno_count => {
            let values = values_of(record, flushed, found)?;
            return Ok(if values.is_some() { Verdict::Taken } else { Verdict::Unbacked });
        }
        Ok(()) => "a commit's operation count does not match its header",
        Err(Damage(why)) => why,
    };
    Err(damaged_commit(record, why))
}

/// Checks that the keyspace has existed. The manifest records a keyspace before the log uses it, so an
/// unknown id means that the manifest is too old.
fn check_keyspace(operation: &Operation<'_>, next_keyspace: KeyspaceId) -> std::result::Result<(), Damage> {
    if operation.keyspace >= next_keyspace {
        return Err(Damage("it writes to a keyspace unknown to the manifest"));
    }
    Ok(())
}

fn damaged_commit(record: &Record<'_>, why: &str) -> Error {
    let (segment, offset) = record.place;
    let message = format!("commit {}: {why}", record.first_seqno);
    Error::corruption(segment_file_name(segment), offset, message)
}

fn hole(segment: u64, why: &str) -> Error {
    Error::corruption(segment_file_name(segment), 0, why)
}

#[cfg(test)]
mod tests;
