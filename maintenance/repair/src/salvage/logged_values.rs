//! Collects numbered values, from value logs and the segments they became, in a scratch keyspace of the
//! target, where references are resolved.
//!
//! **Invariants**
//! - A value found is the one its reference was made for: a page identifies its run, an entry its reference,
//!   and references are unique.
//! - A lost page is reported for each key that refers to its values, since nothing else identifies these
//!   keys.
//!   these are.
//! - The scratch keyspace is dropped before the target is finished.

use testudo_base::{Result, RunId, ValueReference, num::u64_of, sync::Arc};
use testudo_db::{Batch, Keyspace, maintenance::batch_of_another_store};
use testudo_options::KeyspaceOptions;
use testudo_run::{LenientCursor, LostPages};
use testudo_storage::DATA_FILE;
use testudo_store::long_work::Meter;
use testudo_values::is_under_its_number;

use crate::salvage::{evidence::Evidence, key_ranges::after, plan::Plan, report::LostRange, target::Target};

/// Target size in bytes of a scratch commit.
const COMMIT_BYTES: usize = 256 << 10;
/// Bytes of a scratch key: the segment, and the number of the value in it.
const SCRATCH_KEY_BYTES: usize = 12;

/// All numbered values that were found.
#[derive(Debug, Default)]
pub(crate) struct LoggedValues {
    /// `None` if there are none.
    scratch: Option<Keyspace>,
    gaps: Vec<Gap>,
}

/// A gap of lost pages.
#[derive(Debug)]
struct Gap {
    segment: RunId,
    /// Value numbers right before and after the gap.
    after: Option<u32>,
    before: Option<u32>,
    offset: u64,
    why: String,
}

impl Gap {
    fn may_have_held(&self, reference: &ValueReference) -> bool {
        self.segment == reference.segment
            && self.after.is_none_or(|after| after < reference.number)
            && self.before.is_none_or(|before| reference.number < before)
    }
}

impl LoggedValues {
    /// Reads all numbered values in `plan`.
    pub(crate) fn collect(
        target: &Target,
        evidence: &Evidence,
        plan: &Plan,
        meter: &mut Meter<'_, '_>,
    ) -> Result<Self> {
        let mut sources: Vec<_> = plan.keyspaces.values().flat_map(|keyspace| &keyspace.logged).collect();
        let Some(data) = evidence.data.as_ref().filter(|_| !sources.is_empty()) else {
            return Ok(Self::default());
        };
        // A later run may reuse the id of a run that a crash cut off.
        sources.sort_by_key(|source| (source.reference.incarnation, source.reference.version()));
        let scratch = target.db.keyspace(&scratch_name(plan), KeyspaceOptions::default)?;
        let mut batch = batch_of_another_store(&target.db);
        let mut gaps = Vec::new();
        for source in sources {
            let (mut segment, mut last) = (source.segment, None);
            let mut cursor = LenientCursor::new(Arc::clone(data), evidence.store, &source.reference);
            loop {
                let lost = cursor.advance();
                meter.advance(cursor.take_bytes_read())?;
                let entry = cursor.entry().filter(is_under_its_number);
                let found = entry.and_then(|entry| ValueReference::split_referred(entry.value).ok());
                if let Some((reference, _)) = found {
                    segment = reference.segment;
                }
                let before = found.map(|(reference, _)| reference.number);
                if let Some(LostPages { offset, why, .. }) = lost {
                    gaps.push(Gap { segment, after: last, before, offset, why });
                }
                let Some((reference, value)) = found else {
                    match cursor.entry() {
                        Some(_) => continue,
                        None => break,
                    }
                };
                last = before;
                if !batch.has_room_for(SCRATCH_KEY_BYTES, value.len()) {
                    commit(target, &mut batch)?;
                }
                batch.insert(&scratch, scratch_key(reference.segment, reference.number), value);
                if batch.bytes() >= u64_of(COMMIT_BYTES) {
                    commit(target, &mut batch)?;
                }
            }
        }
        commit(target, &mut batch)?;
        Ok(Self { scratch: Some(scratch), gaps })
    }

    /// The value for `reference`, if it was found.
    pub(crate) fn read(&self, reference: &ValueReference) -> Result<Option<Vec<u8>>> {
        let Some(scratch) = &self.scratch else { return Ok(None) };
        let found = scratch.get(scratch_key(reference.segment, reference.number))?;
        let found = found.filter(|value| u64_of(value.len()) == u64::from(reference.length));
        Ok(found.map(|value| value.to_vec()))
    }

    /// The loss to report for `key`, whose value was not found; `of` says where the value was.
    pub(crate) fn lost(&self, key: &[u8], reference: &ValueReference, of: &str) -> LostRange {
        let gap = self.gaps.iter().find(|gap| gap.may_have_held(reference));
        let why = gap.map_or_else(String::new, |gap| format!(": {}", gap.why));
        LostRange {
            low: key.to_vec(),
            high: Some(after(key)),
            records_about: 1,
            bytes_about: u64::from(reference.length),
            file: DATA_FILE.to_owned(),
            offset: gap.map_or(0, |gap| gap.offset),
            why: format!("{of}, but was not found there{why}"),
        }
    }

    /// Drops the scratch keyspace.
    pub(crate) fn drop_scratch(self, target: &Target) -> Result<()> {
        let Some(scratch) = self.scratch else { return Ok(()) };
        let name = scratch.name().to_owned();
        drop(scratch);
        target.db.drop_keyspace(&name).map(|_| ())
    }
}

fn scratch_key(segment: RunId, number: u32) -> [u8; SCRATCH_KEY_BYTES] {
    let mut key = [0; SCRATCH_KEY_BYTES];
    key[..8].copy_from_slice(&segment.0.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// A name that no user keyspace has.
fn scratch_name(plan: &Plan) -> String {
    let mut name = "salvage-values".to_owned();
    while plan.keyspaces.values().any(|keyspace| keyspace.name == name) {
        name.push('+');
    }
    name
}

fn commit(target: &Target, batch: &mut Batch) -> Result<()> {
    let full = std::mem::replace(batch, batch_of_another_store(&target.db));
    if full.is_empty() { Ok(()) } else { full.commit() }
}
