//! Encoding of the manifest: records, and the changes inside them. Only this file encodes them.
//!
//! A manifest file is a sequence of records, each zero-padded to a multiple of 4 KiB. The first holds a whole
//! state as one edit, each later one an edit.
//!
//! | offset | bytes | field of a record |
//! |---|---|---|
//! | 0 | 4 | payload length |
//! | 4 | 4 | low half of the XXH3 of bytes 0 … 4 and 8 … 16, seeded: the header's own checksum |
//! | 8 | 8 | edit number, +1 per edit; a whole state has the number of its last edit |
//! | 16 | 8 | XXH3 of the payload, seeded |
//! | 24 | … | payload: changes in sequence |
//!
//! The seed mixes store id and manifest number, so that no record of another file is valid. A change is a tag
//! byte and its fields (`str` = length as u32, bytes; `span` = first page u64, pages u32): 1 put object
//! (keyspace u32, object u64, str) · 2 delete object (keyspace u32, object u64) · 3 references (span, delta
//! as i32) · 4 flushed (keyspace u32, seqno u64) · 5 create keyspace (id u32, name str, options str) · 6
//! drop keyspace (id u32) · 7 log start (WAL segment u64, seqno u64) · 8 next run (u64) · 9 next keyspace
//! (u32) · 10 options of a keyspace (id u32, options str) · 11 opened (incarnation u64, first log segment
//! u64).
//!
//! **Invariants**
//! - Decoding never allocates more bytes than remain in the input.

use std::borrow::Borrow;

use testudo_base::{
    ExtentSpan, Incarnation, KeyspaceId, ObjectId, Opening, PAGE_SIZE, RunId, Seqno, StoreId,
    checksum::{StreamChecksum, checksum64},
    codec::{self, Damage, Reader},
    num::{low32, u32_of, u64_of, usize_of},
    planted,
};

/// Length of a record's header.
pub(crate) const RECORD_HEADER_BYTES: usize = 24;
/// A longer record is written in chunks of about this size, to bound memory.
const CHUNK_BYTES: usize = 48 << 10;
/// Maximum length of a record.
pub(crate) const MAX_RECORD_BYTES: usize = 1 << 30;

/// One change of the committed state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An object of a tree is set to these bytes.
    PutObject(KeyspaceId, ObjectId, Vec<u8>),
    /// An object of a tree is deleted.
    DeleteObject(KeyspaceId, ObjectId),
    /// The durable reference count of a span of pages changes by this delta.
    References(ExtentSpan, i32),
    /// Everything of the keyspace up to this seqno is in its tree.
    Flushed(KeyspaceId, Seqno),
    /// A keyspace is created, with its name and the engine's encoding of its options.
    CreateKeyspace(KeyspaceId, String, Vec<u8>),
    /// A keyspace, its objects and its flushed seqno are deleted. Separate changes release its references.
    DropKeyspace(KeyspaceId),
    /// Recovery starts at this WAL segment; every write up to the seqno is in the trees.
    LogStart(u64, Seqno),
    /// Run ids below this one may have been used.
    NextRun(RunId),
    /// Keyspace ids below this one may have been used.
    NextKeyspace(KeyspaceId),
    /// The options of a keyspace change.
    SetOptions(KeyspaceId, Vec<u8>),
    /// The store was opened for writing.
    Opened(Opening),
}

/// Changes that become durable atomically.
pub type Edit = Vec<Change>;

/// Checksum seed that binds records to one manifest file of one store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordSeed(u64);

impl RecordSeed {
    pub(crate) fn new(store: StoreId, manifest: u64) -> Self {
        let mut bytes = store.0.to_le_bytes().to_vec();
        codec::put_u64(&mut bytes, manifest);
        Self(checksum64(&bytes, 0x4d41_4e49))
    }
}

fn header_checksum(length: u32, edit_number: u64, seed: RecordSeed) -> u32 {
    let mut bytes = length.to_le_bytes().to_vec();
    codec::put_u64(&mut bytes, edit_number);
    low32(checksum64(&bytes, seed.0))
}

fn encode_header(
    length: u32,
    edit_number: u64,
    payload_checksum: u64,
    seed: RecordSeed,
) -> [u8; RECORD_HEADER_BYTES] {
    let mut out = [0; RECORD_HEADER_BYTES];
    out[0..4].copy_from_slice(&length.to_le_bytes());
    out[4..8].copy_from_slice(&header_checksum(length, edit_number, seed).to_le_bytes());
    out[8..16].copy_from_slice(&edit_number.to_le_bytes());
    out[16..24].copy_from_slice(&payload_checksum.to_le_bytes());
    out
}

/// Encodes one record in memory.
pub(crate) fn encode_record(edit: &[Change], edit_number: u64, seed: RecordSeed) -> Vec<u8> {
    let mut out = vec![0u8; RECORD_HEADER_BYTES];
    for change in edit {
        encode_change(&mut out, change);
    }
    let length = u32_of(out.len() - RECORD_HEADER_BYTES);
    let payload_checksum = checksum64(&out[RECORD_HEADER_BYTES..], seed.0 ^ edit_number);
    out[..RECORD_HEADER_BYTES].copy_from_slice(&encode_header(length, edit_number, payload_checksum, seed));
    out
}

/// Encodes one zero-padded record with at most about [`CHUNK_BYTES`] in memory: `write_at` gets each chunk
/// with its offset. The header is written last, so that a partly written record is invalid. Returns the
/// padded length.
pub(crate) fn encode_record_in_chunks<E>(
    changes: impl Iterator<Item = impl Borrow<Change>>,
    edit_number: u64,
    seed: RecordSeed,
    mut write_at: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<u64, E> {
    let mut payload_checksum = StreamChecksum::new(seed.0 ^ edit_number);
    let (mut chunk, mut written) = (vec![0u8; RECORD_HEADER_BYTES], 0);
    let header_bytes_at = |written: u64| if written == 0 { RECORD_HEADER_BYTES } else { 0 };
    for change in changes {
        encode_change(&mut chunk, change.borrow());
        if chunk.len() >= CHUNK_BYTES {
            payload_checksum.update(&chunk[header_bytes_at(written)..]);
            write_at(written, &chunk)?;
            written += u64_of(chunk.len());
            chunk.clear();
        }
    }
    payload_checksum.update(&chunk[header_bytes_at(written)..]);
    let end = written + u64_of(chunk.len());
    let length = u32_of(usize_of(end) - RECORD_HEADER_BYTES);
    let header = encode_header(length, edit_number, payload_checksum.value(), seed);
    let filled = end.next_multiple_of(u64_of(PAGE_SIZE));
    chunk.resize(usize_of(filled - written), 0);
    if written == 0 {
        chunk[..RECORD_HEADER_BYTES].copy_from_slice(&header);
    }
    write_at(written, &chunk)?;
    if written > 0 {
        write_at(0, &header)?;
    }
    Ok(filled)
}

fn encode_change(out: &mut Vec<u8>, change: &Change) {
    match change {
        Change::PutObject(keyspace, object, bytes) => {
            codec::put_u8(out, 1);
            codec::put_u32(out, keyspace.0);
            codec::put_u64(out, object.0);
            codec::put_bytes(out, bytes);
        }
        Change::DeleteObject(keyspace, object) => {
            codec::put_u8(out, 2);
            codec::put_u32(out, keyspace.0);
            codec::put_u64(out, object.0);
        }
        Change::References(span, delta) => {
            codec::put_u8(out, 3);
            codec::put_u64(out, span.first_page);
            codec::put_u32(out, span.page_count);
            codec::put_u32(out, delta.cast_unsigned());
        }
        Change::Flushed(keyspace, seqno) => {
            codec::put_u8(out, 4);
            codec::put_u32(out, keyspace.0);
            codec::put_u64(out, seqno.0);
        }
        Change::CreateKeyspace(keyspace, name, options) => {
            codec::put_u8(out, 5);
            codec::put_u32(out, keyspace.0);
            codec::put_bytes(out, name.as_bytes());
            codec::put_bytes(out, options);
        }
        Change::DropKeyspace(keyspace) => {
            codec::put_u8(out, 6);
            codec::put_u32(out, keyspace.0);
        }
        Change::LogStart(segment, seqno) => {
            codec::put_u8(out, 7);
            codec::put_u64(out, *segment);
            codec::put_u64(out, seqno.0);
        }
        Change::NextRun(run) => {
            codec::put_u8(out, 8);
            codec::put_u64(out, run.0);
        }
        Change::NextKeyspace(keyspace) => {
            codec::put_u8(out, 9);
            codec::put_u32(out, keyspace.0);
        }
        Change::SetOptions(keyspace, options) => {
            codec::put_u8(out, 10);
            codec::put_u32(out, keyspace.0);
            codec::put_bytes(out, options);
        }
        Change::Opened(opening) => {
            codec::put_u8(out, 11);
            codec::put_u64(out, opening.incarnation.0);
            codec::put_u64(out, opening.first_segment);
        }
    }
}

fn decode_change(reader: &mut Reader<'_>) -> Result<Change, Damage> {
    Ok(match reader.u8()? {
        1 => {
            let (keyspace, object) = (KeyspaceId(reader.u32()?), ObjectId(reader.u64()?));
            Change::PutObject(keyspace, object, reader.bytes(MAX_RECORD_BYTES)?.to_vec())
        }
        2 => Change::DeleteObject(KeyspaceId(reader.u32()?), ObjectId(reader.u64()?)),
        3 => {
            let span = ExtentSpan { first_page: reader.u64()?, page_count: reader.u32()? };
            Change::References(span, reader.u32()?.cast_signed())
        }
        4 => Change::Flushed(KeyspaceId(reader.u32()?), Seqno(reader.u64()?)),
        5 => {
            let keyspace = KeyspaceId(reader.u32()?);
            let name =
                std::str::from_utf8(reader.bytes(1 << 16)?).map_err(|_| Damage("name is not UTF-8"))?;
            Change::CreateKeyspace(keyspace, name.to_owned(), reader.bytes(1 << 20)?.to_vec())
        }
        6 => Change::DropKeyspace(KeyspaceId(reader.u32()?)),
        7 => Change::LogStart(reader.u64()?, Seqno(reader.u64()?)),
        8 => Change::NextRun(RunId(reader.u64()?)),
        9 => Change::NextKeyspace(KeyspaceId(reader.u32()?)),
        10 => Change::SetOptions(KeyspaceId(reader.u32()?), reader.bytes(1 << 20)?.to_vec()),
        11 => {
            let (incarnation, first_segment) = (Incarnation(reader.u64()?), reader.u64()?);
            Change::Opened(Opening { incarnation, first_segment })
        }
        _ => return Err(Damage("unknown change")),
    })
}

/// Result of decoding at one position of a manifest file.
#[derive(Debug)]
pub(crate) enum Decoded {
    /// A valid record and its length in bytes.
    Record { edit: Edit, edit_number: u64, bytes: usize },
    /// The header is valid, the payload is not.
    DamagedPayload(Damage),
    /// No valid header.
    NoRecord,
}

/// Decodes the record at the start of `bytes`.
pub(crate) fn decode_record(bytes: &[u8], seed: RecordSeed) -> Decoded {
    let mut reader = Reader::new(bytes);
    let header = (|| Ok::<_, Damage>((reader.u32()?, reader.u32()?, reader.u64()?, reader.u64()?)))();
    let Ok((length, checksum, edit_number, payload_checksum)) = header else { return Decoded::NoRecord };
    if checksum != header_checksum(length, edit_number, seed) {
        return Decoded::NoRecord;
    }
    let length = usize_of(u64::from(length));
    let Ok(payload) = reader.take(length) else {
        return Decoded::DamagedPayload(Damage("ends too early"));
    };
    if payload_checksum != checksum64(payload, seed.0 ^ edit_number) && !planted!("edit-checksum-ignored") {
        return Decoded::DamagedPayload(Damage("payload checksum does not match"));
    }
    let mut edit = Vec::new();
    let mut changes = Reader::new(payload);
    while !changes.is_empty() {
        match decode_change(&mut changes) {
            Ok(change) => edit.push(change),
            Err(damage) => return Decoded::DamagedPayload(damage),
        }
    }
    Decoded::Record { edit, edit_number, bytes: RECORD_HEADER_BYTES + length }
}
