//! Reads the log back: the longest prefix of commits without a hole, or an error if that is less than was
//! durable.
//!
//! **Invariants**
//! - Commits are delivered in order, each seqno at most once, unless a commit is found unbacked. Nothing is
//!   written.
//! - After the end of the prefix, the rest of the log is searched for a proof that the missing commit had
//!   been durable. A proof is a valid record or segment header of the same incarnation that states it. With a
//!   proof it is `Corruption`, without one it is the torn tail that a crash leaves.
//! - Evidence from the rest of the store counts as well ([`LogEvidence`]): how far the log reaches, and which
//!   incarnation wrote each segment. A log that builds on edits missing from the manifest does not belong to
//!   it.
//! - A segment without a header of its own was prepared and never used, whatever bytes it holds, unless
//!   something in it proves that it was used ([`UnheadedSegment`]).
//! - A new incarnation continues the log at the end found by the recovery before it. Its segment headers
//!   state that end, and replay must find it there again. It may repeat commits that were read before.
//! - Every length is checked against the remaining bytes before anything is allocated.

use std::path::Path;

use testudo_base::{
    Error, Incarnation, Opening, PAGE_BYTES, Result, Seqno, StoreId, checksum::checksum64, num::u64_of,
    planted, sync::Arc,
};
use testudo_env::Env;

use crate::{
    recovery::{drain::DrainedTail, evidence::LogEvidence, unheaded::UnheadedSegment},
    segment::{
        reader::SegmentReader,
        store::{SegmentInfo, list_segments},
        wal_format::{
            RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader, record_salt,
            segment_file_name,
        },
    },
};

/// A commit read back from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// First seqno of the commit.
    pub first_seqno: Seqno,
    /// Number of its seqnos, at least one.
    pub seqno_count: u32,
    /// The engine's payload.
    pub payload: &'a [u8],
    /// Position: segment number, and offset in the segment.
    pub place: (u64, u64),
}

/// The receiver's verdict on a delivered commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The commit is accepted.
    Taken,
    /// Data that it refers to is missing: treated as if the record were invalid.
    Unbacked,
}

impl From<()> for Verdict {
    fn from((): ()) -> Self {
        Self::Taken
    }
}

/// Position at which a crash cut the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Name of the file.
    pub file: String,
    /// Offset of the first byte that was not read as a record.
    pub offset: u64,
    /// Number of later segments that hold only data after the cut.
    pub ignored_segments: u64,
}

/// Result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayEnd {
    /// Last seqno of the prefix; 0 if there is no log. Skipped commits count.
    pub last_seqno: Seqno,
    /// Greatest segment number in the directory; one less than the first one requested if there is none.
    pub last_segment: u64,
    /// The torn tail, if there was one.
    pub torn_tail: Option<TornTail>,
    /// Segment and offset of the unbacked record that ended the prefix. Before anything is written,
    /// [`crate::cut_segment`] must remove it.
    pub unbacked: Option<(u64, u64)>,
    /// The segments found, oldest first, for [`crate::WalStart`].
    pub segments: Vec<SegmentInfo>,
}

/// Reads the log of `store_id` and passes every commit to `deliver`, which returns a [`Verdict`] or nothing.
/// `evidence` holds the statements of the rest of the store about the log.
///
/// Errors: `Corruption` with file and offset if durable commits are damaged or missing, or the log belongs to
/// another copy of the store; `Unsupported` for another format, `Io`, and any error of `deliver`.
pub fn replay<V: Into<Verdict>>(
    env: &dyn Env,
    dir: &Path,
    store_id: StoreId,
    evidence: &LogEvidence,
    mut deliver: impl FnMut(Record<'_>) -> Result<V>,
) -> Result<ReplayEnd> {
    let deliver = |record: Record<'_>| deliver(record).map(Into::into);
    let first_segment = evidence.first_segment;
    let mut numbers = list_segments(env, dir)?;
    numbers.retain(|&number| number >= first_segment);
    for (expected, &number) in (first_segment..).zip(&numbers) {
        if number != expected {
            return Err(Error::corruption(segment_file_name(expected), 0, "the segment is missing"));
        }
    }
    let newest = numbers.last().copied().unwrap_or(first_segment.saturating_sub(1));
    let segments = Vec::new();
    let mut replay = Replay {
        store_id,
        evidence,
        deliver,
        current: 0,
        chain: None,
        stop: None,
        next_seqno: 0,
        unbacked: None,
        unused: None,
        segments,
    };
    for &number in &numbers {
        // A segment that was created ahead and comes after the tail has no header.
        replay.read_segment(SegmentReader::open(env, dir, number)?, number)?;
    }
    if let Some(tail) = &evidence.tail {
        replay.read_tail(tail)?;
    }
    replay.check_end(newest)?;
    Ok(replay.finish(newest))
}

/// The incarnation being read.
struct Chain {
    incarnation: Incarnation,
    salt: u64,
    next_seqno: u64,
}

/// Where reading stopped, and whether the next segment must continue it for a clean end.
struct Stop {
    name: String,
    offset: u64,
    has_bytes: bool,
    /// Whether a segment of the same incarnation followed that does not continue here.
    is_final: bool,
    ignored_segments: u64,
}

struct Replay<'e, F> {
    store_id: StoreId,
    evidence: &'e LogEvidence,
    deliver: F,
    /// Number of the segment being read.
    current: u64,
    chain: Option<Chain>,
    stop: Option<Stop>,
    /// First seqno that was not delivered, or was found unbacked.
    next_seqno: u64,
    unbacked: Option<(u64, u64)>,
    /// Damage reported for the first skipped segment with a foreign header.
    unused: Option<Error>,
    segments: Vec<SegmentInfo>,
}

impl<F: FnMut(Record<'_>) -> Result<Verdict>> Replay<'_, F> {
    fn read_segment(&mut self, mut reader: SegmentReader, number: u64) -> Result<()> {
        self.current = number;
        let mut info = SegmentInfo { number, first_seqno: Seqno(0), last_seqno: Seqno(0), bytes: 0 };
        let Some(header) = self.read_header(&mut reader, number)? else {
            // Created ahead of its use, then the crash. Nothing of the same incarnation can follow.
            self.segments.push(info);
            return Ok(());
        };
        // Unused segments may only precede the first one of an incarnation. `recovered_seqno + 1` is the
        // highest seqno with which an incarnation begins.
        let follows_unused = self.segments.last().is_some_and(|last| last.first_seqno.0 == 0);
        if follows_unused && !self.is_final() && header.first_seqno.0 > header.recovered_seqno.0 + 1 {
            return Err(reader.damage(0, "a segment before this one lost its header"));
        }
        let continues = match &self.chain {
            Some(chain) if chain.incarnation == header.incarnation => {
                self.continue_incarnation(&header, &mut reader)?
            }
            _ => self.begin_incarnation(&header, &reader)?,
        };
        if continues {
            info.first_seqno = header.first_seqno;
            info.bytes = self.read_records(&mut reader)?;
            info.last_seqno = Seqno(self.chain_mut().next_seqno - 1);
        }
        self.segments.push(info);
        Ok(())
    }

    /// Reads the drained tail of a reader. It is no segment of the directory.
    fn read_tail(&mut self, tail: &DrainedTail) -> Result<()> {
        let segments = std::mem::take(&mut self.segments);
        let name = segment_file_name(tail.number);
        let read = self.read_segment(SegmentReader::of_file(Arc::clone(&tail.file), name)?, tail.number);
        self.segments = segments;
        read
    }

    /// Returns the header of the segment; `None` if it was never used.
    fn read_header(&mut self, reader: &mut SegmentReader, number: u64) -> Result<Option<SegmentHeader>> {
        let found = reader.header()?;
        let why = match &found {
            Some(header) => match self.why_foreign(header, number) {
                None => {
                    self.check_header(header, reader)?;
                    return Ok(found);
                }
                Some(why) => why,
            },
            None => "the segment has records but no valid header",
        };
        let chain = self.chain.as_ref().map(|chain| (chain.incarnation, chain.next_seqno));
        let unheaded = UnheadedSegment { store_id: self.store_id, number, claim: found, chain };
        let damage = reader.damage(0, why);
        if unheaded.was_used(reader, self.evidence)? {
            return Err(damage);
        }
        if found.is_some() {
            self.unused.get_or_insert(damage);
        }
        Ok(None)
    }

    /// Returns the reason why this is not the header of segment `number`, if it is not.
    fn why_foreign(&self, header: &SegmentHeader, number: u64) -> Option<&'static str> {
        if header.store_id != self.store_id {
            return Some("the segment belongs to another store");
        }
        if header.number != number {
            return Some("the segment's name does not match its header");
        }
        if let Some(openings) = &self.evidence.openings
            && Opening::writer_of(openings, number) != Some(header.incarnation)
            && !planted!("foreign-segment-believed")
        {
            return Some("the segment belongs to another copy of the store");
        }
        None
    }

    fn check_header(&self, header: &SegmentHeader, reader: &SegmentReader) -> Result<()> {
        if header.segment_bytes > reader.end() {
            return Err(reader.damage(reader.end(), "the segment is shorter than its header says"));
        }
        self.check_edit(header.newest_edit, reader, 0)?;
        if header.first_seqno.0 == 0 || header.recovered_seqno.0 == u64::MAX {
            return Err(reader.damage(0, "the segment's header has impossible seqnos"));
        }
        if !header.segment_bytes.is_multiple_of(PAGE_BYTES) || header.segment_bytes < SEGMENT_HEADER_BYTES {
            return Err(reader.damage(0, "the segment's header has an impossible length"));
        }
        Ok(())
    }

    /// Checks that the manifest has the edit that the log states to build on.
    fn check_edit(&self, edit: u64, reader: &SegmentReader, offset: u64) -> Result<()> {
        if self.evidence.lacks_edit(edit) && !planted!("edit-note-ignored") {
            return Err(reader.damage(offset, "the log builds on an edit that the manifest does not have"));
        }
        Ok(())
    }

    /// Whether the segment continues where the incarnation's last one stopped. Otherwise it is behind a hole.
    fn continue_incarnation(&mut self, header: &SegmentHeader, reader: &mut SegmentReader) -> Result<bool> {
        let missing = self.next_seqno;
        let chain = self.chain_mut();
        let (expected, salt) = (chain.next_seqno, chain.salt);
        if header.first_seqno.0 == expected && !self.is_final() {
            return Ok(true);
        }
        let is_proof = header.durable_seqno.0 >= missing
            || reader.scan_tail(SEGMENT_HEADER_BYTES, salt, missing)?.proof_at.is_some();
        let stop = self.stop.as_mut().expect("a segment was read before");
        if is_proof || header.first_seqno.0 < expected {
            return Err(stop.damage());
        }
        stop.is_final = true;
        stop.ignored_segments += 1;
        Ok(false)
    }

    /// Checks that the incarnation begins where the log was found to end before.
    fn begin_incarnation(&mut self, header: &SegmentHeader, reader: &SegmentReader) -> Result<bool> {
        if let Some(stop) = &self.stop {
            let is_overlooked = planted!("hole-between-incarnations-overlooked");
            if header.recovered_seqno.0 + 1 > self.next_seqno && !is_overlooked {
                return Err(stop.damage());
            }
            if header.first_seqno.0 > self.next_seqno && is_overlooked {
                self.next_seqno = header.first_seqno.0;
            }
            if header.recovered_seqno.0 + 1 < self.next_seqno || header.first_seqno.0 > self.next_seqno {
                return Err(reader.damage(0, "the segment does not continue the one before it"));
            }
        } else {
            self.next_seqno = header.first_seqno.0;
        }
        let salt = record_salt(self.store_id, header.incarnation);
        self.chain = Some(Chain { incarnation: header.incarnation, salt, next_seqno: header.first_seqno.0 });
        Ok(true)
    }

    /// Reads the records of a segment up to the first invalid one; returns the bytes of the pages up to
    /// there.
    fn read_records(&mut self, reader: &mut SegmentReader) -> Result<u64> {
        let mut offset = SEGMENT_HEADER_BYTES;
        loop {
            if let Some(end) = self.read_record(reader, offset)? {
                offset = end;
                continue;
            }
            // A written buffer is zero-padded to the page. The next record must be the expected one, so
            // nothing can be missing in between.
            let page = offset.next_multiple_of(PAGE_BYTES);
            match self.read_record(reader, page)? {
                Some(end) => offset = end,
                None => break,
            }
        }
        // Report the position of the missing record, not the zeros before it.
        let page = offset.next_multiple_of(PAGE_BYTES);
        if reader.bytes_at(offset, page - offset)?.iter().all(|&byte| byte == 0) {
            offset = page;
        }
        let missing = self.next_seqno;
        let scan = reader.scan_tail(offset, self.chain_mut().salt, missing)?;
        let ignored_segments = 0;
        let stop = Stop {
            name: reader.name.clone(),
            offset,
            has_bytes: scan.has_bytes,
            is_final: false,
            ignored_segments,
        };
        if scan.proof_at.is_some() && !planted!("damage-taken-for-torn-tail") {
            return Err(stop.damage());
        }
        self.stop = Some(stop);
        Ok(page)
    }

    /// Reads the record at `offset` if it is valid and the next one of its incarnation; returns its end.
    fn read_record(&mut self, reader: &mut SegmentReader, offset: u64) -> Result<Option<u64>> {
        let chain = self.chain_mut();
        let (salt, expected) = (chain.salt, chain.next_seqno);
        let Some(header) = reader.record_header(offset, salt)? else { return Ok(None) };
        if header.first_seqno.0 != expected {
            return Ok(None);
        }
        let payload_at = offset + u64_of(RECORD_HEADER_BYTES);
        let payload = reader.bytes_at(payload_at, u64::from(header.payload_bytes))?;
        let is_checked = header.kind != RecordKind::Marker && !planted!("record-checksum-ignored");
        if is_checked && checksum64(payload, salt) != header.payload_checksum {
            return Ok(None);
        }
        let is_repeated = header.first_seqno.0 < self.next_seqno;
        if is_repeated && header.end_seqno() > self.next_seqno {
            return Err(reader.damage(offset, "the record overlaps one that was read before"));
        }
        if header.kind == RecordKind::Commit && !is_repeated {
            let (first_seqno, seqno_count) = (header.first_seqno, header.seqno_count);
            let place = (self.current, offset);
            let verdict = (self.deliver)(Record { first_seqno, seqno_count, payload, place })?;
            if verdict == Verdict::Unbacked {
                self.unbacked = Some(place);
                return Ok(None);
            }
        }
        if let Some(edit) = header.stated_edit() {
            self.check_edit(edit, reader, offset)?;
        }
        self.advance(&header);
        Ok(Some(offset + header.record_bytes()))
    }

    fn advance(&mut self, header: &RecordHeader) {
        self.chain_mut().next_seqno = header.end_seqno();
        self.next_seqno = self.next_seqno.max(header.end_seqno());
    }

    fn chain_mut(&mut self) -> &mut Chain {
        self.chain.as_mut().expect("an incarnation has begun")
    }

    fn is_final(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.is_final)
    }

    /// Checks that the log reaches as far as the evidence states.
    fn check_end(&self, newest: u64) -> Result<()> {
        let durable = self.evidence.durable_seqno.0;
        if self.next_seqno > durable || durable == 0 || planted!("lost-end-of-log-overlooked") {
            return Ok(());
        }
        if let Some(unused) = &self.unused {
            return Err(unused.clone());
        }
        let at = self.stop.as_ref().map(|stop| (stop.name.clone(), stop.offset));
        let (name, offset) =
            at.unwrap_or_else(|| (segment_file_name(newest.max(self.evidence.first_segment)), 0));
        Err(Error::corruption(name, offset, "the log ends before commits that were durable"))
    }

    fn finish(self, last_segment: u64) -> ReplayEnd {
        let torn = self.stop.filter(|stop| stop.has_bytes || stop.ignored_segments > 0);
        ReplayEnd {
            last_seqno: Seqno(self.next_seqno.saturating_sub(1)),
            last_segment,
            torn_tail: torn.map(|stop| TornTail {
                file: stop.name,
                offset: stop.offset,
                ignored_segments: stop.ignored_segments,
            }),
            unbacked: self.unbacked,
            segments: self.segments,
        }
    }
}

impl Stop {
    fn damage(&self) -> Error {
        Error::corruption(
            self.name.as_str(),
            self.offset,
            "a record that had been durable is damaged or missing",
        )
    }
}

#[cfg(test)]
mod tests;
