//! What a tree keeps of a run: enough to read it, and to plan without reading it.
//!
//! Encoded inside the tree's objects and in the run's own footer (little-endian; `str` = u32 length and
//! bytes): run id u64 · keyspace u32 · incarnation u32 · newest seqno u64 · span count u32 · spans
//! (first page u64, pages u32)… · data pages u32 · footer page u32 · footer pages u32 · entries u64 ·
//! tombstones u64 · user bytes u64 · ends of its keys, see `key_ends.rs`.

use testudo_base::{
    ExtentSpan, KeyspaceId, PAGE_BYTES, RunId, Seqno,
    codec::{self, Damage, Reader},
    num::{u32_of, usize_of},
};

use crate::KeyEnds;

/// A reference to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRef {
    /// The run; also the generation of its pages.
    pub id: RunId,
    /// The keyspace that wrote it, as its pages say.
    pub keyspace: KeyspaceId,
    /// The incarnation that wrote it, its lowest 32 bits, as its pages say.
    pub incarnation: u32,
    /// How new it is: of two runs that hold a key, the one with the greater newest seqno (then id) has the
    /// newer entry.
    pub newest_seqno: Seqno,
    /// Its pages, in order.
    pub spans: Vec<ExtentSpan>,
    /// Number of pages of data blocks, which come first.
    pub data_pages: u32,
    /// Where the footer is, in pages from the start of the run.
    pub footer_page: u32,
    /// Length of the footer in pages.
    pub footer_pages: u32,
    /// Number of entries, tombstones included.
    pub entries: u64,
    /// Number of tombstones.
    pub tombstones: u64,
    /// Bytes of keys and values.
    pub user_bytes: u64,
    /// Where its keys begin and end.
    pub keys: KeyEnds,
}

/// A run has never more pieces than this.
const MAX_SPANS: u32 = 1 << 20;
/// No file reaches beyond this page, so that sums of pages and bytes do not overflow.
const MAX_PAGE: u64 = 1 << 48;
/// Nor does a run hold more than this.
const MAX_USER_BYTES: u64 = 1 << 48;

impl RunRef {
    /// Bytes that it occupies in the data file.
    pub fn stored_bytes(&self) -> u64 {
        self.spans.iter().map(|span| span.bytes()).sum()
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        codec::put_u64(out, self.id.0);
        codec::put_u32(out, self.keyspace.0);
        codec::put_u32(out, self.incarnation);
        codec::put_u64(out, self.newest_seqno.0);
        codec::put_u32(out, u32_of(self.spans.len()));
        for span in &self.spans {
            codec::put_u64(out, span.first_page);
            codec::put_u32(out, span.page_count);
        }
        codec::put_u32(out, self.data_pages);
        codec::put_u32(out, self.footer_page);
        codec::put_u32(out, self.footer_pages);
        codec::put_u64(out, self.entries);
        codec::put_u64(out, self.tombstones);
        codec::put_u64(out, self.user_bytes);
        self.keys.encode(out);
    }

    /// Reads the encoding back, checking that its numbers fit together.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Damage> {
        let id = RunId(reader.u64()?);
        let keyspace = KeyspaceId(reader.u32()?);
        let incarnation = reader.u32()?;
        let newest_seqno = Seqno(reader.u64()?);
        let count = reader.u32()?;
        if count == 0 || count > MAX_SPANS || usize_of(u64::from(count)) * 12 > reader.rest().len() {
            return Err(Damage("a run has an impossible number of spans"));
        }
        let mut spans = Vec::with_capacity(usize_of(u64::from(count)));
        let mut pages = 0u64;
        for _ in 0..count {
            let span = ExtentSpan { first_page: reader.u64()?, page_count: reader.u32()? };
            if span.page_count == 0 || span.first_page > MAX_PAGE {
                return Err(Damage("a run has an impossible span"));
            }
            pages += u64::from(span.page_count);
            spans.push(span);
        }
        let run = Self {
            id,
            keyspace,
            incarnation,
            newest_seqno,
            spans,
            data_pages: reader.u32()?,
            footer_page: reader.u32()?,
            footer_pages: reader.u32()?,
            entries: reader.u64()?,
            tombstones: reader.u64()?,
            user_bytes: reader.u64()?,
            keys: KeyEnds::decode(reader)?,
        };
        let footer_end = u64::from(run.footer_page) + u64::from(run.footer_pages);
        if run.footer_pages == 0
            || run.data_pages > run.footer_page
            || footer_end > pages
            || run.tombstones > run.entries
            || run.entries > u64::from(run.data_pages) * PAGE_BYTES
            || run.user_bytes > MAX_USER_BYTES
        {
            return Err(Damage("a run reference contradicts itself"));
        }
        Ok(run)
    }
}
