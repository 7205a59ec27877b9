//! Writes the recovered content of one keyspace into the target.
//!
//! **Invariants**
//! - Operands are merged if the target has the operator, and written unmerged otherwise.
//! - An entry that refers to a long value is written with the head of that value, and without operands.
//! - A key with only an older version left gets it in a separate keyspace, unless the caller wants it in its
//!   own.

use testudo_base::{Entry, Error, ErrorKind, Kind, Result, num::u64_of};
use testudo_db::{
    Batch, Iter, Keyspace,
    maintenance::{batch_of_another_store, core_of, keyspaces_as_described, push},
};
use testudo_options::KeyspaceOptions;
use testudo_store::{
    long_work::Meter,
    values::{long_values::LONG_VALUES_KEYSPACE, pieces_format::value_of_head},
};

use crate::salvage::{
    decide::{LogReach, Verdict, decide},
    log::{Logged, decode_scratch},
    plan::KeyspacePlan,
    report::{KeyspaceSalvage, LostRange},
    sweep::{Answer, SourceFile, Sweep},
    target::Target,
    values::{SalvagedValues, long_value_without_operands, reference_to_long_value},
};

/// Target size in bytes of a commit.
const COMMIT_BYTES: usize = 256 << 10;

/// Destination of versions that may not be the last ones.
pub(crate) enum Older {
    /// In the same keyspace as the others.
    Among,
    /// In a separate keyspace.
    Beside { name: String, options: KeyspaceOptions, keyspace: Option<Keyspace> },
}

/// Writer of one keyspace of the target.
pub(crate) struct KeyspaceWriter<'t> {
    target: &'t Target,
    into: Keyspace,
    /// Whether it is the keyspace of long values: their heads are written with the entries that refer to
    /// them.
    is_of_long_values: bool,
    log: LogReach,
    older: Older,
    batch: Batch,
    batch_bytes: usize,
    report: KeyspaceSalvage,
}

impl<'t> KeyspaceWriter<'t> {
    /// Writes into `into`, and counts in `report`.
    pub(crate) fn new(
        target: &'t Target,
        into: Keyspace,
        log: LogReach,
        older: Older,
        report: KeyspaceSalvage,
    ) -> Self {
        let batch = batch_of_another_store(&target.db);
        let is_of_long_values = into.name() == LONG_VALUES_KEYSPACE;
        Self { target, into, is_of_long_values, log, older, batch, batch_bytes: 0, report }
    }

    /// Writes all content of runs and log; the log's operations are in the keyspace `operations`.
    pub(crate) fn write(
        mut self,
        plan: &mut KeyspacePlan,
        source: &SourceFile,
        values: &SalvagedValues,
        operations: Option<&Keyspace>,
        meter: &mut Meter<'_, '_>,
    ) -> Result<KeyspaceSalvage> {
        let mut operations = operations.map(Keyspace::iter).transpose()?;
        let mut operation = next_operation(&mut operations)?;
        let mut sweep = Sweep::new(plan, source, values);
        while let Some(key) = sweep.next_key(operation.as_ref().map(|operation| operation.key.as_slice())) {
            let answer = sweep.take(&key)?;
            let mut of_log = match operation.take_if(|operation| operation.key == key) {
                Some(found) => {
                    operation = next_operation(&mut operations)?;
                    found.operations
                }
                None => Vec::new(),
            };
            of_log.iter_mut().try_for_each(|operation| operation.read_value(&key, values))?;
            sweep.lost.extend(self.write_key(&key, answer, of_log, values)?);
            if sweep.bytes_read > 0 {
                meter.advance(std::mem::take(&mut sweep.bytes_read))?;
            }
        }
        meter.advance(sweep.bytes_read)?;
        self.report.lost_ranges = sweep.lost;
        self.commit()?;
        Ok(self.report)
    }

    /// Writes the recovered version of a key; returns the loss to report.
    fn write_key(
        &mut self,
        key: &[u8],
        answer: Answer,
        of_log: Vec<Logged>,
        values: &SalvagedValues,
    ) -> Result<Option<LostRange>> {
        if self.is_of_long_values && value_of_head(key).is_some() {
            return Ok(None);
        }
        let (verdict, lost) = decide(answer, of_log, self.log);
        let written = verdict.map_or(Ok(()), |verdict| self.write_verdict(key, verdict, values));
        written.map(|()| lost)
    }

    fn write_verdict(&mut self, key: &[u8], verdict: Verdict, values: &SalvagedValues) -> Result<()> {
        let Verdict { mut kind, mut value, mut is_older, is_uncertain } = verdict;
        if let Some(base) = long_value_without_operands(kind, &value) {
            ((kind, value), is_older) = (base, true);
        }
        if let Some(settled) =
            core_of(&self.into).full_merge.try_full_merge(&Entry { key, kind, value: &value }, true)
        {
            (kind, value) = settled;
        }
        debug_assert!(kind != Kind::Tombstone, "a removed key is not written");
        if !self.batch.has_room_for(key.len(), value.len()) {
            self.commit()?;
        }
        self.report.older_records += u64::from(is_older);
        let beside = if is_older { self.keyspace_beside()? } else { None };
        let reference = reference_to_long_value(kind, &value);
        if beside.is_none() {
            let value_bytes = reference.map_or(u64_of(value.len()), |found| u64::from(found.length));
            self.report.records += 1;
            self.report.bytes += u64_of(key.len()) + value_bytes;
            self.report.uncertain_records += u64::from(is_uncertain);
        }
        let into = beside.as_ref().unwrap_or(&self.into);
        if let Some(reference) = reference {
            values.long.push_head(&mut self.batch, into.name(), key, &reference);
        }
        push(&mut self.batch, into, kind, key, &value);
        self.batch_bytes += key.len() + value.len();
        if self.batch_bytes >= COMMIT_BYTES { self.commit() } else { Ok(()) }
    }

    /// Keyspace for older versions, if separate; created for the first one.
    fn keyspace_beside(&mut self) -> Result<Option<Keyspace>> {
        let Older::Beside { name, options, keyspace } = &mut self.older else { return Ok(None) };
        if keyspace.is_none() {
            let options = *options;
            *keyspace = Some(keyspace_like(self.target, name, &options)?);
            self.report.older_keyspace = Some(name.clone());
        }
        Ok(keyspace.clone())
    }

    fn commit(&mut self) -> Result<()> {
        self.batch_bytes = 0;
        let batch = std::mem::replace(&mut self.batch, batch_of_another_store(&self.target.db));
        if batch.is_empty() { Ok(()) } else { batch.commit() }
    }
}

/// A keyspace of the target with the options of one in the damaged store.
pub(crate) fn keyspace_like(target: &Target, name: &str, options: &KeyspaceOptions) -> Result<Keyspace> {
    let made = keyspaces_as_described(&target.db, &[name], options)?.pop();
    Ok(made.expect("as many keyspaces as names"))
}

/// The log's operations on a key, oldest first.
struct KeyLog {
    key: Vec<u8>,
    operations: Vec<Logged>,
}

fn next_operation(operations: &mut Option<Iter>) -> Result<Option<KeyLog>> {
    let Some(found) = operations.as_mut().and_then(Iterator::next) else { return Ok(None) };
    let (key, bytes) = found?.into_pair()?;
    let operations = decode_scratch(&bytes)
        .map_err(|_| Error::new(ErrorKind::Corruption, "the scratch keyspace of the salvage is damaged"))?;
    Ok(Some(KeyLog { key: key.to_vec(), operations }))
}
