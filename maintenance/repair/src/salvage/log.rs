//! Sorts the log by key: the newest operation of each key goes into a scratch keyspace of the target, with
//! later operands appended.
//!
//! **Invariants**
//! - Operations are processed in seqno order, so the last one written for a key is the newest.
//! - A value in a value log, or a long value, stays a reference: it is read only once its operation is known
//!   to count.
//! - Scratch keyspaces are dropped before the target is finished.

use std::collections::BTreeMap;

use testudo_base::{
    KeyspaceId, Kind, Result, Seqno, ValueReference,
    codec::{self, Damage, Reader},
    num::{u64_of, usize_of},
};
use testudo_db::{Batch, Keyspace, maintenance::batch_of_another_store};
use testudo_options::KeyspaceOptions;
use testudo_store::{
    commits::batch_format::{self, Operation},
    long_work::Meter,
};
use testudo_wal::{LogEvent, LogHole, Record};

use crate::salvage::{
    evidence::Evidence,
    plan::Plan,
    report::{LogSalvage, LostCommits, LostRange},
    target::Target,
    values::SalvagedValues,
};

/// Target size in bytes of a scratch commit.
const COMMIT_BYTES: usize = 256 << 10;
/// Bytes before the value of an operation.
const SCRATCH_HEAD_BYTES: usize = 13;
/// Maximum bytes before an operand in an operand list.
const OPERAND_HEAD_BYTES: usize = 10;

/// The log, sorted by key.
#[derive(Default)]
pub(crate) struct SortedLog {
    /// For each keyspace, key to operations; see [`decode_scratch`].
    pub(crate) scratch: BTreeMap<KeyspaceId, Keyspace>,
    /// No part of the log is lost after this seqno: the last operation on a key is authoritative.
    pub(crate) whole_after: Seqno,
    pub(crate) report: LogSalvage,
}

/// An operation of the log on a key.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) seqno: Seqno,
    pub(crate) kind: Kind,
    pub(crate) value: Vec<u8>,
    /// Loss to report if its value was not found.
    pub(crate) lost: Option<LostRange>,
}

impl Logged {
    /// Replaces a reference by its value, if that is in a value log.
    pub(crate) fn read_value(&mut self, key: &[u8], values: &SalvagedValues) -> Result<()> {
        let reference = ValueReference::of(self.kind, &self.value).ok().flatten();
        let Some(reference) = reference else { return Ok(()) };
        if !reference.is_in_segment() {
            self.lost = values.lost_long_value(key, &reference)?;
            return Ok(());
        }
        match values.logged.read(&reference)? {
            Some(value) => (self.kind, self.value) = (Kind::Value, value),
            None => self.lost = Some(values.logged.lost(key, &reference, "the value was in a value log")),
        }
        Ok(())
    }
}

/// Decodes the operations on a key in a scratch keyspace, oldest first, each: seqno u64, kind u8, length u32,
/// value. All but the first are operands.
pub(crate) fn decode_scratch(bytes: &[u8]) -> std::result::Result<Vec<Logged>, Damage> {
    let mut reader = Reader::new(bytes);
    let mut operations = Vec::new();
    while !reader.is_empty() {
        let seqno = Seqno(reader.u64()?);
        let kind = Kind::from_u8(reader.u8()?).ok_or(Damage("unknown operation kind"))?;
        let length = reader.u32()?;
        let value = reader.take(usize_of(length.into()))?.to_vec();
        operations.push(Logged { seqno, kind, value, lost: None });
    }
    Ok(operations)
}

fn encode_scratch(seqno: Seqno, operation: &Operation<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(SCRATCH_HEAD_BYTES + operation.value.len());
    codec::put_u64(&mut out, seqno.0);
    codec::put_u8(&mut out, operation.kind as u8);
    codec::put_bytes(&mut out, operation.value);
    debug_assert_eq!(out.len(), SCRATCH_HEAD_BYTES + operation.value.len(), "the length that was planned");
    out
}

/// Reads the whole log into scratch keyspaces.
pub(crate) fn collect(
    target: &Target,
    evidence: &mut Evidence,
    mut plan: Plan,
    meter: &mut Meter<'_, '_>,
) -> Result<(Plan, SortedLog)> {
    let start = evidence.manifest.as_ref().filter(|_| evidence.manifest_counts);
    let start = start.map(|manifest| manifest.state.log_seqno);
    let mut log = SortedLog::default();
    log.report.segments = u64_of(evidence.log.segments().len());
    let flushed = plan.keyspaces.values().map(|keyspace| keyspace.flushed).min().unwrap_or_default();
    let mut writer = Writer {
        target,
        plan: &mut plan,
        log: &mut log,
        batch: batch_of_another_store(&target.db),
        bytes: 0,
    };
    let (store, proven) = (evidence.store, writer.plan.proven);
    evidence.log.read(store, start, proven, |event| match event {
        LogEvent::Commit(record) => writer.take(&record),
        LogEvent::Hole(hole) => {
            writer.record_hole(&hole, flushed);
            Ok(())
        }
        LogEvent::Progress(bytes) => meter.advance(bytes),
    })?;
    writer.commit()?;
    Ok((plan, log))
}

struct Writer<'w> {
    target: &'w Target,
    plan: &'w mut Plan,
    log: &'w mut SortedLog,
    batch: Batch,
    bytes: usize,
}

impl Writer<'_> {
    fn take(&mut self, record: &Record<'_>) -> Result<()> {
        let mut failure = None;
        let mut count = 0;
        let decoded = batch_format::decode::<Damage>(record.payload, |index, operation| {
            count += 1;
            let seqno = Seqno(record.first_seqno.0 + index);
            match self.push(seqno, &operation) {
                Err(error) if failure.is_none() => failure = Some(error),
                _ => {}
            }
            Ok(())
        });
        if let Some(error) = failure {
            return Err(error);
        }
        self.log.report.commits += 1;
        self.log.report.operations += count;
        self.log.report.last_seqno = record.first_seqno.0 + u64::from(record.seqno_count) - 1;
        if decoded.is_err() {
            // The checksum matches, so it was written that way; the operations decoded so far count.
            let last_seqno = self.log.report.last_seqno;
            self.log.whole_after = Seqno(last_seqno);
            let first_seqno = record.first_seqno.0 + count;
            let file = String::new();
            self.log.report.lost.push(LostCommits { first_seqno, last_seqno, file, offset: 0 });
        }
        if self.bytes >= COMMIT_BYTES { self.commit() } else { Ok(()) }
    }

    fn push(&mut self, seqno: Seqno, operation: &Operation<'_>) -> Result<()> {
        let id = operation.keyspace;
        if self.plan.keyspace(id).is_none() {
            return Ok(());
        }
        let scratch = match self.log.scratch.get(&id) {
            Some(scratch) => scratch.clone(),
            None => {
                let options = || KeyspaceOptions::default().merge_operator("append");
                let scratch = self.target.db.keyspace(&self.scratch_name(id), options)?;
                self.log.scratch.entry(id).or_insert(scratch).clone()
            }
        };
        let logged = encode_scratch(seqno, operation);
        if !self.batch.has_room_for(operation.key.len(), logged.len() + OPERAND_HEAD_BYTES) {
            self.commit()?;
        }
        self.bytes += operation.key.len() + logged.len();
        match operation.kind {
            Kind::Operands => self.batch.merge(&scratch, operation.key, logged),
            _ => {
                self.batch.insert(&scratch, operation.key, logged);
            }
        }
        Ok(())
    }

    /// A name that no user keyspace has.
    fn scratch_name(&self, id: KeyspaceId) -> String {
        let mut name = format!("salvage-log-{id}");
        while self.plan.keyspaces.values().any(|keyspace| keyspace.name == name) {
            name.push('+');
        }
        name
    }

    fn commit(&mut self) -> Result<()> {
        self.bytes = 0;
        let batch = std::mem::replace(&mut self.batch, batch_of_another_store(&self.target.db));
        if batch.is_empty() { Ok(()) } else { batch.commit() }
    }

    /// Records lost commits, as far as the trees do not hold them.
    fn record_hole(&mut self, hole: &LogHole, flushed: Seqno) {
        self.log.whole_after = hole.last_seqno;
        let first_seqno = hole.first_seqno.0.max(flushed.0 + 1);
        if first_seqno <= hole.last_seqno.0 {
            let (file, offset) = (hole.file.clone(), hole.offset);
            self.log.report.lost.push(LostCommits {
                first_seqno,
                last_seqno: hole.last_seqno.0,
                file,
                offset,
            });
        }
    }
}
