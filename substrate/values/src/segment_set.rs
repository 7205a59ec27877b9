//! The value segments of a tree's state.
//!
//! **Invariants**
//! - No segment of a set is dead: a segment is removed with its last value.
//! - A state holds its segments, and so their pages, as long as it has readers.

use std::collections::BTreeMap;

use testudo_base::{Error, ErrorKind, ReferenceDrops, Result, RunId, ValueReference, planted, sync::Arc};
use testudo_run::{Access, FoundTogether, KnownKey, get_known_together};
use testudo_storage::Neighbours;

use crate::{Rewritten, Segment, ValueCosts};

/// Segments by id; copy-on-write.
#[derive(Clone, Debug, Default)]
pub struct SegmentSet {
    segments: Arc<BTreeMap<RunId, Arc<Segment>>>,
}

/// Totals over all segments of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentTotals {
    /// Number of segments.
    pub segments: u64,
    /// Bytes of the values in their runs, including dead ones.
    pub value_bytes: u64,
    /// Bytes of dead values in their runs.
    pub dead_bytes: u64,
    /// Bytes of the values in transient segments.
    pub transient_bytes: u64,
    /// Bytes of dead values in transient segments.
    pub dead_transient_bytes: u64,
    /// Bytes that their runs occupy in the data file.
    pub device_bytes: u64,
}

/// Live permanent values: those in segments that are not transient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermanentValues {
    /// Number of values.
    pub values: u64,
    /// Bytes of the values.
    pub bytes: u64,
    /// Cost of moving all of them to their keys, in units of [`ValueCosts`].
    pub cost: u64,
}

impl SegmentSet {
    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Iterates over the segments, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.segments.values()
    }

    /// Returns the segment with this id.
    pub fn get(&self, id: RunId) -> Option<&Arc<Segment>> {
        self.segments.get(&id)
    }

    /// Inserts a segment, replacing the one with the same id.
    pub fn insert(&mut self, segment: Segment) {
        Arc::make_mut(&mut self.segments).insert(segment.id(), Arc::new(segment));
    }

    /// Returns the totals over all segments.
    pub fn totals(&self) -> SegmentTotals {
        let mut totals = SegmentTotals::default();
        for segment in self.iter() {
            totals.segments += 1;
            totals.value_bytes += segment.stored_bytes();
            totals.dead_bytes += segment.dead_bytes();
            totals.device_bytes += segment.run().reference().stored_bytes();
            if segment.is_transient() {
                totals.transient_bytes += segment.stored_bytes();
                totals.dead_transient_bytes += segment.dead_bytes();
            }
        }
        totals
    }

    /// Returns the value of `key` to which `reference` refers, and how many other records of its page were
    /// requested; `None` if a page is not cached and was recorded as missing.
    ///
    /// Errors: `Corruption` if the value is missing; `Io`.
    pub fn read(
        &self,
        key: &[u8],
        reference: &ValueReference,
        access: Access<'_>,
    ) -> Result<Option<(Vec<u8>, Neighbours)>> {
        self.known(reference.segment)?.read(key, reference, access)
    }

    /// Reads the values of these references in one batch; returns them and the number of device reads.
    ///
    /// Errors: as [`SegmentSet::read`]; the first error of any value.
    pub fn read_together(&self, wanted: &[(&[u8], ValueReference)]) -> Result<(Vec<Vec<u8>>, u64)> {
        let segments: Vec<&Arc<Segment>> =
            wanted.iter().map(|(_, reference)| self.known(reference.segment)).collect::<Result<_>>()?;
        let Some(first) = segments.first() else { return Ok((Vec::new(), 0)) };
        let mut numbered = vec![[0; 4]; wanted.len()];
        let keys: Vec<KnownKey<'_>> = segments
            .iter()
            .zip(wanted)
            .zip(&mut numbered)
            .map(|((segment, (key, reference)), numbered)| KnownKey {
                run: segment.run(),
                key: segment.place_of(key, reference, numbered),
            })
            .collect();
        let FoundTogether { found, reads } = get_known_together(first.run().data(), &keys)?;
        debug_assert_eq!(found.len(), wanted.len(), "a result per reference");
        let values = found.into_iter().zip(segments).zip(wanted);
        let values = values.map(|((found, segment), (_, reference))| segment.value_found(found, reference));
        Ok((values.collect::<Result<_>>()?, reads))
    }

    /// Returns totals of the live permanent values.
    pub fn permanent(&self) -> PermanentValues {
        let mut permanent = PermanentValues::default();
        for segment in self.iter().filter(|segment| !segment.is_transient()) {
            let values = u64::from(segment.dead().count() - segment.dead().dead());
            let bytes = segment.stored_bytes() - segment.dead_bytes();
            permanent.values += values;
            permanent.bytes += bytes;
            permanent.cost += ValueCosts::of_moving(values, bytes, segment.is_logged());
        }
        permanent
    }

    /// Number of these references that refer to permanent values.
    pub fn count_permanent(&self, wanted: &[(&[u8], ValueReference)]) -> usize {
        let is_permanent = |reference: &ValueReference| {
            self.get(reference.segment).is_some_and(|segment| !segment.is_transient())
        };
        wanted.iter().filter(|(_, reference)| is_permanent(reference)).count()
    }

    fn known(&self, id: RunId) -> Result<&Arc<Segment>> {
        self.get(id).ok_or_else(|| {
            let message = format!("manifest: value segment {id} is missing, but an entry refers to it");
            Error::new(ErrorKind::Corruption, message)
        })
    }

    /// Marks values dead whose references were dropped, and removes segments without live values.
    ///
    /// Errors: `Corruption` if a value was not live.
    pub fn bury(&mut self, drops: &ReferenceDrops) -> Result<()> {
        for (id, of_segment) in drops.iter() {
            let mut segment = Segment::clone(self.known(id)?);
            let dead_before = segment.dead().dead();
            segment.bury(of_segment)?;
            if segment.is_dead() || planted!("segment-freed-early") {
                Arc::make_mut(&mut self.segments).remove(&segment.id());
            } else if segment.dead().dead() > dead_before {
                self.insert(segment);
            }
        }
        Ok(())
    }

    /// Installs a rewritten segment; `false` if its source has been replaced meanwhile.
    #[must_use]
    pub fn install(&mut self, rewritten: &Rewritten) -> bool {
        let is_source = |segment: &&Arc<Segment>| {
            segment.run().reference().id == rewritten.source || planted!("stale-rewriting-installed")
        };
        let before = self.get(rewritten.id).filter(is_source);
        let Some(moved) = before.map(|before| before.moved(rewritten)) else { return false };
        debug_assert_eq!(moved.id(), rewritten.id, "a rewritten segment keeps its id");
        self.insert(moved);
        true
    }
}

#[cfg(test)]
mod tests;
