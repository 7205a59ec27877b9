//! The bytes of the file `hot-set`: a header, then blocks.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TSTHOT\0\1`; the last byte is the version |
//! | 8 | 16 | store id |
//! | 24 | 8 | incarnation of the newest opening in the manifest |
//! | 32 | 8 | number of this file, random; seed of the checksums of its blocks |
//! | 40 | 8 | border between records and pages, in units of 2^-24 of the memory |
//! | 48 | 8 | length of the file |
//! | 56 | 8 | XXH3 of bytes 0..56, seed 0 |
//!
//! A block: kind u8 · zero u8 ×3 · payload length u32 · XXH3 u64 of the payload, seeded with number of
//! the file + offset of the block + kind · 2^56 · payload of at most 1 MiB. Kinds and payloads, all
//! numbers varints:
//!
//! - 1, states: keyspace · flushed seqno, for each keyspace with records; the first block
//! - 2, pages: keeping (0 structure, 1 main set, 2 probation), then runs: id · page count · for each page,
//!   ascending, its distance from the one before
//! - 3, records: keyspace · priority · key bytes · value bytes · key · value, for each record
//!
//! **Invariants**
//! - A block that is torn, or that belongs to another file or offset, does not decode.
//! - No length is trusted beyond the bytes available.

use testudo_base::{
    Incarnation, KeyspaceId, RunId, Seqno, StoreId,
    checksum::checksum64,
    codec::{Damage, Reader, put_u8, put_u32, put_u64, put_u128, put_varint},
    num::{u32_of, u64_of, usize_of},
    planted,
};
use testudo_records::HotRecord;
use testudo_storage::{HotPage, Keeping};

/// Maximum length of the file.
pub const FILE_BYTES_MAX: u64 = 256 << 20;
const MAGIC: [u8; 8] = *b"TSTHOT\0\x01";
pub const HEADER_BYTES: usize = 64;
pub const BLOCK_HEADER_BYTES: usize = 16;
/// A block ends once its payload is longer; one more entry fits into [`PAYLOAD_BYTES_MAX`].
pub const PAYLOAD_BYTES: usize = 48 << 10;
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(PAYLOAD_BYTES < PAYLOAD_BYTES_MAX, "a block has room for one more entry");

/// The header of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotSetHeader {
    pub store: StoreId,
    pub incarnation: Incarnation,
    /// Random number of this file.
    pub number: u64,
    pub border: u64,
    pub file_bytes: u64,
}

impl HotSetHeader {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_u128(&mut out, self.store.0);
        put_u64(&mut out, self.incarnation.0);
        put_u64(&mut out, self.number);
        put_u64(&mut out, self.border);
        put_u64(&mut out, self.file_bytes);
        let checksum = checksum64(&out, 0);
        put_u64(&mut out, checksum);
        debug_assert_eq!(out.len(), HEADER_BYTES, "the first block follows the header");
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(Damage("not a hot set of this version"));
        }
        let header = Self {
            store: StoreId(reader.u128()?),
            incarnation: Incarnation(reader.u64()?),
            number: reader.u64()?,
            border: reader.u64()?,
            file_bytes: reader.u64()?,
        };
        let summed = bytes.get(..HEADER_BYTES - 8).ok_or(Damage("ends too early"))?;
        if reader.u64()? != checksum64(summed, 0) {
            return Err(Damage("checksum of the header does not match"));
        }
        Ok(header)
    }
}

/// Contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockKind {
    States = 1,
    Pages = 2,
    Records = 3,
}

/// Header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    pub kind: BlockKind,
    pub payload_bytes: usize,
    checksum: u64,
}

impl BlockHeader {
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(bytes);
        let kind = match reader.take(4)? {
            [1, 0, 0, 0] => BlockKind::States,
            [2, 0, 0, 0] => BlockKind::Pages,
            [3, 0, 0, 0] => BlockKind::Records,
            _ => return Err(Damage("unknown kind of block")),
        };
        let payload_bytes = usize_of(u64::from(reader.u32()?));
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(Damage("a block is too long"));
        }
        Ok(Self { kind, payload_bytes, checksum: reader.u64()? })
    }

    /// Whether `payload` belongs to this block, at `offset` of the file with this number.
    pub fn is_of(&self, payload: &[u8], number: u64, offset: u64) -> bool {
        self.checksum == block_checksum(self.kind, payload, number, offset)
            || planted!("hot-set-checksum-ignored")
    }
}

fn block_checksum(kind: BlockKind, payload: &[u8], number: u64, offset: u64) -> u64 {
    let seed = number.wrapping_add(offset).wrapping_add(u64::from(kind as u8) << 56);
    checksum64(payload, seed)
}

/// Encodes a block with its header. REQUIRES: the payload is not too long.
pub fn encode_block(kind: BlockKind, payload: &[u8], number: u64, offset: u64) -> Vec<u8> {
    debug_assert!(payload.len() <= PAYLOAD_BYTES_MAX, "blocks end before the payload is too long");
    let mut out = Vec::with_capacity(BLOCK_HEADER_BYTES + payload.len());
    put_u32(&mut out, u32::from(kind as u8));
    put_u32(&mut out, u32_of(payload.len()));
    put_u64(&mut out, block_checksum(kind, payload, number, offset));
    debug_assert_eq!(out.len(), BLOCK_HEADER_BYTES, "the payload follows the header");
    out.extend_from_slice(payload);
    out
}

pub fn encode_states(states: impl Iterator<Item = (KeyspaceId, Seqno)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (keyspace, flushed) in states {
        put_varint(&mut out, u64::from(keyspace.0));
        put_varint(&mut out, flushed.0);
    }
    out
}

pub fn decode_states(payload: &[u8]) -> Result<Vec<(KeyspaceId, Seqno)>, Damage> {
    let mut reader = Reader::new(payload);
    let mut states = Vec::new();
    while !reader.is_empty() {
        states.push((keyspace(&mut reader)?, Seqno(reader.varint()?)));
    }
    Ok(states)
}

fn keyspace(reader: &mut Reader<'_>) -> Result<KeyspaceId, Damage> {
    u32::try_from(reader.varint()?).map(KeyspaceId).map_err(|_| Damage("a keyspace id is too large"))
}

/// Encodes the payload for pages with the same keeping: run and page number of each, sorted.
pub fn encode_pages(keeping: Keeping, pages: &[[u64; 2]]) -> Vec<u8> {
    debug_assert!(pages.is_sorted(), "by run, then by number");
    let mut out = Vec::new();
    let kept = match keeping {
        Keeping::Structure => 0,
        Keeping::Main => 1,
        Keeping::Probation => 2,
    };
    put_u8(&mut out, kept);
    for run in pages.chunk_by(|[a, _], [b, _]| a == b) {
        put_varint(&mut out, run[0][0]);
        put_varint(&mut out, u64_of(run.len()));
        let mut before = 0;
        for [_, page] in run {
            put_varint(&mut out, page - before);
            before = *page;
        }
    }
    out
}

pub fn decode_pages(payload: &[u8]) -> Result<Vec<HotPage>, Damage> {
    let mut reader = Reader::new(payload);
    let keeping = match reader.u8()? {
        0 => Keeping::Structure,
        1 => Keeping::Main,
        2 => Keeping::Probation,
        _ => return Err(Damage("unknown keeping of pages")),
    };
    let mut pages = Vec::new();
    while !reader.is_empty() {
        let generation = RunId(reader.varint()?);
        let count = reader.varint()?;
        let mut page = 0_u64;
        for _ in 0..count {
            page = page.checked_add(reader.varint()?).ok_or(Damage("a page number overflows"))?;
            pages.push(HotPage { page, generation, keeping });
        }
    }
    Ok(pages)
}

pub fn put_record(out: &mut Vec<u8>, record: &HotRecord) {
    put_varint(out, u64::from(record.keyspace.0));
    put_varint(out, u64::from(record.priority));
    put_varint(out, u64_of(record.key.len()));
    put_varint(out, u64_of(record.value.len()));
    out.extend_from_slice(&record.key);
    out.extend_from_slice(&record.value);
}

/// Reads the next record.
pub fn take_record(reader: &mut Reader<'_>) -> Result<HotRecord, Damage> {
    let keyspace = keyspace(reader)?;
    let priority = u8::try_from(reader.varint()?).map_err(|_| Damage("a priority is too high"))?;
    let (key_bytes, value_bytes) = (reader.varint()?, reader.varint()?);
    let mut take = |count: u64| -> Result<Vec<u8>, Damage> {
        let count = usize::try_from(count).map_err(|_| Damage("ends too early"))?;
        Ok(reader.take(count)?.to_vec())
    };
    Ok(HotRecord { keyspace, priority, key: take(key_bytes)?, value: take(value_bytes)? })
}

#[cfg(test)]
mod tests;
