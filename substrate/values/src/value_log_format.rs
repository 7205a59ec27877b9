//! Encoding of a value log's object in the manifest.
//!
//! Little-endian: id u64 · keyspace u32 · incarnation u32 · span count u32 · spans (first page u64, pages
//! u32)…
//!
//! **Invariants**
//! - Decoding never panics: an inconsistent object is [`Damage`].

use testudo_base::{
    ExtentSpan, KeyspaceId, RunId, Seqno,
    codec::{self, Damage, Reader},
    num::u32_of,
};
use testudo_run::{KeyEnds, RunRef};

/// Location and writer of a value log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueLogRecord {
    /// Id of the future segment: also the generation of its pages.
    pub id: RunId,
    /// The keyspace that writes it.
    pub keyspace: KeyspaceId,
    /// Lowest 32 bits of the incarnation that writes it.
    pub incarnation: u32,
    /// Spans of its space, in order.
    pub spans: Vec<ExtentSpan>,
}

impl ValueLogRecord {
    /// Encodes the object.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        codec::put_u64(&mut out, self.id.0);
        codec::put_u32(&mut out, self.keyspace.0);
        codec::put_u32(&mut out, self.incarnation);
        codec::put_u32(&mut out, u32_of(self.spans.len()));
        for span in &self.spans {
            codec::put_u64(&mut out, span.first_page);
            codec::put_u32(&mut out, span.page_count);
        }
        out
    }

    /// Decodes an object.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(bytes);
        let (id, keyspace) = (RunId(reader.u64()?), KeyspaceId(reader.u32()?));
        let (incarnation, count) = (reader.u32()?, reader.u32()?);
        let mut spans = Vec::new();
        for _ in 0..count {
            let span = ExtentSpan { first_page: reader.u64()?, page_count: reader.u32()? };
            if span.page_count == 0 {
                return Err(Damage("a value log has an extent without pages"));
            }
            spans.push(span);
        }
        reader.finish()?;
        let pages = spans.iter().try_fold(0u32, |sum, span| sum.checked_add(span.page_count));
        if pages.is_none_or(|pages| pages == 0) {
            return Err(Damage("a value log has an invalid length"));
        }
        Ok(Self { id, keyspace, incarnation, spans })
    }

    /// Returns its space as a run of unknown length, for reading its contents after a crash.
    pub fn as_run(&self) -> RunRef {
        let pages = self.spans.iter().map(|span| span.page_count).sum();
        RunRef {
            id: self.id,
            keyspace: self.keyspace,
            incarnation: self.incarnation,
            newest_seqno: Seqno(0),
            spans: self.spans.clone(),
            data_pages: pages,
            footer_page: pages,
            footer_pages: 0,
            entries: 0,
            tombstones: 0,
            user_bytes: 0,
            keys: KeyEnds::of(&[], &u32::MAX.to_be_bytes()),
            spare_end: 0,
            has_continued_values: true,
            replaced: None,
        }
    }
}
