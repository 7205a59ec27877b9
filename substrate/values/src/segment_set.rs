//! The value segments of a tree's state.
//!
//! **Invariants**
//! - No segment of a set is dead: it is taken out when its last value dies.
//! - A state holds its segments, and so their pages, for as long as somebody reads it.

use std::collections::BTreeMap;

use testudo_base::{Error, ErrorKind, ReferenceDrops, Result, RunId, ValueReference, planted, sync::Arc};
use testudo_run::{Access, FoundTogether, KnownKey, get_known_together};
use testudo_storage::Neighbours;

use crate::{Rewritten, Segment, ValueCosts};

/// Segments by id. Copies share them until one is changed.
#[derive(Clone, Debug, Default)]
pub struct SegmentSet {
    segments: Arc<BTreeMap<RunId, Arc<Segment>>>,
}

/// What all segments of a set come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentTotals {
    /// Segments.
    pub segments: u64,
    /// Bytes of the values in their runs.
    pub value_bytes: u64,
    /// Of those, bytes of dead values.
    pub dead_bytes: u64,
    /// Bytes of the values in transient segments.
    pub transient_bytes: u64,
    /// Of those, bytes of dead values.
    pub dead_transient_bytes: u64,
    /// Bytes that their runs occupy in the data file.
    pub device_bytes: u64,
}

/// Values that live and do not come back to their keys by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StayingValues {
    /// How many.
    pub values: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// What it costs to bring all of them back, as [`ValueCosts`] counts.
    pub cost: u64,
}

impl SegmentSet {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// All of them, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.segments.values()
    }

    /// The one with this id.
    pub fn get(&self, id: RunId) -> Option<&Arc<Segment>> {
        self.segments.get(&id)
    }

    /// Adds one, in the place of another one with its id.
    pub fn insert(&mut self, segment: Segment) {
        Arc::make_mut(&mut self.segments).insert(segment.id(), Arc::new(segment));
    }

    /// What they come to.
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

    /// The value of `key` that `reference` leads to, and how many others of its page were asked for; `None`
    /// if a page is missing and was noted.
    ///
    /// Errors: `Corruption` if it is not there; `Io`.
    pub fn read(
        &self,
        key: &[u8],
        reference: &ValueReference,
        access: Access<'_>,
    ) -> Result<Option<(Vec<u8>, Neighbours)>> {
        self.known(reference.segment)?.read(key, reference, access)
    }

    /// The values of keys to which these references lead, read together; and in how many places of the
    /// device.
    ///
    /// Errors: as [`SegmentSet::read`]; one of any value is that of all.
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
        let values = found.into_iter().zip(segments).zip(wanted);
        let values = values.map(|((found, segment), (_, reference))| segment.value_found(found, reference));
        Ok((values.collect::<Result<_>>()?, reads))
    }

    /// The values that do not come back to their keys by themselves.
    pub fn staying(&self) -> StayingValues {
        let mut staying = StayingValues::default();
        for segment in self.iter().filter(|segment| !segment.is_transient()) {
            let values = u64::from(segment.dead().count() - segment.dead().dead());
            let bytes = segment.stored_bytes() - segment.dead_bytes();
            staying.values += values;
            staying.bytes += bytes;
            staying.cost += ValueCosts::of_moving(values, bytes, segment.is_logged());
        }
        staying
    }

    /// How many of these references lead to values that do not come back to their keys by themselves.
    pub fn count_staying(&self, wanted: &[(&[u8], ValueReference)]) -> usize {
        let stays = |reference: &ValueReference| {
            self.get(reference.segment).is_some_and(|segment| !segment.is_transient())
        };
        wanted.iter().filter(|(_, reference)| stays(reference)).count()
    }

    fn known(&self, id: RunId) -> Result<&Arc<Segment>> {
        self.get(id).ok_or_else(|| {
            let message = format!("manifest: value segment {id} is missing, to which an entry refers");
            Error::new(ErrorKind::Corruption, message)
        })
    }

    /// Lets the values die that nothing refers to after a piece of work, and takes out segments of which
    /// nothing lives.
    ///
    /// Errors: `Corruption` if one of them did not live.
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

    /// Puts a rewritten segment in its place; `false` if what it replaces is not as it was.
    #[must_use]
    pub fn install(&mut self, rewritten: &Rewritten) -> bool {
        let is_source = |segment: &&Arc<Segment>| {
            segment.run().reference().id == rewritten.source || planted!("stale-rewriting-installed")
        };
        let before = self.get(rewritten.id).filter(is_source);
        let Some(moved) = before.map(|before| before.moved(rewritten)) else { return false };
        self.insert(moved);
        true
    }
}

#[cfg(test)]
mod tests;
