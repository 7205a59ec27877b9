//! The committed state of a store: the result of applying the manifest's edits.
//!
//! **Invariants**
//! - Spans with references never overlap.
//! - Objects and flushed seqnos exist only for keyspaces in the catalogue.
//! - Openings are in order: first segments never decrease. Kept are those that wrote a segment at or after
//!   the log's start, and the last two, one of which is in the superblock.
//! - A change that would break one of these is refused.

use std::{collections::BTreeMap, sync::Arc};

use testudo_base::{
    ExtentSpan, KeyspaceId, ObjectId, Opening, PAGE_BYTES, RunId, Seqno, StoreId, codec::Damage, num::u64_of,
};

use crate::manifest::manifest_format::{Change, Decoded, Edit, RecordSeed, decode_record, encode_record};

/// Maximum pages of a file: larger byte offsets overflow.
const MAX_PAGES: u64 = i64::MAX.cast_unsigned() / PAGE_BYTES;

/// A keyspace of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceRecord {
    /// Its name, unique in the store.
    pub name: String,
    /// The engine's encoding of its options.
    pub options: Vec<u8>,
    /// Everything of the keyspace up to this seqno is in its tree.
    pub flushed: Seqno,
}

/// The committed state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestState {
    /// The catalogue.
    pub keyspaces: BTreeMap<KeyspaceId, KeyspaceRecord>,
    /// Metadata objects of the trees.
    pub objects: BTreeMap<(KeyspaceId, ObjectId), Arc<[u8]>>,
    /// Total bytes of all objects.
    object_bytes: u64,
    /// Length and reference count of each span, by first page.
    pub references: BTreeMap<u64, (u32, u32)>,
    /// The WAL segment where recovery starts.
    pub log_segment: u64,
    /// Every write up to this seqno is in the trees.
    pub log_seqno: Seqno,
    /// Run ids below this one may have been used.
    pub next_run: RunId,
    /// Keyspace ids below this one may have been used.
    pub next_keyspace: KeyspaceId,
    /// Openings for writing that wrote the log, oldest first.
    pub openings: Vec<Opening>,
}

impl ManifestState {
    /// Applies a change; on error the state is unchanged.
    pub(crate) fn apply(&mut self, change: &Change) -> Result<(), Damage> {
        match change {
            Change::PutObject(keyspace, object, bytes) => {
                if !self.keyspaces.contains_key(keyspace) {
                    return Err(Damage("object of an unknown keyspace"));
                }
                let before = self.objects.insert((*keyspace, *object), Arc::from(bytes.as_slice()));
                self.object_bytes += u64_of(bytes.len());
                self.object_bytes -= before.map_or(0, |before| u64_of(before.len()));
            }
            Change::DeleteObject(keyspace, object) => {
                self.remove_object((*keyspace, *object)).ok_or(Damage("unknown object deleted"))?;
            }
            Change::References(span, delta) => self.change_references(*span, *delta)?,
            Change::Flushed(keyspace, seqno) => {
                let record =
                    self.keyspaces.get_mut(keyspace).ok_or(Damage("flush of an unknown keyspace"))?;
                record.flushed = record.flushed.max(*seqno);
            }
            Change::CreateKeyspace(keyspace, name, options) => {
                if self.keyspaces.contains_key(keyspace) {
                    return Err(Damage("keyspace created twice"));
                }
                let record =
                    KeyspaceRecord { name: name.clone(), options: options.clone(), flushed: self.log_seqno };
                self.keyspaces.insert(*keyspace, record);
            }
            Change::DropKeyspace(keyspace) => {
                self.keyspaces.remove(keyspace).ok_or(Damage("unknown keyspace dropped"))?;
                let range = (*keyspace, ObjectId(0))..=(*keyspace, ObjectId(u64::MAX));
                let gone: Vec<_> = self.objects.range(range).map(|(&id, _)| id).collect();
                for id in gone {
                    self.remove_object(id);
                }
            }
            Change::LogStart(segment, seqno) => {
                self.log_segment = *segment;
                self.log_seqno = *seqno;
                self.forget_openings();
            }
            Change::NextRun(run) => self.next_run = *run,
            Change::NextKeyspace(keyspace) => self.next_keyspace = *keyspace,
            Change::SetOptions(keyspace, options) => {
                let record =
                    self.keyspaces.get_mut(keyspace).ok_or(Damage("options of an unknown keyspace"))?;
                record.options.clone_from(options);
            }
            Change::Opened(opening) => {
                let is_again =
                    self.openings.last().is_some_and(|last| last.incarnation == opening.incarnation);
                if opening.incarnation.0 == 0 || is_again {
                    return Err(Damage("an opening cannot follow the previous one"));
                }
                // Deleted segments are written again by this opening.
                self.openings.retain(|earlier| earlier.first_segment <= opening.first_segment);
                self.openings.push(*opening);
                self.forget_openings();
            }
        }
        Ok(())
    }

    /// Applies changes in order, for copies of a state.
    ///
    /// Errors: `Corruption` if a change is invalid in this state; earlier changes stay applied.
    pub fn apply_all(&mut self, changes: &[Change]) -> Result<(), testudo_base::Error> {
        let damaged = |Damage(why)| testudo_base::Error::new(testudo_base::ErrorKind::Corruption, why);
        changes.iter().try_for_each(|change| self.apply(change)).map_err(damaged)
    }

    fn remove_object(&mut self, id: (KeyspaceId, ObjectId)) -> Option<()> {
        let bytes = self.objects.remove(&id)?;
        self.object_bytes -= u64_of(bytes.len());
        Some(())
    }

    /// Total bytes of all objects.
    pub fn object_bytes(&self) -> u64 {
        self.object_bytes
    }

    /// Drops the openings whose segments are all deleted.
    fn forget_openings(&mut self) {
        let is_needed = |pair: &[Opening]| pair[1].first_segment > self.log_segment;
        let gone = self.openings.windows(2).take_while(|pair| !is_needed(pair)).count();
        self.openings.drain(..gone.min(self.openings.len().saturating_sub(2)));
    }

    fn change_references(&mut self, span: ExtentSpan, delta: i32) -> Result<(), Damage> {
        let end =
            span.first_page.checked_add(u64::from(span.page_count)).ok_or(Damage("span is too long"))?;
        if end > MAX_PAGES {
            return Err(Damage("a span exceeds the maximum file size"));
        }
        if span.page_count == 0 {
            return Err(Damage("span without pages"));
        }
        if let Some((pages, references)) = self.references.get_mut(&span.first_page) {
            if *pages != span.page_count {
                return Err(Damage("two spans start at one page"));
            }
            let count = references.checked_add_signed(delta).ok_or(Damage("references below zero"))?;
            if i32::try_from(count).is_err() {
                return Err(Damage("reference count is too large to encode"));
            }
            *references = count;
            if count == 0 {
                self.references.remove(&span.first_page);
            }
            return Ok(());
        }
        let before = self.references.range(..span.first_page).next_back();
        let overlaps_before =
            before.is_some_and(|(&first, &(pages, _))| first + u64::from(pages) > span.first_page);
        if overlaps_before || self.references.range(span.first_page..end).next().is_some() {
            return Err(Damage("spans overlap"));
        }
        let count = u32::try_from(delta).map_err(|_| Damage("references below zero"))?;
        if count > 0 {
            self.references.insert(span.first_page, (span.page_count, count));
        }
        Ok(())
    }

    /// Returns the objects of one keyspace, by id.
    pub fn objects_of(&self, keyspace: KeyspaceId) -> BTreeMap<ObjectId, Arc<[u8]>> {
        let range = (keyspace, ObjectId(0))..=(keyspace, ObjectId(u64::MAX));
        self.objects.range(range).map(|(&(_, id), bytes)| (id, Arc::clone(bytes))).collect()
    }

    /// Iterates over the live spans with their reference counts.
    pub fn live_spans(&self) -> impl Iterator<Item = (ExtentSpan, u32)> + '_ {
        self.references
            .iter()
            .map(|(&first_page, &(page_count, count))| (ExtentSpan { first_page, page_count }, count))
    }

    /// Encodes the whole state as one record, for copies kept outside a manifest.
    pub fn to_bytes(&self) -> Vec<u8> {
        encode_record(&self.as_edit(), 0, RecordSeed::new(StoreId(0), 0))
    }

    /// Decodes [`ManifestState::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        let edit = match decode_record(bytes, RecordSeed::new(StoreId(0), 0)) {
            Decoded::Record { edit, edit_number: 0, bytes: length } if length == bytes.len() => edit,
            Decoded::DamagedPayload(damage) => return Err(damage),
            _ => return Err(Damage("not a state")),
        };
        let mut state = Self::default();
        edit.iter().try_for_each(|change| state.apply(change))?;
        Ok(state)
    }

    /// Returns one edit that creates this state from an empty one.
    pub fn as_edit(&self) -> Edit {
        self.changes().collect()
    }

    /// Like [`ManifestState::as_edit`], but lazy: there may be many changes, with long objects.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> + '_ {
        let first = [
            Change::NextRun(self.next_run),
            Change::NextKeyspace(self.next_keyspace),
            Change::LogStart(self.log_segment, self.log_seqno),
        ];
        let openings = self.openings.iter().copied().map(Change::Opened);
        let keyspaces = self.keyspaces.iter().flat_map(|(&id, record)| {
            let (name, options) = (record.name.clone(), record.options.clone());
            [Change::CreateKeyspace(id, name, options), Change::Flushed(id, record.flushed)]
        });
        let objects = self
            .objects
            .iter()
            .map(|(&(keyspace, object), bytes)| Change::PutObject(keyspace, object, bytes.to_vec()));
        let references = self.live_spans().map(|(span, count)| Change::References(span, count.cast_signed()));
        first.into_iter().chain(openings).chain(keyspaces).chain(objects).chain(references)
    }
}
