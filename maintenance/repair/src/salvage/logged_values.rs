//! Values that lie under their numbers, in value logs and in the segments that these became: in a scratch
//! keyspace of the target, so that whoever has a reference finds what it leads to.
//!
//! **Invariants**
//! - What is found is the value that the reference was made for: a page says whose it is, an entry of which
//!   reference it is, and no reference is made twice.
//! - A page that is lost is told by those who refer to its values: which keys these have, nothing else says.
//! - The scratch keyspace is gone when the target is finished.

use testudo_base::{Result, RunId, ValueReference, num::u64_of, sync::Arc};
use testudo_db::{Batch, Keyspace, maintenance::batch_of_another_store};
use testudo_options::KeyspaceOptions;
use testudo_run::{LenientCursor, LostPages};
use testudo_storage::DATA_FILE;
use testudo_store::long_work::Meter;
use testudo_values::is_under_its_number;

use crate::salvage::{evidence::Evidence, key_ranges::after, plan::Plan, report::LostRange, target::Target};

/// Scratch is committed in pieces of about this many bytes.
const COMMIT_BYTES: usize = 256 << 10;
/// Bytes of a scratch key: the segment, and the number of the value in it.
const SCRATCH_KEY_BYTES: usize = 12;

/// All values that lie under their numbers.
#[derive(Debug, Default)]
pub(crate) struct LoggedValues {
    /// `None` if there are none.
    scratch: Option<Keyspace>,
    gaps: Vec<Gap>,
}

/// Pages that are lost.
#[derive(Debug)]
struct Gap {
    segment: RunId,
    /// Numbers around them.
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
    /// Reads all that `plan` knows.
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
        // Of a run that a crash cut off somebody else may have the id, later.
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

    /// The value that `reference` leads to, if it was found.
    pub(crate) fn read(&self, reference: &ValueReference) -> Result<Option<Vec<u8>>> {
        let Some(scratch) = &self.scratch else { return Ok(None) };
        let found = scratch.get(scratch_key(reference.segment, reference.number))?;
        let found = found.filter(|value| u64_of(value.len()) == u64::from(reference.length));
        Ok(found.map(|value| value.to_vec()))
    }

    /// What is told of `key`, the value of which was not found; `of` says where it lies.
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
            why: format!("{of}, and was not found there{why}"),
        }
    }

    /// Drops them.
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

/// A name that no keyspace of the user has.
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
