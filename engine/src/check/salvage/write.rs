//! Writes what is left of each keyspace into the target, and adds up the report.
//!
//! **Invariants**
//! - The log's operation on a key wins over the runs if it is newer than what they say, or if nothing of the
//!   log is lost after it: then it is the truth. Operands on top of it, or of what the runs say, go with it.
//! - Operands are folded where the target has the operator, and written as they are where it has not.
//! - A key that only has an older version left gets it in a keyspace beside its own, unless it was asked for
//!   in its own.

use std::collections::BTreeSet;

use testudo_base::{Entry, ErrorKind, Kind, Result, Seqno, operands_format::begin_stack, sync::Arc};

use crate::{
    Batch, Iter, Keyspace, KeyspaceOptions, SalvageOptions,
    check::salvage::{
        evidence::Evidence,
        log::{Logged, SortedLog, decode_scratch},
        plan::{KeyspacePlan, Plan},
        report::{KeyspaceSalvage, NameSource, SalvageReport},
        sweep::{Answer, Sweep},
        target::Target,
    },
    copy::long_work::Meter,
    handles::db::KEYSPACE_NAME_BYTES_MAX,
};

/// Records are committed in pieces of about this many bytes.
const COMMIT_BYTES: usize = 256 << 10;

/// Writes everything; the report.
pub(crate) fn write_all(
    options: &SalvageOptions,
    target: &Target,
    evidence: Evidence,
    plan: Plan,
    log: SortedLog,
    meter: &mut Meter<'_, '_>,
) -> Result<SalvageReport> {
    let mut report = SalvageReport {
        store: format!("{:032x}", evidence.store.0),
        method: plan.method,
        findings: evidence.findings,
        unproven: plan.unproven,
        ..SalvageReport::default()
    };
    let SortedLog { mut scratch, whole_after, report: log } = log;
    report.log = log;
    let taken: BTreeSet<String> = plan.keyspaces.values().map(|keyspace| keyspace.name.clone()).collect();
    for (id, mut keyspace) in plan.keyspaces {
        let is_described = keyspace.name_from == NameSource::Manifest;
        let options_of = match &options.merge_operator {
            Some(name) if !is_described => keyspace.options.merge_operator(name),
            _ => keyspace.options,
        };
        let into = keyspace_like(target, &keyspace.name, &options_of)?;
        let operations = scratch.remove(&id);
        let mut writer = Writer {
            flushed: keyspace.flushed,
            whole_after,
            older: if options.older_versions {
                Older::Among
            } else {
                Older::Beside {
                    name: name_beside(&keyspace.name, id.0, &taken),
                    options: options_of,
                    keyspace: None,
                }
            },
            batch: Batch::of_another_store(&target.db),
            batch_bytes: 0,
            target,
            into,
            report: KeyspaceSalvage {
                id: id.0,
                name: keyspace.name.clone(),
                name_from: keyspace.name_from,
                records: 0,
                bytes: 0,
                uncertain_records: 0,
                older_records: 0,
                older_keyspace: None,
                lost_ranges: Vec::new(),
            },
        };
        let data = evidence.data.clone();
        writer.write(&mut keyspace, data, evidence.store, operations.as_ref(), meter)?;
        report.keyspaces.push(writer.report);
        if let Some(operations) = operations {
            let name = operations.name().to_owned();
            drop(operations);
            target.db.drop_keyspace(&name)?;
        }
    }
    target.db.flush()?;
    Ok(report)
}

/// The operations of the log that say something about a key, oldest first.
struct KeyLog {
    key: Vec<u8>,
    operations: Vec<Logged>,
}

/// A keyspace of the target for what one of the damaged store held.
fn keyspace_like(target: &Target, name: &str, options: &KeyspaceOptions) -> Result<Keyspace> {
    let made = target.db.keyspaces_as_described(&[name], options)?.pop();
    Ok(made.expect("as many keyspaces as names"))
}

/// The entry that operations make on top of an older one.
fn stacked(older: Option<(Kind, Vec<u8>)>, operations: Vec<Logged>) -> Option<(Kind, Vec<u8>)> {
    operations.into_iter().fold(older, |older, Logged { kind, value, .. }| {
        if kind != Kind::Operands {
            return Some((kind, value));
        }
        let (kind, mut stack) = match older {
            Some((kind @ (Kind::Operands | Kind::Unfolded), stack)) => (kind, stack),
            whole => {
                let (kind, value) = whole.unwrap_or((Kind::Tombstone, Vec::new()));
                let mut stack = Vec::new();
                (begin_stack(kind, &value, &mut stack), stack)
            }
        };
        stack.extend_from_slice(&value);
        Some((kind, stack))
    })
}

/// Where versions go that may not be the last ones.
enum Older {
    /// With the others.
    Among,
    /// Into a keyspace of their own.
    Beside { name: String, options: KeyspaceOptions, keyspace: Option<Keyspace> },
}

/// A name like `name` that no keyspace has.
fn name_beside(name: &str, id: u32, taken: &BTreeSet<String>) -> String {
    let is_free = |name: &String| name.len() <= KEYSPACE_NAME_BYTES_MAX && !taken.contains(name);
    let numbered = (0_u32..).map(|number| format!("older-{id}-{number}"));
    let mut names = std::iter::once(format!("{name}.older")).chain(numbered);
    names.find(is_free).unwrap_or_default()
}

struct Writer<'t> {
    target: &'t Target,
    into: Keyspace,
    flushed: Seqno,
    whole_after: Seqno,
    older: Older,
    batch: Batch,
    batch_bytes: usize,
    report: KeyspaceSalvage,
}

impl Writer<'_> {
    fn write(
        &mut self,
        plan: &mut KeyspacePlan,
        data: Option<Arc<dyn testudo_env::File>>,
        store: testudo_base::StoreId,
        operations: Option<&Keyspace>,
        meter: &mut Meter<'_, '_>,
    ) -> Result<()> {
        let mut operations = operations.map(Keyspace::iter).transpose()?;
        let mut operation = next_operation(&mut operations)?;
        let mut sweep = Sweep::new(plan, data, store);
        while let Some(key) = sweep.next_key(operation.as_ref().map(|operation| operation.key.as_slice())) {
            let answer = sweep.take(&key);
            let of_log = match &operation {
                Some(found) if found.key == key => {
                    let next = next_operation(&mut operations)?;
                    std::mem::replace(&mut operation, next)
                }
                _ => None,
            };
            self.decide(&key, answer, of_log)?;
            if sweep.bytes_read > 0 {
                meter.advance(std::mem::take(&mut sweep.bytes_read))?;
            }
        }
        meter.advance(sweep.bytes_read)?;
        self.report.lost_ranges = sweep.lost;
        self.commit()
    }

    /// What becomes of a key.
    fn decide(&mut self, key: &[u8], answer: Answer, of_log: Option<KeyLog>) -> Result<()> {
        let known = answer.age.map_or(Seqno(0), |(seqno, _)| seqno).max(self.flushed);
        let mut is_older = answer.gap.is_some();
        let mut is_uncertain = answer.is_uncertain;
        let mut entry = answer.entry;
        if let Some(KeyLog { mut operations, .. }) = of_log {
            let first = operations.first().filter(|first| first.kind != Kind::Operands);
            let first = first.map(|first| first.seqno);
            if let Some(first) = first.filter(|first| *first > self.whole_after || *first > known) {
                let is_truth = first > self.whole_after;
                let gap = answer.gap.map_or(Seqno(0), |(seqno, _)| seqno);
                is_older = !is_truth && first <= gap;
                is_uncertain &= !is_truth;
                entry = stacked(None, operations);
            } else {
                // What the runs hold already must not be counted twice.
                operations.retain(|operation| operation.seqno > known);
                entry = stacked(entry, operations);
            }
        }
        let Some((mut kind, mut value)) = entry.filter(|(kind, _)| *kind != Kind::Tombstone) else {
            return Ok(());
        };
        if let Some(settled) = self.into.core.folding.settle(&Entry { key, kind, value: &value }, true) {
            (kind, value) = settled;
        }
        if !self.batch.has_room_for(key.len(), value.len()) {
            self.commit()?;
        }
        self.report.older_records += u64::from(is_older);
        if is_older && let Some(beside) = self.keyspace_beside()? {
            self.batch.push(&beside, kind, key, &value);
        } else {
            self.report.records += 1;
            self.report.bytes += testudo_base::num::u64_of(key.len() + value.len());
            self.report.uncertain_records += u64::from(is_uncertain);
            self.batch.push(&self.into, kind, key, &value);
        }
        self.batch_bytes += key.len() + value.len();
        if self.batch_bytes >= COMMIT_BYTES { self.commit() } else { Ok(()) }
    }

    /// Where older versions go, if not among the others; made when the first one comes.
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
        let batch = std::mem::replace(&mut self.batch, Batch::of_another_store(&self.target.db));
        if batch.is_empty() { Ok(()) } else { batch.commit() }
    }
}

fn next_operation(operations: &mut Option<Iter>) -> Result<Option<KeyLog>> {
    let Some(found) = operations.as_mut().and_then(Iterator::next) else { return Ok(None) };
    let (key, bytes) = found?.into_pair()?;
    let operations = decode_scratch(&bytes)
        .map_err(|_| testudo_base::Error::new(ErrorKind::Corruption, "scratch of the salvage is damaged"))?;
    Ok(Some(KeyLog { key: key.to_vec(), operations }))
}
