//! After the end of a process: records that are in the tail files of its log but not in its segments become a
//! segment.
//!
//! The segment continues where the newest one ends, under the same incarnation, as if the process had written
//! it before it ended. A store opened for writing gets it as one of its files, and the tail files are
//! removed. A reader gets it as a temporary file, and nothing is removed.
//!
//! **Invariants**
//! - Tail files count only after the end of a process: those of another boot, another incarnation or another
//!   store are ignored.
//! - Records are taken in seqno order, from the first one missing in the segments, without a gap. A commit
//!   that was never filled, recognized by its stamp, becomes a skipped one.
//! - A record whose values are on no device gets them from the tail, in place of its references.
//! - The call can be repeated: the new segment appears whole and durable, before any tail file is removed.

use std::path::Path;

use testudo_base::{
    Error, PAGE_SIZE, Result, Seqno, StoreId,
    checksum::checksum64,
    num::{u64_of, usize_of},
    planted,
    sync::Arc,
};
use testudo_env::{AlignedBuffer, EntryType, Env, File, OpenMode, OpenOptions};

use crate::{
    recovery::rewrite::COPY_SUFFIX,
    segment::{
        reader::SegmentReader,
        store::list_segments,
        tail_format::{TAIL_HEADER_BYTES, TailHeader, TurnState, last_entry, tail_file_number},
        wal_format::{
            RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader, record_bytes,
            record_salt, seal_record, segment_file_name, stamp_of,
        },
    },
};

/// Inserts the values of a commit (second argument) into its payload (first argument).
pub type Restore<'r> = &'r mut dyn FnMut(&[u8], &[u8]) -> Result<Vec<u8>>;

/// The drained segment as a reader gets it.
#[derive(Clone, Debug)]
pub struct DrainedTail {
    pub(crate) number: u64,
    pub(crate) file: Arc<dyn File>,
}

/// Turns the contents of the tail files into a segment of the log in `dir`, which begins with
/// `first_segment`, and removes the tail files. REQUIRES: the segments are durable
/// ([`crate::rewrite_unproven`]).
///
/// Errors: `OutOfSpace`, `Io`, `Unsupported` for another format. Nothing is lost; the call can be repeated.
pub fn drain_tail(
    env: &dyn Env,
    dir: &Path,
    (store_id, first_segment): (StoreId, u64),
    restore: Restore<'_>,
) -> Result<()> {
    let names = list_tail_files(env, dir)?;
    let tails = find_tails(env, dir, &names, store_id)?;
    let create = |number| {
        let name = format!("{}{COPY_SUFFIX}", segment_file_name(number));
        // A leftover of an earlier attempt.
        let _ = env.remove_file(&dir.join(&name));
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
        env.open(&dir.join(&name), options).map_err(|error| Error::io(name, error))
    };
    if let Some(drained) = drain(env, dir, &tails, first_segment, create, restore)? {
        let name = segment_file_name(drained.number);
        let copy = dir.join(format!("{name}{COPY_SUFFIX}"));
        let renamed = drained.file.sync().and_then(|()| env.rename(&copy, &dir.join(&name)));
        let named = renamed.and_then(|()| env.sync_dir(dir));
        named.map_err(|error| Error::io(name, error))?;
    }
    remove(env, dir, names)
}

/// Like [`drain_tail`], for a reader: the segment is a temporary file; `None` if the tail adds nothing.
///
/// Errors: as [`drain_tail`].
pub fn read_tail(
    env: &dyn Env,
    dir: &Path,
    (store_id, first_segment): (StoreId, u64),
    restore: Restore<'_>,
) -> Result<Option<DrainedTail>> {
    let tails = find_tails(env, dir, &list_tail_files(env, dir)?, store_id)?;
    let create = |_| env.temporary_file().map_err(|error| Error::io("a temporary file", error));
    drain(env, dir, &tails, first_segment, create, restore)
}

/// Removes the tail files of a log that was closed or whose tail was drained.
///
/// Errors: `Io`.
pub fn remove_tail_files(env: &dyn Env, dir: &Path) -> Result<()> {
    remove(env, dir, list_tail_files(env, dir)?)
}

fn remove(env: &dyn Env, dir: &Path, names: Vec<String>) -> Result<()> {
    for name in names {
        env.remove_file(&dir.join(&name)).map_err(|error| Error::io(name, error))?;
    }
    Ok(())
}

fn list_tail_files(env: &dyn Env, dir: &Path) -> Result<Vec<String>> {
    let entries = env.list_dir(dir).map_err(|error| Error::io(dir.display().to_string(), error))?;
    let files = entries.into_iter().filter(|entry| entry.entry_type == EntryType::File);
    Ok(files.map(|entry| entry.name).filter(|name| tail_file_number(name).is_some()).collect())
}

/// A tail file that was in use when its process ended.
struct FoundTail {
    name: String,
    file: Arc<dyn File>,
    header: TailHeader,
    turn: TurnState,
}

/// Returns the tail files that count, in the order in which they were filled.
fn find_tails(env: &dyn Env, dir: &Path, names: &[String], store_id: StoreId) -> Result<Vec<FoundTail>> {
    let boot = env.boot_id();
    let mut tails = Vec::new();
    for name in names {
        let options = OpenOptions { mode: OpenMode::Read, direct: false };
        let file = env.open(&dir.join(name), options).map_err(|error| Error::io(name.as_str(), error))?;
        let page = read(&*file, name, TAIL_HEADER_BYTES)?;
        let Some((header, turn)) = TailHeader::decode(&page, name)? else { continue };
        let is_of_boot = Some(header.boot) == boot || planted!("tail-of-older-boot-believed");
        if header.store_id == store_id && is_of_boot && turn.turn > 0 {
            tails.push(FoundTail { name: name.clone(), file, header, turn });
        }
    }
    tails.sort_unstable_by_key(|tail| tail.turn.turn);
    Ok(tails)
}

/// Reads the first bytes of a file, up to `limit`; fewer if it is shorter.
fn read(file: &dyn File, name: &str, limit: usize) -> Result<Vec<u8>> {
    let failed = |error| Error::io(name, error);
    let mut buffer = vec![0; usize_of(file.len().map_err(failed)?.min(u64_of(limit)))];
    file.read_at(0, &mut buffer).map_err(failed)?;
    Ok(buffer)
}

/// End of the segments.
struct End {
    header: SegmentHeader,
    /// Number of the next segment, and its first seqno.
    number: u64,
    next_seqno: u64,
}

fn drain(
    env: &dyn Env,
    dir: &Path,
    tails: &[FoundTail],
    first_segment: u64,
    create: impl FnOnce(u64) -> Result<Arc<dyn File>>,
    restore: Restore<'_>,
) -> Result<Option<DrainedTail>> {
    if tails.is_empty() || planted!("tail-not-replayed") {
        return Ok(None);
    }
    let Some(end) = find_end(env, dir, first_segment)? else { return Ok(None) };
    let is_of_log = |tail: &&FoundTail| {
        tail.header.incarnation == end.header.incarnation || planted!("older-tail-believed")
    };
    let salt = record_salt(end.header.store_id, end.header.incarnation);
    let mut drain =
        Drain { salt, next_seqno: end.next_seqno, pending: Vec::new(), written: SEGMENT_HEADER_BYTES };
    let mut create = Some(create);
    let mut file = None;
    for tail in tails.iter().filter(is_of_log) {
        let bytes = read(&*tail.file, &tail.name, TAIL_HEADER_BYTES + usize_of(tail.header.buffer_bytes))?;
        if !drain.take_tail(tail, &bytes[TAIL_HEADER_BYTES..], restore)? {
            break;
        }
        if drain.next_seqno > end.next_seqno {
            if let Some(create) = create.take() {
                file = Some(create(end.number)?);
            }
            let file = file.as_ref().expect("created above");
            drain.write_pages(&**file, end.number, false)?;
        }
    }
    if let Some(create) = create.filter(|_| drain.next_seqno > end.next_seqno) {
        file = Some(create(end.number)?);
    }
    let Some(file) = file else { return Ok(None) };
    drain.write_pages(&*file, end.number, true)?;
    drain.write_header(&*file, &end)?;
    Ok(Some(DrainedTail { number: end.number, file }))
}

/// Finds the end of the newest segment that has a header; `None` if there is none.
fn find_end(env: &dyn Env, dir: &Path, first_segment: u64) -> Result<Option<End>> {
    let mut numbers = list_segments(env, dir)?;
    numbers.retain(|&number| number >= first_segment);
    while let Some(number) = numbers.pop() {
        let mut reader = SegmentReader::open(env, dir, number)?;
        if let Some(header) = reader.header()?.filter(|header| header.number == number) {
            let next_seqno = end_of_records(&mut reader, &header)?;
            return Ok(Some(End { header, number: number + 1, next_seqno }));
        }
    }
    Ok(None)
}

/// Returns the seqno after the last record of a segment. Replay decides whether the record belongs there.
fn end_of_records(reader: &mut SegmentReader, segment: &SegmentHeader) -> Result<u64> {
    let salt = record_salt(segment.store_id, segment.incarnation);
    let (mut offset, mut next_seqno) = (SEGMENT_HEADER_BYTES, segment.first_seqno.0);
    loop {
        let page = offset.next_multiple_of(u64_of(PAGE_SIZE));
        let mut found = None;
        for at in [offset, page] {
            if let Some(header) = reader.record_header(at, salt)?
                && header.first_seqno.0 == next_seqno
            {
                let payload =
                    reader.bytes_at(at + u64_of(RECORD_HEADER_BYTES), u64::from(header.payload_bytes))?;
                let is_marker = header.kind == RecordKind::Marker;
                if is_marker || checksum64(payload, salt) == header.payload_checksum {
                    found = Some((at, header));
                    break;
                }
            }
        }
        let Some((at, header)) = found else { return Ok(next_seqno) };
        (offset, next_seqno) = (at + header.record_bytes(), header.end_seqno());
    }
}

/// Records taken from tail files.
struct Drain {
    salt: u64,
    /// Seqno required of the next record taken.
    next_seqno: u64,
    /// Records that are not yet written.
    pending: Vec<u8>,
    written: u64,
}

/// Contents at a position of a buffer.
enum Found {
    Record(RecordHeader),
    /// A range that was reserved and never filled.
    Unfilled {
        first_seqno: Seqno,
        seqno_count: u32,
        bytes: usize,
    },
    End,
}

impl Drain {
    /// Takes the records of a buffer that are in no segment; `false` if the log ends here.
    fn take_tail(&mut self, tail: &FoundTail, buffer: &[u8], restore: Restore<'_>) -> Result<bool> {
        let used = usize_of(tail.turn.record_bytes.min(u64_of(buffer.len())));
        let value_bytes = usize_of(tail.turn.value_bytes.min(u64_of(buffer.len())));
        let mut values = &buffer[buffer.len() - value_bytes..];
        let (mut offset, mut expected) = (0, tail.turn.first_seqno.0);
        if expected > self.next_seqno {
            return Ok(false);
        }
        while offset < used {
            let (end_seqno, bytes) = match find(&buffer[offset..used], expected, self.salt) {
                // The remaining records are before the end of the segments, which have them.
                Found::End => return Ok(expected < self.next_seqno),
                Found::Unfilled { first_seqno, seqno_count, bytes } => {
                    values = values_of(values, first_seqno, self.salt).1;
                    if first_seqno.0 >= self.next_seqno {
                        self.take_unfilled(first_seqno, seqno_count);
                    }
                    (first_seqno.0 + u64::from(seqno_count), bytes)
                }
                Found::Record(header) => {
                    let bytes = usize_of(header.record_bytes());
                    let (content, rest) = values_of(values, header.first_seqno, self.salt);
                    values = rest;
                    if header.first_seqno.0 >= self.next_seqno {
                        self.take(&header, &buffer[offset..offset + bytes], content, restore)?;
                    }
                    (header.end_seqno(), bytes)
                }
            };
            (offset, expected) = (offset + bytes, end_seqno);
        }
        Ok(true)
    }

    fn take(
        &mut self,
        header: &RecordHeader,
        record: &[u8],
        values: Option<&[u8]>,
        restore: Restore<'_>,
    ) -> Result<()> {
        debug_assert_eq!(header.first_seqno.0, self.next_seqno, "without a gap");
        let values = values.filter(|_| !planted!("values-of-tail-forgotten"));
        match values {
            Some(values) if header.kind == RecordKind::Commit => {
                let payload = &record[RECORD_HEADER_BYTES..][..usize_of(u64::from(header.payload_bytes))];
                let payload = restore(payload, values)?;
                self.push(*header, &payload);
            }
            _ => self.pending.extend_from_slice(record),
        }
        self.next_seqno = header.end_seqno();
        Ok(())
    }

    fn take_unfilled(&mut self, first_seqno: Seqno, seqno_count: u32) {
        let skipped = RecordHeader {
            kind: RecordKind::Skipped,
            payload_bytes: 0,
            payload_checksum: 0,
            first_seqno,
            seqno_count,
            durable_seqno: Seqno(0),
        };
        self.push(skipped, &[]);
        self.next_seqno = skipped.end_seqno();
    }

    fn push(&mut self, header: RecordHeader, payload: &[u8]) {
        let start = self.pending.len();
        self.pending.resize(start + usize_of(record_bytes(u64_of(payload.len()))), 0);
        let record = &mut self.pending[start..];
        record[RECORD_HEADER_BYTES..][..payload.len()].copy_from_slice(payload);
        seal_record(record, payload.len(), self.salt, header);
    }

    /// Writes whole pages; with `is_last` also the rest.
    fn write_pages(&mut self, file: &dyn File, number: u64, is_last: bool) -> Result<()> {
        if is_last {
            self.pending.resize(self.pending.len().next_multiple_of(PAGE_SIZE), 0);
        }
        let whole = self.pending.len() / PAGE_SIZE * PAGE_SIZE;
        if whole > 0 {
            let mut buffer = AlignedBuffer::unfilled(whole);
            buffer[..whole].copy_from_slice(&self.pending[..whole]);
            let written = file.write_at(self.written, &buffer[..whole]);
            written.map_err(|error| Error::io(segment_file_name(number), error))?;
            self.pending.drain(..whole);
            self.written += u64_of(whole);
        }
        Ok(())
    }

    fn write_header(&self, file: &dyn File, end: &End) -> Result<()> {
        let header = SegmentHeader {
            number: end.number,
            first_seqno: Seqno(end.next_seqno),
            segment_bytes: self.written,
            ..end.header
        };
        let mut page = AlignedBuffer::for_bytes(SEGMENT_HEADER_BYTES);
        header.encode(&mut page);
        file.write_at(0, &page).map_err(|error| Error::io(segment_file_name(end.number), error))
    }
}

/// Decodes the start of `bytes`, which are from a buffer whose process has ended.
fn find(bytes: &[u8], expected: u64, salt: u64) -> Found {
    let Some(head) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else { return Found::End };
    if let Some(header) = RecordHeader::decode(head, salt) {
        let is_next = header.first_seqno.0 == expected && header.record_bytes() <= u64_of(bytes.len());
        if !is_next {
            return Found::End;
        }
        let payload = &bytes[RECORD_HEADER_BYTES..][..usize_of(u64::from(header.payload_bytes))];
        // The header is stored after the payload.
        let is_whole = checksum64(payload, salt) == header.payload_checksum;
        return if is_whole { Found::Record(header) } else { Found::End };
    }
    let (payload_bytes, first_seqno, seqno_count) = stamp_of(head);
    let length = record_bytes(u64::from(payload_bytes));
    let is_next = first_seqno.0 == expected && seqno_count > 0 && length <= u64_of(bytes.len());
    if !is_next || first_seqno.0.checked_add(u64::from(seqno_count)).is_none() {
        return Found::End;
    }
    Found::Unfilled { first_seqno, seqno_count, bytes: usize_of(length) }
}

/// Returns the values left by the commit with this first seqno, and those of the commits after it.
fn values_of(values: &[u8], first_seqno: Seqno, salt: u64) -> (Option<&[u8]>, &[u8]) {
    match last_entry(values, salt) {
        Some((of, content, rest)) if of == first_seqno => (content, rest),
        _ => (None, values),
    }
}

#[cfg(test)]
mod tests;
