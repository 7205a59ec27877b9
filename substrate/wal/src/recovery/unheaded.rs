//! Distinguishes a segment that was prepared and never used from one that lost its header.
//!
//! A segment gets its name and its space on the device ahead of its use. After a crash, some file systems
//! expose stale bytes in that space: noise, and above all the log's own older segments, whose blocks had just
//! been freed.
//!
//! **Invariants**
//! - The header is durable before a record is written and before the file grows. So a record that only this
//!   segment can have held, or a longer file with bytes in it, proves that it had a header.
//! - An incarnation assigns each seqno to one record. So a record of the segment's writer with a seqno below
//!   the next expected one is from an older segment.
//! - If the writer of the segment is unknown, any byte behind the header page counts as a proof.

use testudo_base::{Incarnation, Opening, Result, StoreId, planted};

use crate::{
    recovery::evidence::LogEvidence,
    segment::{
        reader::SegmentReader,
        store::INITIAL_BYTES,
        wal_format::{SEGMENT_HEADER_BYTES, SegmentHeader, record_salt},
    },
};

/// A segment whose first page is not its header.
pub(crate) struct UnheadedSegment {
    pub(crate) store_id: StoreId,
    pub(crate) number: u64,
    /// A valid header of another segment in place of its own.
    pub(crate) claim: Option<SegmentHeader>,
    /// The incarnation read before it, and that incarnation's next seqno.
    pub(crate) chain: Option<(Incarnation, u64)>,
}

impl UnheadedSegment {
    /// Whether something proves that the segment had a header.
    pub(crate) fn was_used(&self, reader: &mut SegmentReader, evidence: &LogEvidence) -> Result<bool> {
        if planted!("lost-header-overlooked") {
            return Ok(false);
        }
        // No seqno is this large: this only checks for bytes.
        if !reader.scan_tail(SEGMENT_HEADER_BYTES, 0, u64::MAX)?.has_bytes {
            return Ok(false);
        }
        let writer = evidence.openings.as_ref().map(|known| Opening::writer_of(known, self.number));
        let Some(Some(writer)) = writer else { return Ok(true) };
        if reader.end() > INITIAL_BYTES || planted!("stale-blocks-refused") {
            return Ok(true);
        }
        let expected = self.chain.filter(|(incarnation, _)| *incarnation == writer);
        let expected = expected.map_or(0, |(_, next_seqno)| next_seqno);
        Ok(reader.has_record(record_salt(self.store_id, writer), expected)? || self.is_misplaced(reader)?)
    }

    /// Whether the file is a whole segment of another number, store or copy of the store. For older segments
    /// of this store, stale blocks may show both header and records.
    fn is_misplaced(&self, reader: &mut SegmentReader) -> Result<bool> {
        let Some(claim) = self.claim else { return Ok(false) };
        if claim.store_id == self.store_id && claim.number < self.number {
            return Ok(false);
        }
        reader.has_record(record_salt(claim.store_id, claim.incarnation), 0)
    }
}

#[cfg(test)]
mod tests;
