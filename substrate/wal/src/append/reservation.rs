//! A commit's place in the log, from the assignment of its seqnos until its bytes are stored.
//!
//! **Invariants**
//! - A reservation always ends as a valid record: filled, or skipped if it is dropped before (a panic, an
//!   error). The log waits for it, so it must not be held longer than a copy takes and must never be leaked.

use std::sync::atomic::{Ordering, compiler_fence};

use testudo_base::Seqno;

use crate::{
    append::buffer::{Claim, Stamp},
    segment::{
        tail_format::{entry_content, seal_entry},
        wal_format::{RECORD_HEADER_BYTES, RecordHeader, RecordKind, seal_record},
    },
};

/// A record of up to this size is assembled elsewhere and then copied. Its ends share cache lines with the
/// records of other threads, which write there concurrently; so they are touched only once.
const COPIED_BYTES: usize = 256;

/// A commit's seqnos and its place in the log. Dropping it unfilled abandons the commit, not its seqnos.
#[derive(Debug)]
pub struct Reservation {
    claim: Claim,
    payload_bytes: usize,
    header: RecordHeader,
    salt: u64,
    is_filled: bool,
}

impl Reservation {
    pub(crate) fn new(claim: Claim, stamp: Stamp, durable_seqno: Seqno, salt: u64) -> Self {
        let Stamp { payload_bytes, first_seqno, seqno_count } = stamp;
        debug_assert!(seqno_count > 0, "a commit has at least one seqno");
        debug_assert!(durable_seqno < first_seqno, "unwritten records are not durable");
        debug_assert!(claim.len() >= RECORD_HEADER_BYTES + payload_bytes, "the payload fits");
        let kind = RecordKind::Commit;
        let header = RecordHeader {
            kind,
            payload_bytes: 0,
            payload_checksum: 0,
            first_seqno,
            seqno_count,
            durable_seqno,
        };
        Self { claim, payload_bytes, header, salt, is_filled: false }
    }

    /// First seqno of the commit.
    #[inline]
    pub fn first_seqno(&self) -> Seqno {
        self.header.first_seqno
    }

    /// Last seqno of the commit, which is also its position for [`crate::Wal::sync_to`].
    #[inline]
    pub fn last_seqno(&self) -> Seqno {
        Seqno(self.header.end_seqno() - 1)
    }

    /// Copies the payload into the log. REQUIRES: it has the reserved length.
    #[inline]
    pub fn write(self, payload: &[u8]) {
        debug_assert_eq!(payload.len(), self.payload_bytes, "the reserved length");
        self.fill(|bytes| bytes.copy_from_slice(payload));
    }

    /// Lets `encode` write the values that belong to value logs, if the log keeps them until the record is in
    /// a segment. Must be called before [`Reservation::fill`]; `encode` must set every byte.
    #[inline]
    pub fn fill_values(&mut self, encode: impl FnOnce(&mut [u8])) {
        let salt = self.salt;
        if let Some(entry) = self.claim.entry_mut() {
            debug_assert!(!self.is_filled, "values are set before the payload");
            let content = entry_content(entry);
            let content_bytes = content.len();
            encode(content);
            seal_entry(entry, content_bytes, salt);
        }
    }

    /// Lets `encode` write the payload in place. It must set every byte: the previous contents are arbitrary.
    #[inline]
    pub fn fill(mut self, encode: impl FnOnce(&mut [u8])) {
        // The process may end between any two instructions: everything the record refers to is stored first.
        compiler_fence(Ordering::Release);
        let range = RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + self.payload_bytes;
        if self.claim.len() > COPIED_BYTES {
            encode(&mut self.claim.bytes_mut()[range]);
            self.seal();
            return;
        }
        let mut copy = [0; COPIED_BYTES];
        let record = &mut copy[..self.claim.len()];
        encode(&mut record[range]);
        seal_record(record, self.payload_bytes, self.salt, self.header);
        let place = self.claim.bytes_mut();
        place[RECORD_HEADER_BYTES..].copy_from_slice(&record[RECORD_HEADER_BYTES..]);
        compiler_fence(Ordering::Release);
        place[..RECORD_HEADER_BYTES].copy_from_slice(&record[..RECORD_HEADER_BYTES]);
        self.is_filled = true;
    }

    fn seal(&mut self) {
        seal_record(self.claim.bytes_mut(), self.payload_bytes, self.salt, self.header);
        self.is_filled = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_filled {
            self.header.kind = RecordKind::Skipped;
            // The header was stamped when the range was claimed.
            self.claim.bytes_mut()[RECORD_HEADER_BYTES..].fill(0);
            self.seal();
        }
    }
}
