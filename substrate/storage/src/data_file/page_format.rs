//! The header of every page (or block of several pages) of the data file. Only this file encodes it.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | XXH3 of bytes 8 … 40 + payload length, seeded with the store id |
//! | 8 | 1 | kind: 1 data, 2 index, 3 filter, 4 footer, 5 replaced data, 6 map |
//! | 9 | 3 | zero |
//! | 12 | 4 | payload length in bytes |
//! | 16 | 8 | number of the (first) page in the data file |
//! | 24 | 8 | generation: the id of the run; replaced pages and maps have their own |
//! | 32 | 4 | keyspace that wrote the run |
//! | 36 | 4 | incarnation that wrote the run: lowest 32 bits |
//! | 40 | … | payload, then zeros up to a multiple of 4 KiB |
//!
//! **Invariants**
//! - A page contains its identity, so that a misdirected, lost or foreign write is not accepted as the right
//!   page. The store is in the seed of the checksum. The incarnation distinguishes pages written by copies of
//!   a store after they diverged.

use testudo_base::{
    ExtentSpan, KeyspaceId, PAGE_BYTES, RunId, StoreId,
    checksum::checksum64,
    codec::Reader,
    num::{u32_of, u64_of, usize_of},
    planted,
};

/// Bytes of the header before the payload.
pub const PAGE_HEADER_BYTES: usize = 40;

/// Kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Sorted entries of a run.
    Data = 1,
    /// Separators of a run's data blocks.
    Index = 2,
    /// A partition of a run's filter.
    Filter = 3,
    /// Counts and the top of a run's index.
    Footer = 4,
    /// Sorted entries of a run that replace an earlier page of it.
    Replaced = 5,
    /// Places of a run's replaced pages.
    Map = 6,
}

impl PageKind {
    /// Returns the kind with this number.
    pub fn from_u8(number: u8) -> Option<Self> {
        let all = [Self::Data, Self::Index, Self::Filter, Self::Footer, Self::Replaced, Self::Map];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Header of a page as stored, unverified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// Checksum of the rest of the header and the payload.
    pub checksum: u64,
    /// Stored number of the kind.
    pub kind_number: u8,
    /// The kind, if the number is valid.
    pub kind: Option<PageKind>,
    /// Length of the payload.
    pub payload_bytes: u32,
    /// Number of the first page.
    pub page: u64,
    /// Id of the run.
    pub generation: RunId,
    /// The keyspace that wrote it.
    pub keyspace: KeyspaceId,
    /// Lowest 32 bits of the incarnation that wrote it.
    pub incarnation: u32,
}

impl PageHeader {
    /// Decodes the header at the start of `bytes`; `None` if `bytes` is too short.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes.get(..PAGE_HEADER_BYTES)?);
        let checksum = reader.u64().ok()?;
        let kind_number = reader.u8().ok()?;
        reader.take(3).ok()?;
        Some(Self {
            checksum,
            kind_number,
            kind: PageKind::from_u8(kind_number),
            payload_bytes: reader.u32().ok()?,
            page: reader.u64().ok()?,
            generation: RunId(reader.u64().ok()?),
            keyspace: KeyspaceId(reader.u32().ok()?),
            incarnation: reader.u32().ok()?,
        })
    }
}

/// Identity of a page; all of it is stored in the page and compared on every read from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageIdentity {
    /// The store.
    pub store: StoreId,
    /// Kind of its contents.
    pub kind: PageKind,
    /// Number of the first page.
    pub page: u64,
    /// The run that it belongs to.
    pub generation: RunId,
    /// The keyspace that wrote it.
    pub keyspace: KeyspaceId,
    /// Lowest 32 bits of the incarnation that wrote it.
    pub incarnation: u32,
}

impl PageIdentity {
    fn header(&self, payload_bytes: u32) -> [u8; 32] {
        let mut out = [0u8; 32];
        out[0] = self.kind as u8;
        out[4..8].copy_from_slice(&payload_bytes.to_le_bytes());
        out[8..16].copy_from_slice(&self.page.to_le_bytes());
        out[16..24].copy_from_slice(&self.generation.0.to_le_bytes());
        out[24..28].copy_from_slice(&self.keyspace.0.to_le_bytes());
        out[28..32].copy_from_slice(&self.incarnation.to_le_bytes());
        out
    }

    fn seed(&self) -> u64 {
        let (high, low) = ((self.store.0 >> 64) as u64, testudo_base::num::low64(self.store.0));
        high ^ low
    }
}

/// Writes header and checksum into `pages`. The payload (`payload_bytes` from byte 40) must be there already.
pub fn seal_pages(pages: &mut [u8], identity: &PageIdentity, payload_bytes: usize) {
    let end = PAGE_HEADER_BYTES + payload_bytes;
    assert!(end <= pages.len(), "payload exceeds its pages");
    debug_assert!(pages.len().is_multiple_of(usize_of(PAGE_BYTES)), "only whole pages are sealed");
    pages[8..40].copy_from_slice(&identity.header(u32_of(payload_bytes)));
    pages[end..].fill(0);
    let checksum = checksum64(&pages[8..end], identity.seed());
    pages[..8].copy_from_slice(&checksum.to_le_bytes());
}

/// Verifies the seal and the identity of `pages`; the error says which check failed.
pub fn verify_pages(pages: &[u8], identity: &PageIdentity) -> Result<(), &'static str> {
    let Some(length) = stored_payload_bytes(pages) else { return Err("page is too short") };
    let end = PAGE_HEADER_BYTES + length;
    if end > pages.len() {
        return Err("page length exceeds its pages");
    }
    if !is_sealed_as(&pages[8..40], &identity.header(u32_of(length))) && !planted!("page-identity-ignored") {
        return Err("page identity does not match");
    }
    let checksum = checksum64(&pages[8..end], identity.seed());
    if pages[..8] != checksum.to_le_bytes() && !planted!("page-checksum-ignored") {
        return Err("page checksum does not match");
    }
    Ok(())
}

fn is_sealed_as(stored: &[u8], expected: &[u8; 32]) -> bool {
    let compared = if planted!("foreign-page-believed") { 28 } else { 32 };
    stored[..compared] == expected[..compared]
}

/// Returns the payload of verified pages.
#[inline]
pub fn payload_of(pages: &[u8]) -> &[u8] {
    let length = stored_payload_bytes(pages).unwrap_or(0).min(pages.len().saturating_sub(PAGE_HEADER_BYTES));
    &pages[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + length]
}

#[inline]
fn stored_payload_bytes(pages: &[u8]) -> Option<usize> {
    let bytes = pages.get(12..16)?.first_chunk::<4>()?;
    (pages.len() >= PAGE_HEADER_BYTES).then(|| usize_of(u64::from(u32::from_le_bytes(*bytes))))
}

/// Offset of a span in the data file in bytes, for error messages.
pub(crate) fn span_offset(span: ExtentSpan) -> u64 {
    span.first_page * PAGE_BYTES
}

/// Length of a buffer in pages. REQUIRES: a multiple of the page size.
pub(crate) fn page_count_of(buffer: &[u8]) -> u32 {
    debug_assert_eq!(u64_of(buffer.len()) % PAGE_BYTES, 0);
    u32_of(buffer.len() / usize_of(PAGE_BYTES))
}

#[cfg(test)]
mod tests;
