//! Entries of the keyspace of values in pieces. Only this file knows their bytes.
//!
//! | key | value |
//! |---|---|
//! | `h` · number of the value u64 | its length u32 · name of its keyspace: bytes u32, name · its key |
//! | `p` · number of the value u64 · number of the piece u32 | the bytes of the piece |
//!
//! Numbers in keys are big-endian, those in values little-endian.
//!
//! **Invariants**
//! - All pieces of a value except the last have [`PIECE_BYTES`].

use testudo_base::{
    codec::{Damage, Reader, put_u32},
    num::{low64, u32_of, u64_of, usize_of},
};

/// Bytes of a piece.
pub const PIECE_BYTES: usize = 64 << 10;
const HEAD: u8 = b'h';
const PIECE: u8 = b'p';

/// The owner and length of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PiecesHead {
    pub length: u32,
    /// The name, not the id: a salvaged store assigns other ids.
    pub keyspace: String,
    pub key: Vec<u8>,
}

impl PiecesHead {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.keyspace.len() + self.key.len());
        put_u32(&mut out, self.length);
        put_u32(&mut out, u32_of(self.keyspace.len()));
        out.extend_from_slice(self.keyspace.as_bytes());
        out.extend_from_slice(&self.key);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(bytes);
        let (length, name_bytes) = (reader.u32()?, usize_of(u64::from(reader.u32()?)));
        let keyspace = String::from_utf8(reader.take(name_bytes)?.to_vec());
        let keyspace = keyspace.map_err(|_| Damage("the name of a keyspace is not UTF-8"))?;
        Ok(Self { length, keyspace, key: reader.rest().to_vec() })
    }
}

/// The key of the head of a value.
pub fn head_key(value: u64) -> Vec<u8> {
    [&[HEAD][..], &value.to_be_bytes()].concat()
}

/// The first key after those of all heads.
pub fn heads_end() -> Vec<u8> {
    vec![HEAD + 1]
}

/// Number of the value whose head has this key, if it is a head.
pub fn value_of_head(key: &[u8]) -> Option<u64> {
    let number = key.strip_prefix(&[HEAD])?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

/// The key of a piece of a value.
pub fn piece_key(value: u64, piece: u32) -> Vec<u8> {
    [&[PIECE][..], &value.to_be_bytes(), &piece.to_be_bytes()].concat()
}

/// Number of the value whose piece has this key, if it is a piece.
pub fn value_of_piece(key: &[u8]) -> Option<u64> {
    let number = key.strip_prefix(&[PIECE])?.first_chunk()?;
    Some(u64::from_be_bytes(*number))
}

/// Whether `key` is that of a piece of this value.
pub fn is_piece_of(value: u64, key: &[u8]) -> bool {
    key.strip_prefix(&[PIECE]).is_some_and(|rest| rest.starts_with(&value.to_be_bytes()))
}

/// Index of the piece that contains the byte at `offset`.
pub fn piece_at(offset: u64) -> u32 {
    u32_of(usize_of(offset / u64_of(PIECE_BYTES)))
}

/// Bytes of a piece of a value of `length`.
pub fn piece_len(length: u32, piece: u32) -> usize {
    let start = u64::from(piece) * u64_of(PIECE_BYTES);
    usize_of(low64(u128::from(u64::from(length).saturating_sub(start)))).min(PIECE_BYTES)
}

/// Number of pieces of a value of `length`.
pub fn piece_count(length: u32) -> u32 {
    u32_of(usize_of(u64::from(length)).div_ceil(PIECE_BYTES))
}

#[cfg(test)]
mod tests;
