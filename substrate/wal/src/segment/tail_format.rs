//! The byte format of a tail file: one buffer of the log, mapped shared. No other file depends on it.
//!
//! All integers are little-endian. One header page of 4096 bytes, then the buffer:
//!
//! ```text
//!    0   8  magic "TSTDTAIL"
//!    8   4  format version, 1
//!   12   4  required feature flags, 0
//!   16   8  checksum of bytes 0..128, computed with these eight bytes as zeros
//!   24  16  store id
//!   40   8  incarnation of the log
//!   48  16  boot id of the machine
//!   64   8  bytes of the buffer
//!   72      zeros to 128
//!  128   8  turn: counts the uses of all buffers of the log; 0 while the buffer is unused
//!  136   8  first seqno of the turn
//!  144   8  bytes used by records, from the start of the buffer
//!  152   8  bytes used by values, from its end backwards
//!  160      zeros to the end of the page
//! ```
//!
//! Records are those of a segment. Length, first seqno and seqno count of a record are stored before its
//! bytes count as used, the rest once it is filled. Values of commits whose records refer to a value log are
//! in the other half, in commit order. Each *entry* is a multiple of 8 bytes:
//!
//! ```text
//!    0      content, then zeros to a multiple of 8
//!   -24  8  first seqno of the commit
//!   -16  8  bytes of the content
//!    -8  8  checksum of the content, with the salt of the log's records
//! ```
//!
//! **Invariants**
//! - Bytes from 128 on are stored while the tail is locked. They are valid only after the end of a process,
//!   never after a machine crash: then they may be of different moments.

use std::sync::atomic::{AtomicU64, Ordering};

use testudo_base::{
    Error, ErrorKind, Incarnation, PAGE_SIZE, Result, Seqno, StoreId,
    checksum::checksum64,
    codec::{Damage, Reader},
    num::u64_of,
};

/// Bytes before the buffer.
pub(crate) const TAIL_HEADER_BYTES: usize = PAGE_SIZE;
/// Bytes of an entry behind its content.
pub(crate) const TRAILER_BYTES: usize = 24;
/// First mutable word of the header; the four are turn, first seqno, bytes of records, bytes of values.
pub(crate) const TURN_WORD: usize = 16;

const MAGIC: [u8; 8] = *b"TSTDTAIL";
const VERSION: u32 = 1;
const FIXED_BYTES: usize = 128;
const NAME: &str = "log-tail-";

/// Name of a tail file within the store's directory.
pub(crate) fn tail_file_name(number: u64) -> String {
    format!("{NAME}{number}")
}

/// Parses the number in a tail file's name; `None` for any other name.
pub fn tail_file_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(NAME)?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// The part of the header that is constant while a tail file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TailHeader {
    pub(crate) store_id: StoreId,
    pub(crate) incarnation: Incarnation,
    pub(crate) boot: u128,
    pub(crate) buffer_bytes: u64,
}

/// The last state of a buffer stored by its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnState {
    pub(crate) turn: u64,
    pub(crate) first_seqno: Seqno,
    pub(crate) record_bytes: u64,
    pub(crate) value_bytes: u64,
}

impl TailHeader {
    /// Encodes the first bytes of the header page.
    pub(crate) fn encode(&self) -> [u8; FIXED_BYTES] {
        let mut bytes = [0; FIXED_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.store_id.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[48..64].copy_from_slice(&self.boot.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.buffer_bytes.to_le_bytes());
        let checksum = checksum64(&bytes, 0);
        bytes[16..24].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the header of file `name`; `None` if it is invalid, as in a file that was never finished.
    ///
    /// Errors: `Unsupported` for another format.
    pub(crate) fn decode(page: &[u8], name: &str) -> Result<Option<(Self, TurnState)>> {
        if page.len() < TAIL_HEADER_BYTES || page[..8] != MAGIC {
            return Ok(None);
        }
        let mut fixed = page[..FIXED_BYTES].to_vec();
        fixed[16..24].fill(0);
        if page[16..24] != checksum64(&fixed, 0).to_le_bytes() {
            return Ok(None);
        }
        let damaged = |Damage(why)| Error::corruption(name, 0, why);
        let (version, header, turn) = decode_fields(page).map_err(damaged)?;
        if version != (VERSION, 0) {
            let (version, flags) = version;
            let message = format!(
                "{name}: the tail has format version {version} (features {flags:#x}); this build reads \
                 version {VERSION}"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(Some((header, turn)))
    }
}

type Fields = ((u32, u32), TailHeader, TurnState);

fn decode_fields(page: &[u8]) -> std::result::Result<Fields, Damage> {
    let mut reader = Reader::new(page);
    reader.take(8)?;
    let version = (reader.u32()?, reader.u32()?);
    reader.take(8)?;
    let header = TailHeader {
        store_id: StoreId(reader.u128()?),
        incarnation: Incarnation(reader.u64()?),
        boot: reader.u128()?,
        buffer_bytes: reader.u64()?,
    };
    let mut reader = Reader::new(&page[FIXED_BYTES..]);
    let turn = TurnState {
        turn: reader.u64()?,
        first_seqno: Seqno(reader.u64()?),
        record_bytes: reader.u64()?,
        value_bytes: reader.u64()?,
    };
    Ok((version, header, turn))
}

/// Begins a turn in the four words of the header from [`TURN_WORD`] on.
pub(crate) fn begin_turn(words: &[AtomicU64; 4], turn: u64, first_seqno: Seqno) {
    let [turn_word, first_word, records, values] = words;
    turn_word.store(0, Ordering::Release);
    first_word.store(first_seqno.0.to_le(), Ordering::Release);
    records.store(0, Ordering::Release);
    values.store(0, Ordering::Release);
    turn_word.store(turn.to_le(), Ordering::Release);
}

/// Stores how many bytes are in use.
#[inline]
pub(crate) fn state_used(words: &[AtomicU64; 4], record_bytes: usize, value_bytes: usize) {
    let [_, _, records, values] = words;
    values.store(u64_of(value_bytes).to_le(), Ordering::Relaxed);
    // The stamps within the bytes in use were stored before.
    records.store(u64_of(record_bytes).to_le(), Ordering::Release);
}

/// Bytes of an entry with `content_bytes` of content.
pub(crate) fn entry_bytes(content_bytes: usize) -> usize {
    content_bytes.next_multiple_of(8) + TRAILER_BYTES
}

/// Stamps an entry with its commit's seqno and its length, before its content is stored.
pub(crate) fn stamp_entry(entry: &mut [u8], first_seqno: Seqno, content_bytes: usize) {
    let at = entry.len() - TRAILER_BYTES;
    entry[at..at + 8].copy_from_slice(&first_seqno.0.to_le_bytes());
    entry[at + 8..at + 16].copy_from_slice(&u64_of(content_bytes).to_le_bytes());
}

/// The content of a stamped entry.
pub(crate) fn entry_content(entry: &mut [u8]) -> &mut [u8] {
    let at = entry.len() - TRAILER_BYTES + 8;
    let length = entry[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    &mut entry[..testudo_base::num::usize_of(length)]
}

/// Completes an entry whose content is stored.
pub(crate) fn seal_entry(entry: &mut [u8], content_bytes: usize, salt: u64) {
    let at = entry.len() - 8;
    let checksum = checksum64(&entry[..content_bytes], salt);
    entry[at..].copy_from_slice(&checksum.to_le_bytes());
}

/// An entry: first seqno of its commit, its content if that was filled, and the entries before it.
pub(crate) type FoundEntry<'v> = (Seqno, Option<&'v [u8]>, &'v [u8]);

/// Returns the last entry of `values`, if there is one.
pub(crate) fn last_entry(values: &[u8], salt: u64) -> Option<FoundEntry<'_>> {
    let (rest, trailer) = values.split_last_chunk::<TRAILER_BYTES>()?;
    let word = |at: usize| trailer[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let content_bytes = usize::try_from(word(8)).ok().filter(|bytes| *bytes <= rest.len())?;
    let start = rest.len().checked_sub(content_bytes.next_multiple_of(8))?;
    let content = &rest[start..start + content_bytes];
    let is_filled = checksum64(content, salt) == word(16);
    Some((Seqno(word(0)), is_filled.then_some(content), &rest[..start]))
}

#[cfg(test)]
mod tests;
