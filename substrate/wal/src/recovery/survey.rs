//! Reads every valid commit left in a log, even behind damage, for salvage.
//!
//! Replay stops at damage; the survey continues. It still invents nothing. As in replay, a cut by a crash
//! without a proof of durability ends the incarnation, and whatever a later recovery declared void stays
//! void.
//!
//! Two passes: [`survey_log`] finds segments and [`LogSurvey::scan`] incarnations, the greatest seqno proven
//! durable, and the newest manifest edit; [`LogSurvey::read`] delivers the commits.
//!
//! **Invariants**
//! - Commits are delivered in seqno order, each at most once.
//! - Every gap between them that had been durable is reported as a hole.
//! - Nothing is written. Unreadable sectors count as damage.

use std::path::Path;

use testudo_base::{
    Error, Incarnation, Opening, PAGE_BYTES, Result, Seqno, StoreId, checksum::checksum64, num::u64_of,
    planted, sync::Arc,
};
use testudo_env::Env;

use crate::{
    LogEvidence, Record,
    recovery::drain::DrainedTail,
    segment::{
        reader::SegmentReader,
        store::list_segments,
        wal_format::{
            RECORD_ALIGNMENT, RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES,
            SegmentHeader, claimed_incarnation, record_salt, segment_file_name,
        },
    },
};

/// Findings about a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyedSegment {
    /// Number in the file's name.
    pub number: u64,
    /// The store, if the header is valid.
    pub store: Option<StoreId>,
    /// Length of the file.
    pub bytes: u64,
    header: Option<SegmentHeader>,
    incarnation: Option<Incarnation>,
    /// The greatest seqno stated as durable by a record or the header.
    durable: u64,
    /// The newest manifest edit stated by a marker or the header.
    edit: u64,
    has_records: bool,
}

/// Commits that had been durable and are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHole {
    /// The file that should hold the first of them.
    pub file: String,
    /// Offset in it.
    pub offset: u64,
    /// First missing seqno.
    pub first_seqno: Seqno,
    /// Last missing seqno.
    pub last_seqno: Seqno,
}

/// An event during reading.
#[derive(Debug)]
pub enum LogEvent<'a> {
    /// A valid commit.
    Commit(Record<'a>),
    /// Commits are missing here.
    Hole(LogHole),
    /// Bytes read since the last progress event.
    Progress(u64),
}

/// The segments of a log.
#[derive(Debug)]
pub struct LogSurvey {
    env: Arc<dyn Env>,
    directory: Box<Path>,
    segments: Vec<SurveyedSegment>,
    tail: Option<DrainedTail>,
}

/// Surveys the segments in `directory`.
///
/// Errors: `Unsupported` for a newer format, `Io` if a file cannot be opened.
pub fn survey_log(env: &Arc<dyn Env>, directory: &Path) -> Result<LogSurvey> {
    let mut segments = Vec::new();
    for number in list_segments(&**env, directory)? {
        segments.push(look_at(SegmentReader::open_lenient(&**env, directory, number)?, number)?);
    }
    Ok(LogSurvey { env: Arc::clone(env), directory: directory.into(), segments, tail: None })
}

fn look_at(mut reader: SegmentReader, number: u64) -> Result<SurveyedSegment> {
    // A segment whose header names another one is a misplaced file; none of its contents belong here.
    let header = reader.header()?.filter(|header| header.number == number && header.first_seqno.0 > 0);
    let salt = header.map(|header| record_salt(header.store_id, header.incarnation));
    let has_records = salt.map_or(Ok(false), |salt| reader.has_record(salt, 0))?;
    let (store, incarnation) =
        (header.map(|header| header.store_id), header.map(|header| header.incarnation));
    Ok(SurveyedSegment {
        number,
        store,
        bytes: reader.end(),
        header,
        incarnation,
        durable: header.map_or(0, |header| header.durable_seqno.0),
        edit: header.map_or(0, |header| header.newest_edit),
        has_records,
    })
}

impl SurveyedSegment {
    /// Whether it has records: otherwise it may never have been used.
    pub fn has_records(&self) -> bool {
        self.has_records
    }
}

impl LogSurvey {
    /// Adds the tail of the log as its newest segment. It replaces a segment with the same number that was
    /// created ahead of its use.
    ///
    /// Errors: `Io`.
    pub fn add_tail(&mut self, tail: Option<DrainedTail>) -> Result<()> {
        if let Some(tail) = &tail {
            self.segments.retain(|segment| segment.number != tail.number);
            let reader = SegmentReader::of_file(Arc::clone(&tail.file), segment_file_name(tail.number))?;
            self.segments.push(look_at(reader, tail.number)?);
        }
        self.tail = tail;
        Ok(())
    }

    fn open(&self, number: u64) -> Result<SegmentReader> {
        match self.tail.as_ref().filter(|tail| tail.number == number) {
            Some(tail) => SegmentReader::of_file(Arc::clone(&tail.file), segment_file_name(number)),
            None => SegmentReader::open_lenient(&*self.env, &self.directory, number),
        }
    }

    /// The segments, oldest first.
    pub fn segments(&self) -> &[SurveyedSegment] {
        &self.segments
    }

    /// The first seqno that the log can hold, if its oldest segment states it.
    pub fn first_seqno(&self, store: StoreId) -> Option<Seqno> {
        let first = self.segments.first()?.header?;
        (first.store_id == store).then_some(first.first_seqno)
    }

    /// The newest manifest edit that the log states to build on, as far as it was scanned.
    pub fn newest_edit(&self) -> u64 {
        self.segments.iter().map(|segment| segment.edit).max().unwrap_or_default()
    }

    /// Drops segments of incarnations that `evidence` does not list, and reports problems of the needed
    /// segments: each may have lost commits without any other trace. REQUIRES: the log was scanned.
    pub fn compare(&mut self, evidence: &LogEvidence) -> Vec<String> {
        let mut findings = Vec::new();
        let is_needed = |segment: &SurveyedSegment| segment.number >= evidence.first_segment;
        if let Some(openings) = &evidence.openings {
            self.segments.retain(|segment| {
                let writer = Opening::writer_of(openings, segment.number);
                let is_foreign = segment.incarnation.is_some() && segment.incarnation != writer;
                // Otherwise it was never used and shows stale contents of its blocks.
                let is_whole = segment.header.is_some() && segment.has_records;
                if is_foreign && is_whole && is_needed(segment) {
                    let name = segment_file_name(segment.number);
                    findings.push(format!("{name} at offset 0: it belongs to another copy of the store"));
                }
                !is_foreign
            });
        }
        for segment in self.segments.iter().filter(|segment| is_needed(segment)) {
            if segment.header.is_some_and(|header| header.segment_bytes > segment.bytes) {
                let (name, end) = (segment_file_name(segment.number), segment.bytes);
                findings.push(format!("{name} at offset {end}: the segment was cut short"));
            }
        }
        findings
    }

    /// Passes everything of `store` after `start` to `deliver`; without a `start` the log is assumed to begin
    /// with the first commit found. `proven` is a seqno known to have been durable. Returns the end of the
    /// delivered commits. REQUIRES: the log was scanned.
    ///
    /// Errors: `Io` if a file cannot be opened, and any error of `deliver`.
    pub fn read(
        &self,
        store: StoreId,
        start: Option<Seqno>,
        proven: Seqno,
        deliver: impl FnMut(LogEvent<'_>) -> Result<()>,
    ) -> Result<Seqno> {
        let delivered = start.unwrap_or_default().0;
        let mut state = Reading { store, deliver, expected: 0, delivered, has_start: start.is_some() };
        let incarnations = self.incarnations();
        for (index, incarnation) in incarnations.iter().enumerate() {
            let next = incarnations.get(index + 1);
            state.read_incarnation(self, incarnation, next, proven.0)?;
        }
        if state.delivered < proven.0 && state.has_start {
            let (first, last) = (state.delivered + 1, proven.0);
            state.hole(self.segments.last(), 0, first, last)?;
        }
        Ok(Seqno(state.delivered))
    }

    /// Finds the incarnations of segments of `store` that lost their header, and the seqnos and edits that
    /// the records prove. Calls `advance` after each segment with its size in bytes. Drops the segments of
    /// other stores.
    ///
    /// Errors: `Io` if a file cannot be opened, and any error of `advance`.
    pub fn scan(&mut self, store: StoreId, mut advance: impl FnMut(u64) -> Result<()>) -> Result<()> {
        self.segments.retain(|segment| segment.store.is_none_or(|id| id == store));
        let mut known: Vec<Incarnation> =
            self.segments.iter().filter_map(|segment| segment.incarnation).collect();
        known.dedup();
        for index in 0..self.segments.len() {
            let mut reader = self.open(self.segments[index].number)?;
            let segment = &mut self.segments[index];
            let candidates = match segment.incarnation {
                Some(incarnation) => vec![incarnation],
                None => possible_incarnations(&mut reader, store, &known)?,
            };
            for incarnation in candidates {
                let salt = record_salt(store, incarnation);
                let (mut offset, mut found) = (SEGMENT_HEADER_BYTES, false);
                while let Some((at, header)) = next_header(&mut reader, offset, salt)? {
                    found = true;
                    segment.durable = segment.durable.max(header.durable_seqno.0);
                    segment.edit = segment.edit.max(header.stated_edit().unwrap_or_default());
                    // The length of an incomplete record does not determine where the next one begins.
                    let is_whole = payload_is_valid(&mut reader, at, &header, salt)?;
                    offset = at + if is_whole { header.record_bytes() } else { u64_of(RECORD_ALIGNMENT) };
                }
                if found {
                    (segment.incarnation, segment.has_records) = (Some(incarnation), true);
                    break;
                }
            }
            advance(segment.bytes)?;
        }
        Ok(())
    }

    fn incarnations(&self) -> Vec<Lifetime> {
        let mut incarnations: Vec<Lifetime> = Vec::new();
        for (index, segment) in self.segments.iter().enumerate() {
            let Some(id) = segment.incarnation else { continue };
            let recovered = segment.header.map(|header| header.recovered_seqno.0);
            match incarnations.last_mut() {
                Some(last) if last.id == id => {
                    last.segments.push(index);
                    last.durable = last.durable.max(segment.durable);
                    last.recovered = last.recovered.or(recovered);
                }
                _ => {
                    let first = segment.header.map(|header| header.first_seqno.0);
                    let (segments, durable) = (vec![index], segment.durable);
                    incarnations.push(Lifetime { id, segments, durable, recovered, first });
                }
            }
        }
        incarnations
    }
}

/// The segments of one opening of the log.
struct Lifetime {
    id: Incarnation,
    segments: Vec<usize>,
    /// The greatest seqno stated as durable.
    durable: u64,
    /// Last seqno of the incarnations before it.
    recovered: Option<u64>,
    /// Its first seqno, if its first segment states it.
    first: Option<u64>,
}

struct Reading<F> {
    store: StoreId,
    deliver: F,
    /// The next seqno of the incarnation being read; 0 before its first segment.
    expected: u64,
    /// The last seqno that was delivered or reported missing.
    delivered: u64,
    /// Whether `delivered` is valid.
    has_start: bool,
}

impl<F: FnMut(LogEvent<'_>) -> Result<()>> Reading<F> {
    /// Reads an incarnation; `next` is the one after it.
    fn read_incarnation(
        &mut self,
        survey: &LogSurvey,
        incarnation: &Lifetime,
        next: Option<&Lifetime>,
        proven: u64,
    ) -> Result<()> {
        let salt = record_salt(self.store, incarnation.id);
        // The end found by the recovery after this incarnation: later commits never counted.
        let cutoff = next.and_then(|next| next.recovered);
        let durable = incarnation.durable.max(proven).max(incarnation.recovered.unwrap_or(0));
        let proof = cutoff.unwrap_or(durable);
        self.expected = 0;
        for &index in &incarnation.segments {
            let segment = &survey.segments[index];
            let mut reader = survey.open(segment.number)?;
            let mut offset = SEGMENT_HEADER_BYTES;
            if let Some(header) = segment.header
                && !self.reach(segment, 0, header.first_seqno.0, proof)?
            {
                break;
            }
            while let Some((at, header)) = self.next_record(&mut reader, offset, salt)? {
                if cutoff.is_some_and(|cutoff| header.first_seqno.0 > cutoff)
                    || !self.reach(segment, offset, header.first_seqno.0, proof)?
                {
                    return Ok(());
                }
                offset = self.read_record(&mut reader, (segment.number, at), &header, salt)?;
            }
            (self.deliver)(LogEvent::Progress(segment.bytes))?;
        }
        // The next incarnation may begin by repeating commits of this one.
        let end = next.and_then(|next| next.first).map_or(proof, |first| proof.min(first.saturating_sub(1)));
        if self.expected > 0 && self.expected <= end {
            let last = incarnation.segments.last().map(|&index| &survey.segments[index]);
            let first = self.expected;
            self.hole(last, 0, first, end)?;
        }
        Ok(())
    }

    /// Returns the next record at or after `offset`, and its position. As in replay, the expected record is
    /// here or at the next page boundary: a copy of a later record in the padding between is skipped.
    /// Otherwise something is missing, and the next valid record counts.
    fn next_record(
        &self,
        reader: &mut SegmentReader,
        offset: u64,
        salt: u64,
    ) -> Result<Option<(u64, RecordHeader)>> {
        if planted!("stray-record-believed") {
            return next_header(reader, offset, salt);
        }
        for at in [offset, offset.next_multiple_of(PAGE_BYTES)] {
            if let Some(header) = reader.record_header(at, salt)?
                && header.first_seqno.0 == self.expected
                && payload_is_valid(reader, at, &header, salt)?
            {
                return Ok(Some((at, header)));
            }
        }
        let Some((at, found)) = next_header(reader, offset, salt)? else { return Ok(None) };
        // It is a copy out of order if an earlier record follows at the next page boundary.
        let boundary = at.next_multiple_of(PAGE_BYTES);
        let earlier = reader.record_header(boundary, salt)?;
        let is_stray =
            |next: &RecordHeader| (self.expected..found.first_seqno.0).contains(&next.first_seqno.0);
        Ok(Some(earlier.filter(is_stray).map_or((at, found), |next| (boundary, next))))
    }

    /// Called when a segment or record begins with `first_seqno`. A gap before it is a hole if it had been
    /// durable. Otherwise the incarnation ends there, and the result is `false`.
    fn reach(
        &mut self,
        segment: &SurveyedSegment,
        offset: u64,
        first_seqno: u64,
        proof: u64,
    ) -> Result<bool> {
        if self.expected == 0 {
            // An incarnation repeats commits, continues the previous one, or is behind a hole.
            if !std::mem::replace(&mut self.has_start, true) {
                self.delivered = first_seqno.saturating_sub(1);
            }
            self.expected = first_seqno.min(self.delivered + 1);
        }
        if first_seqno <= self.expected {
            return Ok(true);
        }
        if self.expected > proof {
            return Ok(false);
        }
        let first = self.expected;
        self.hole(Some(segment), offset, first, first_seqno - 1)?;
        self.expected = first_seqno;
        Ok(true)
    }

    fn hole(&mut self, segment: Option<&SurveyedSegment>, offset: u64, first: u64, last: u64) -> Result<()> {
        let first = first.max(self.delivered + 1);
        if first > last {
            return Ok(());
        }
        self.delivered = last;
        (self.deliver)(LogEvent::Hole(LogHole {
            file: segment.map_or_else(String::new, |segment| segment_file_name(segment.number)),
            offset,
            first_seqno: Seqno(first),
            last_seqno: Seqno(last),
        }))
    }

    /// Delivers the record at `at` unless it is older than the delivered ones; returns where the next one may
    /// be.
    fn read_record(
        &mut self,
        reader: &mut SegmentReader,
        (segment, at): (u64, u64),
        header: &RecordHeader,
        salt: u64,
    ) -> Result<u64> {
        let end = at + header.record_bytes();
        if header.end_seqno() < self.expected {
            return Ok(end);
        }
        if !payload_is_valid(reader, at, header, salt)? {
            // Its seqnos stay missing; the next valid record determines whether they had been durable.
            return Ok(at + u64_of(RECORD_ALIGNMENT));
        }
        let payload = reader.bytes_at(at + u64_of(RECORD_HEADER_BYTES), u64::from(header.payload_bytes))?;
        if header.kind == RecordKind::Commit && header.first_seqno.0 > self.delivered {
            let (first_seqno, seqno_count) = (header.first_seqno, header.seqno_count);
            let place = (segment, at);
            (self.deliver)(LogEvent::Commit(Record { first_seqno, seqno_count, payload, place }))?;
        }
        self.expected = self.expected.max(header.end_seqno());
        self.delivered = self.delivered.max(header.end_seqno().saturating_sub(1));
        Ok(end)
    }
}

/// Incarnations to which a segment without a valid header may belong: those of its neighbors, and the one
/// stated by its header page. If one byte of that is wrong, also those that make the first record valid.
fn possible_incarnations(
    reader: &mut SegmentReader,
    store: StoreId,
    known: &[Incarnation],
) -> Result<Vec<Incarnation>> {
    let mut incarnations = known.to_vec();
    let page = reader.bytes_at(0, SEGMENT_HEADER_BYTES.min(reader.end()))?;
    let Some(claimed) = claimed_incarnation(page) else { return Ok(incarnations) };
    incarnations.push(claimed);
    for byte in 0..8 {
        for value in 1..=255u64 {
            let incarnation = Incarnation(claimed.0 ^ (value << (8 * byte)));
            if reader.record_header(SEGMENT_HEADER_BYTES, record_salt(store, incarnation))?.is_some() {
                incarnations.push(incarnation);
            }
        }
    }
    Ok(incarnations)
}

/// Whether the payload of the record at `at` matches its header. A skipped commit has no payload to check.
fn payload_is_valid(reader: &mut SegmentReader, at: u64, header: &RecordHeader, salt: u64) -> Result<bool> {
    if header.kind != RecordKind::Commit {
        return Ok(true);
    }
    let payload = reader.bytes_at(at + u64_of(RECORD_HEADER_BYTES), u64::from(header.payload_bytes))?;
    Ok(checksum64(payload, salt) == header.payload_checksum)
}

/// Finds the first valid record header at or after `offset`, a multiple of 8, and its position.
fn next_header(
    reader: &mut SegmentReader,
    mut offset: u64,
    salt: u64,
) -> Result<Option<(u64, RecordHeader)>> {
    while offset + u64_of(RECORD_HEADER_BYTES) <= reader.end() {
        if let Some(header) = reader.record_header(offset, salt)? {
            return Ok(Some((offset, header)));
        }
        let is_empty_page = offset.is_multiple_of(PAGE_BYTES)
            && offset + PAGE_BYTES <= reader.end()
            && reader.bytes_at(offset, PAGE_BYTES)?.iter().all(|&byte| byte == 0);
        offset += u64_of(RECORD_ALIGNMENT);
        if is_empty_page {
            offset = reader.behind_hole(offset - u64_of(RECORD_ALIGNMENT) + PAGE_BYTES);
        }
    }
    Ok(None)
}

/// Lets a caller report a hole that it cannot tolerate.
impl From<&LogHole> for Error {
    fn from(hole: &LogHole) -> Self {
        let message = format!("commits {} to {} are missing", hole.first_seqno, hole.last_seqno);
        Error::corruption(hole.file.as_str(), hole.offset, message)
    }
}

#[cfg(test)]
mod tests;
