//! A write buffer on disk that was held when it was flushed. It has every version that a holder needs, once
//! for all holders; each reads at a seqno of its own.
//!
//! It is a sequence of parts in key order. A part has a run of keys. If the versions of some key are too many
//! or too long to be stored with it, the part also has a run of versions (`versions_format.rs`). None of this
//! becomes durable: the buffer holds the space of the runs and releases it when dropped. Their pages belong
//! to no keyspace ([`KeyspaceId::SPILLED`]), so that salvage never takes them for records.
//!
//! **Invariants**
//! - For every seqno that it was written for, its contents equal those of the memtable.
//! - The cost of reading at a seqno does not depend on versions for other readers: they are skipped by a
//!   seek.

use std::{ops::Range, sync::Arc};

use testudo_base::{
    Cursor, Entry, Error, ErrorKind, KeyspaceId, Kind, Result, Seqno, checksum::hash_key, codec::Damage,
    planted,
};
use testudo_contract::RunIds;
use testudo_memtable::{Memtable, Versions};
use testudo_run::{Access, Lookup, ReadAhead, Run, RunCursor, RunLayout, RunOrigin, RunWriter};
use testudo_storage::DataFile;

use crate::snapshots::versions_format::{
    HERE_BYTES, KeyVersions, VERSION_HEADER_BYTES, begin_list, encode_apart, is_version_of, push_version,
    version_key, versions_of, visible_at,
};

/// Approximate data bytes of a part: the in-memory state of unfinished runs is a small fraction of that.
const PART_BYTES: u64 = 16 << 20;

/// A range of keys, from the first one to that of the next part.
#[derive(Debug)]
pub struct Part {
    first_key: Box<[u8]>,
    pub keys: Arc<Run>,
    pub versions: Option<Arc<Run>>,
}

/// A write buffer on disk.
#[derive(Debug)]
pub struct SpilledBuffer {
    /// In key order; empty if no reader needs anything.
    pub parts: Box<[Part]>,
}

/// Inputs of spilling a buffer.
pub struct Spilling<'s> {
    pub data: &'s Arc<DataFile>,
    pub run_ids: &'s RunIds,
    /// Seqnos of all readers, ascending.
    pub readers: &'s [Seqno],
    /// Upper bound of the seqnos in the buffer.
    pub sealed_at: Seqno,
}

/// The error for an invalid entry on verified pages.
#[cold]
fn damaged_entry(Damage(why): Damage) -> Error {
    Error::new(ErrorKind::Corruption, format!("data: an entry of a spilled write buffer: {why}"))
}

/// The seqno at which a reader of `at` reads.
fn seen_at(at: Seqno) -> Seqno {
    if planted!("relieved-snapshot-sees-later") { Seqno(u64::MAX) } else { at }
}

impl SpilledBuffer {
    /// Writes the versions of `table` that readers need. REQUIRES: `table` is frozen.
    ///
    /// Errors: `OutOfSpace`, `Io`; then nothing is left on disk.
    pub fn write(table: &Memtable, spilling: &Spilling<'_>) -> Result<Self> {
        debug_assert!(spilling.readers.is_sorted(), "seqnos of readers ascend");
        let mut writer = SpillWriter {
            spilling,
            expected: table.memory_bytes().min(PART_BYTES),
            parts: Vec::new(),
            open: None,
            value: Vec::new(),
        };
        let mut outcome = Ok(());
        table.for_each_key(|key, versions| {
            outcome = writer.push(key, &versions);
            outcome.is_ok()
        });
        outcome?;
        writer.finish_part()?;
        Ok(Self { parts: writer.parts.into() })
    }

    /// Index of the part that may have `key`.
    pub fn part_of(&self, key: &[u8]) -> Option<usize> {
        self.parts.partition_point(|part| *part.first_key <= *key).checked_sub(1)
    }

    /// Calls `f` with the newest version of `key` at or before `at`.
    pub fn get<R>(&self, key: &[u8], at: Seqno, f: impl FnOnce(Kind, &[u8]) -> R) -> Result<Option<R>> {
        let Some(part) = self.part_of(key).map(|part| &self.parts[part]) else { return Ok(None) };
        let Lookup::Found(_, value, _) = part.keys.get(key, hash_key(key), Access::Blocking)? else {
            return Ok(None);
        };
        match versions_of(&value).map_err(damaged_entry)? {
            KeyVersions::Here => {
                let found = visible_at(&value, seen_at(at)).map_err(damaged_entry)?;
                Ok(found.map(|(kind, range)| f(kind, &value[range])))
            }
            KeyVersions::Apart(number) => {
                let Some(mut cursor) = part.version_cursor() else { return Ok(None) };
                let found = seek_version(&mut cursor, number, at)?;
                Ok(found.map(|entry| f(entry.kind, entry.value)))
            }
        }
    }
}

impl Part {
    /// A cursor over the versions stored apart.
    pub fn version_cursor(&self) -> Option<RunCursor> {
        let versions = self.versions.as_ref()?;
        Some(RunCursor::new(Arc::clone(versions), ReadAhead::Adaptive))
    }
}

/// The newest version at or before `at` of the key with this number.
pub fn seek_version(cursor: &mut RunCursor, number: u64, at: Seqno) -> Result<Option<Entry<'_>>> {
    cursor.seek(&version_key(number, seen_at(at)))?;
    Ok(cursor.entry().filter(|entry| is_version_of(entry.key, number)))
}

/// The newest version at or before `at` in `value`, the list stored with its key.
pub fn version_here(value: &[u8], at: Seqno) -> Result<Option<(Kind, Range<usize>)>> {
    visible_at(value, seen_at(at)).map_err(damaged_entry)
}

/// Location of the versions of the key with this value.
pub fn place_of(value: &[u8]) -> Result<KeyVersions> {
    versions_of(value).map_err(damaged_entry)
}

/// A part being written.
struct OpenPart {
    first_key: Box<[u8]>,
    keys: RunWriter,
    versions: Option<RunWriter>,
    /// Next number of a key whose versions are stored apart.
    next_number: u64,
}

struct SpillWriter<'s> {
    spilling: &'s Spilling<'s>,
    expected: u64,
    parts: Vec<Part>,
    open: Option<OpenPart>,
    /// Scratch space.
    value: Vec<u8>,
}

/// The `versions` that one of `readers` sees, newest first.
fn needed<'v>(versions: Versions<'v>, readers: &[Seqno]) -> impl Iterator<Item = (Seqno, Kind, &'v [u8])> {
    let mut newer = Seqno(u64::MAX);
    versions.filter(move |(seqno, ..)| {
        // The newest reader that does not see the version above this one.
        let below = readers.partition_point(|reader| *reader < newer);
        debug_assert!(*seqno < newer, "versions are newest first");
        newer = *seqno;
        if planted!("spill-keeps-newest-only") {
            return below == readers.len();
        }
        readers[..below].last().is_some_and(|reader| *reader >= *seqno)
    })
}

impl SpillWriter<'_> {
    fn new_run(&self, layout: RunLayout) -> Result<RunWriter> {
        let origin = RunOrigin {
            id: self.spilling.run_ids.take(),
            keyspace: KeyspaceId::SPILLED,
            keyspace_name: Arc::from(""),
            newest_seqno: self.spilling.sealed_at,
        };
        let writer = RunWriter::new(Arc::clone(self.spilling.data), origin, self.expected)?;
        Ok(writer.with_layout(layout))
    }

    fn push(&mut self, key: &[u8], versions: &Versions<'_>) -> Result<()> {
        let readers = self.spilling.readers;
        let bytes = |(_, _, value): (_, _, &[u8])| VERSION_HEADER_BYTES + value.len();
        let (count, needed_bytes) = needed(versions.clone(), readers)
            .map(bytes)
            .fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes));
        if count == 0 {
            return Ok(());
        }
        debug_assert!(needed_bytes >= count * VERSION_HEADER_BYTES, "each version has a header");
        let mut part = match self.open.take() {
            Some(part) => part,
            None => OpenPart {
                first_key: key.into(),
                keys: self.new_run(RunLayout::default())?,
                versions: None,
                next_number: 0,
            },
        };
        if needed_bytes <= HERE_BYTES {
            begin_list(&mut self.value);
            for (seqno, kind, value) in needed(versions.clone(), readers) {
                push_version(&mut self.value, seqno, kind, value);
            }
        } else {
            let run = match &mut part.versions {
                Some(run) => run,
                none => none.insert(self.new_run(RunLayout { has_filter: false, ..RunLayout::default() })?),
            };
            for (seqno, kind, value) in needed(versions.clone(), readers) {
                run.push(&Entry { key: &version_key(part.next_number, seqno), kind, value })?;
            }
            encode_apart(&mut self.value, part.next_number);
            part.next_number += 1;
        }
        part.keys.push(&Entry { key, kind: Kind::Value, value: &self.value })?;
        let bytes = part.keys.data_bytes() + part.versions.as_ref().map_or(0, RunWriter::data_bytes);
        self.open = Some(part);
        if bytes >= PART_BYTES { self.finish_part() } else { Ok(()) }
    }

    fn finish_part(&mut self) -> Result<()> {
        let Some(OpenPart { first_key, keys, versions, .. }) = self.open.take() else { return Ok(()) };
        debug_assert!(keys.entries() > 0, "a part has keys");
        let before = self.parts.last();
        debug_assert!(before.is_none_or(|before| before.first_key < first_key), "parts are in key order");
        let keys = keys.finish(None)?;
        let versions = versions.map(|versions| versions.finish(None)).transpose()?;
        self.parts.push(Part { first_key, keys, versions });
        Ok(())
    }
}
