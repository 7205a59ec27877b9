//! The byte format of the log: segment header page, record header, file names. No other file depends on it.
//!
//! All integers are little-endian. Segment header, one page of 4096 bytes:
//!
//! ```text
//!    0   8  magic "TSTDOWAL"
//!    8   4  format version, 2
//!   12   4  required feature flags: 1 the end of the log may be in tail files (`tail_format.rs`); older
//!          logs have 0; an unknown flag means a newer format
//!   16   8  checksum of the page (seed 0), computed with these eight bytes as zeros
//!   24  16  store id
//!   40   8  segment number, the one in the file's name
//!   48   8  incarnation: random, one per opening of the store for writing
//!   56   8  first seqno: of the first record, if there is one
//!   64   8  durable seqno: everything up to it was synced when this page was written
//!   72   8  recovered seqno: end of the log as found by the recovery that began the incarnation
//!   80   8  segment bytes: the file is at least this long; a multiple of 4096
//!   88   8  newest manifest edit that was durable when this page was written
//!   96      zeros to the end of the page
//! ```
//!
//! Record, at a multiple of 8; the seed of its checksums is `salt = checksum64(store id, incarnation)`:
//!
//! ```text
//!    0   4  header checksum: low 32 bits over bytes 4..40
//!    4   4  payload length
//!    8   8  payload checksum; of a marker: newest manifest edit that was durable when it was written
//!   16   8  first seqno
//!   24   8  durable seqno: everything up to it was synced when this record was reserved
//!   32   4  seqno count; 0 for a marker
//!   36   1  kind: 1 commit, 2 skipped commit (its seqnos are used, its payload is void), 3 marker
//!   37   3  zeros
//!   40      payload, then zeros to a multiple of 8
//! ```
//!
//! **Invariants**
//! - Bytes 0..24 of the segment header keep their meaning in every version, so that an old build can tell a
//!   newer format from damage.
//! - A valid record header is never all zeros (the kind is not 0), so that untouched space is never a record.

use testudo_base::{
    Error, ErrorKind, Incarnation, PAGE_SIZE, Result, Seqno, StoreId,
    checksum::checksum64,
    codec::{Damage, Reader},
    num::{low32, u32_of, u64_of},
};

/// Version of the log's format that this build writes, and the only one that it reads.
pub const FORMAT_VERSION: u32 = 2;
/// Bytes of a segment before its first record.
pub const SEGMENT_HEADER_BYTES: u64 = 4096;
/// Longest payload of one record, in bytes (4 GiB minus one page).
pub const MAX_PAYLOAD_BYTES: u64 = (u32::MAX as u64) - 4095;

/// Bytes of a record before its payload.
pub(crate) const RECORD_HEADER_BYTES: usize = 40;
/// Records start at multiples of this.
pub(crate) const RECORD_ALIGNMENT: usize = 8;

/// A build without support for tail files would lose their contents.
const HAS_TAIL_FILES: u32 = 1;
const MAGIC: [u8; 8] = *b"TSTDOWAL";
const CHECKSUM_AT: usize = 16;

/// Name of the file of segment `number`, within the store's directory.
pub fn segment_file_name(number: u64) -> String {
    format!("wal-{number:020}.log")
}

/// Parses the number in a segment's file name; `None` for any other name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("wal-")?.strip_suffix(".log")?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Seed of the checksums of all records of an incarnation.
pub(crate) fn record_salt(store_id: StoreId, incarnation: Incarnation) -> u64 {
    checksum64(&store_id.0.to_le_bytes(), incarnation.0)
}

/// The header in the first page of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The store to which the log belongs.
    pub store_id: StoreId,
    /// Number of the segment, as in the file's name.
    pub number: u64,
    /// Random, one per opening of the store for writing.
    pub incarnation: Incarnation,
    /// Seqno of the first record, if there is one.
    pub first_seqno: Seqno,
    /// Everything up to this seqno was synced when the header was written.
    pub durable_seqno: Seqno,
    /// End of the log as found by the recovery that began the incarnation.
    pub recovered_seqno: Seqno,
    /// The file is at least this long.
    pub segment_bytes: u64,
    /// Newest manifest edit that was durable when the header was written.
    pub newest_edit: u64,
}

impl SegmentHeader {
    /// Fills the whole `page`. REQUIRES: it has 4096 bytes.
    pub(crate) fn encode(&self, page: &mut [u8]) {
        assert_eq!(page.len(), PAGE_SIZE, "a header fills one page");
        page.fill(0);
        page[..8].copy_from_slice(&MAGIC);
        page[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        page[12..16].copy_from_slice(&HAS_TAIL_FILES.to_le_bytes());
        page[24..40].copy_from_slice(&self.store_id.0.to_le_bytes());
        let fields = [
            self.number,
            self.incarnation.0,
            self.first_seqno.0,
            self.durable_seqno.0,
            self.recovered_seqno.0,
            self.segment_bytes,
            self.newest_edit,
        ];
        for (slot, field) in page[40..].chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        let checksum = checksum64(page, 0);
        page[CHECKSUM_AT..CHECKSUM_AT + 8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads a header page of file `name`. Returns `None` if its bytes are inconsistent, an error of kind
    /// `Unsupported` if they are valid but of another format.
    pub(crate) fn decode(page: &[u8], name: &str) -> Result<Option<Self>> {
        if !is_valid(page) {
            return Ok(None);
        }
        let (version, flags, header) =
            decode_fields(page).map_err(|Damage(reason)| Error::corruption(name, 0, reason))?;
        if version != FORMAT_VERSION || flags & !HAS_TAIL_FILES != 0 {
            let message = format!(
                "{name}: the log has format version {version} (features {flags:#x}); this build reads \
                 version {FORMAT_VERSION}"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(Some(header))
    }
}

fn is_valid(page: &[u8]) -> bool {
    if page.len() != PAGE_SIZE || page[..8] != MAGIC {
        return false;
    }
    let mut copy = page.to_vec();
    copy[CHECKSUM_AT..CHECKSUM_AT + 8].fill(0);
    page[CHECKSUM_AT..CHECKSUM_AT + 8] == checksum64(&copy, 0).to_le_bytes()
}

fn decode_fields(page: &[u8]) -> std::result::Result<(u32, u32, SegmentHeader), Damage> {
    let mut reader = Reader::new(page);
    reader.take(8)?;
    let version = reader.u32()?;
    let flags = reader.u32()?;
    reader.take(8)?;
    let header = SegmentHeader {
        store_id: StoreId(reader.u128()?),
        number: reader.u64()?,
        incarnation: Incarnation(reader.u64()?),
        first_seqno: Seqno(reader.u64()?),
        durable_seqno: Seqno(reader.u64()?),
        recovered_seqno: Seqno(reader.u64()?),
        segment_bytes: reader.u64()?,
        newest_edit: reader.u64()?,
    };
    Ok((version, flags, header))
}

/// The incarnation stated by a header page, valid or not. Records under it prove whether it is correct.
pub(crate) fn claimed_incarnation(page: &[u8]) -> Option<Incarnation> {
    Some(Incarnation(u64::from_le_bytes(*page.get(48..)?.first_chunk()?)))
}

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A commit with its payload.
    Commit = 1,
    /// A commit that was abandoned after its seqnos were assigned.
    Skipped = 2,
    /// Only states what was durable.
    Marker = 3,
}

/// The header before a record's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Kind of the record.
    pub kind: RecordKind,
    /// Length of the payload.
    pub payload_bytes: u32,
    /// Checksum of the payload; for a marker, the newest manifest edit that was durable when it was written.
    pub payload_checksum: u64,
    /// First seqno of the record.
    pub first_seqno: Seqno,
    /// Number of its seqnos; 0 for a marker.
    pub seqno_count: u32,
    /// Everything up to this seqno was synced when the record was reserved.
    pub durable_seqno: Seqno,
}

impl RecordHeader {
    /// Fills `out` with the header. REQUIRES: `out` has at least [`RECORD_HEADER_BYTES`].
    #[inline]
    pub(crate) fn encode(&self, out: &mut [u8], salt: u64) {
        let out = &mut out[..RECORD_HEADER_BYTES];
        out[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[8..16].copy_from_slice(&self.payload_checksum.to_le_bytes());
        out[16..24].copy_from_slice(&self.first_seqno.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.durable_seqno.0.to_le_bytes());
        out[32..36].copy_from_slice(&self.seqno_count.to_le_bytes());
        out[36..40].copy_from_slice(&u32::from(self.kind as u8).to_le_bytes());
        let checksum = low32(checksum64(&out[4..], salt));
        out[..4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads a header; `None` if there is none. Checks the few bytes that only a header has before it
    /// computes a checksum, so that whole segments can be searched.
    #[inline]
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER_BYTES], salt: u64) -> Option<Self> {
        let kind = match bytes[36..40] {
            [1, 0, 0, 0] => RecordKind::Commit,
            [2, 0, 0, 0] => RecordKind::Skipped,
            [3, 0, 0, 0] => RecordKind::Marker,
            _ => return None,
        };
        if bytes[..4] != low32(checksum64(&bytes[4..], salt)).to_le_bytes() {
            return None;
        }
        let mut reader = Reader::new(&bytes[4..]);
        let header = Self {
            kind,
            payload_bytes: reader.u32().ok()?,
            payload_checksum: reader.u64().ok()?,
            first_seqno: Seqno(reader.u64().ok()?),
            durable_seqno: Seqno(reader.u64().ok()?),
            seqno_count: reader.u32().ok()?,
        };
        // Checked here once, so that no reader can overflow by adding.
        header.first_seqno.0.checked_add(u64::from(header.seqno_count))?;
        let is_marker = kind == RecordKind::Marker;
        let is_plausible = is_marker == (header.seqno_count == 0)
            && !(is_marker && header.payload_bytes > 0)
            && header.durable_seqno < header.first_seqno
            && u64::from(header.payload_bytes) <= MAX_PAYLOAD_BYTES;
        is_plausible.then_some(header)
    }

    /// Bytes of the whole record, including padding.
    pub(crate) fn record_bytes(&self) -> u64 {
        record_bytes(u64::from(self.payload_bytes))
    }

    /// The newest manifest edit stated by a marker.
    pub(crate) fn stated_edit(&self) -> Option<u64> {
        (self.kind == RecordKind::Marker).then_some(self.payload_checksum)
    }

    /// The seqno after the record's last one.
    pub(crate) fn end_seqno(&self) -> u64 {
        self.first_seqno.0 + u64::from(self.seqno_count)
    }
}

/// Stores the fields of a record that are known before it is filled: length, first seqno and seqno count.
/// Filling it stores the same bytes there again.
#[inline]
pub(crate) fn stamp_record(record: &mut [u8], payload_bytes: usize, first_seqno: Seqno, seqno_count: u32) {
    debug_assert!(record.len() >= RECORD_HEADER_BYTES + payload_bytes, "the record has its payload's length");
    debug_assert!(seqno_count > 0, "a commit has a seqno");
    record[4..8].copy_from_slice(&u32_of(payload_bytes).to_le_bytes());
    record[16..24].copy_from_slice(&first_seqno.0.to_le_bytes());
    record[32..36].copy_from_slice(&seqno_count.to_le_bytes());
}

/// Reads the fields stored by [`stamp_record`]: bytes of the payload, first seqno, seqno count.
pub(crate) fn stamp_of(header: &[u8; RECORD_HEADER_BYTES]) -> (u32, Seqno, u32) {
    let u32_at = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let seqno = header[16..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (u32_at(4), Seqno(seqno), u32_at(32))
}

/// Bytes of a record with a payload of `payload_bytes`, including padding.
#[inline]
pub(crate) fn record_bytes(payload_bytes: u64) -> u64 {
    debug_assert!(payload_bytes <= u64::from(u32::MAX), "lengths have 32 bits");
    (u64_of(RECORD_HEADER_BYTES) + payload_bytes).next_multiple_of(u64_of(RECORD_ALIGNMENT))
}

/// Fills `record` with the header and padding for the payload already stored behind the header.
///
/// REQUIRES: `record` has [`record_bytes`] of `payload_bytes`.
#[inline]
pub(crate) fn seal_record(record: &mut [u8], payload_bytes: usize, salt: u64, mut header: RecordHeader) {
    debug_assert_eq!(u64_of(record.len()), record_bytes(u64_of(payload_bytes)), "the record's whole length");
    debug_assert!(header.seqno_count > 0, "only markers have no seqno");
    debug_assert!(header.durable_seqno < header.first_seqno, "unwritten records are not durable");
    let end = RECORD_HEADER_BYTES + payload_bytes;
    record[end..].fill(0);
    header.payload_bytes = u32_of(payload_bytes);
    header.payload_checksum = checksum64(&record[RECORD_HEADER_BYTES..end], salt);
    header.encode(record, salt);
}

#[cfg(test)]
mod tests;
