//! Entries of the runs of a spilled write buffer. Only this file knows their bytes.
//!
//! | run | key | value |
//! |---|---|---|
//! | of keys | the key | u8 1 · its versions, newest first: seqno u64, kind u8, length u32, bytes |
//! | of keys | the key | u8 0 · its number u64: the versions are stored apart |
//! | of versions | number u64 · seqno u64, all bits inverted | a version, as an entry of its kind |
//!
//! Numbers in keys are big-endian, those in values little-endian.
//!
//! **Invariants**
//! - The bytes are not durable: nothing reads them after the process has ended.

use std::ops::Range;

use testudo_base::{
    Kind, Seqno,
    codec::{Damage, Reader, put_u32, put_u64},
    num::{u32_of, usize_of},
};

/// Maximum total bytes of the versions of a key that are stored with it.
pub const HERE_BYTES: usize = 1 << 10;
/// Bytes of a version in addition to its value, if stored with its key.
pub const VERSION_HEADER_BYTES: usize = 8 + 1 + 4;

const APART: u8 = 0;
const HERE: u8 = 1;

/// Location of the versions of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyVersions {
    /// With the key.
    Here,
    /// In the run of versions, under this number.
    Apart(u64),
}

/// Begins a list of versions stored with their key.
pub fn begin_list(out: &mut Vec<u8>) {
    out.clear();
    out.push(HERE);
}

/// Appends a version, older than those before.
pub fn push_version(out: &mut Vec<u8>, seqno: Seqno, kind: Kind, value: &[u8]) {
    debug_assert_eq!(out.first(), Some(&HERE), "the list was begun");
    put_u64(out, seqno.0);
    out.push(kind as u8);
    put_u32(out, u32_of(value.len()));
    out.extend_from_slice(value);
}

/// Encodes the number of a key whose versions are stored apart.
pub fn encode_apart(out: &mut Vec<u8>, number: u64) {
    out.clear();
    out.push(APART);
    put_u64(out, number);
}

/// Location of the versions of the key with this value.
pub fn versions_of(value: &[u8]) -> Result<KeyVersions, Damage> {
    let mut reader = Reader::new(value);
    match reader.u8()? {
        HERE => Ok(KeyVersions::Here),
        APART => Ok(KeyVersions::Apart(reader.u64()?)),
        _ => Err(Damage("a list of versions of an unknown kind")),
    }
}

/// The newest version at or before `at` of those stored with their key: its kind and its range in `value`.
pub fn visible_at(value: &[u8], at: Seqno) -> Result<Option<(Kind, Range<usize>)>, Damage> {
    let mut reader = Reader::new(value);
    reader.u8()?;
    while !reader.is_empty() {
        let seqno = Seqno(reader.u64()?);
        let kind = Kind::from_u8(reader.u8()?).ok_or(Damage("a version of an unknown kind"))?;
        let length = usize_of(u64::from(reader.u32()?));
        let start = value.len() - reader.rest().len();
        reader.take(length)?;
        if seqno <= at {
            return Ok(Some((kind, start..start + length)));
        }
    }
    Ok(None)
}

/// The key of a version stored apart; also the seek key of the newest version at or before `seqno`.
pub fn version_key(number: u64, seqno: Seqno) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8..].copy_from_slice(&(!seqno.0).to_be_bytes());
    key
}

/// Whether the version with this key belongs to the key with this number.
pub fn is_version_of(key: &[u8], number: u64) -> bool {
    key.starts_with(&number.to_be_bytes())
}

#[cfg(test)]
mod tests;
