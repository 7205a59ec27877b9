//! Reads every sound commit that is left of a log, also behind damage, for salvage.
//!
//! Replay stops at damage; this goes on. It still does not invent: what only a crash cut off, without a proof that it had
//! been durable, ends its epoch here as it does there, and what a later recovery has declared void stays void.
//!
//! Two passes: [`survey_log`] finds segments, epochs and the greatest seqno that anything proves to have been durable;
//! [`LogSurvey::read`] hands on the commits.
//!
//! **Invariants**
//! - Commits are delivered in the order of their seqnos, each at most once.
//! - Every gap between them that had been durable is told as a hole.
//! - Nothing is written. Sectors that cannot be read count as damage.

use std::path::Path;

use testudo_base::{Error, PAGE_BYTES, Result, Seqno, StoreId, checksum::checksum64, num::u64_of, sync::Arc};
use testudo_env::Env;

use crate::{
    Record,
    segment_reader::SegmentReader,
    segment_store::list_segments,
    wal_format::{
        RECORD_ALIGNMENT, RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader,
        claimed_epoch, record_salt, segment_file_name,
    },
};

/// What is known of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyedSegment {
    /// Number in the file's name.
    pub number: u64,
    /// The store, if the header is sound.
    pub store: Option<StoreId>,
    /// Length of the file.
    pub bytes: u64,
    header: Option<SegmentHeader>,
    epoch: Option<u64>,
    /// The greatest seqno that a record or the header says to be durable.
    durable: u64,
    has_records: bool,
}

/// Commits that had been durable and are not there any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHole {
    /// The file where the first of them should be.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// The first seqno that is missing.
    pub first_seqno: Seqno,
    /// The last one.
    pub last_seqno: Seqno,
}

/// What reading comes across.
#[derive(Debug)]
pub enum LogEvent<'a> {
    /// A sound commit.
    Commit(Record<'a>),
    /// Commits are missing here.
    Hole(LogHole),
    /// So many bytes were read since the last of these.
    Progress(u64),
}

/// The segments of a log.
#[derive(Debug)]
pub struct LogSurvey {
    env: Arc<dyn Env>,
    directory: Box<Path>,
    segments: Vec<SurveyedSegment>,
}

/// Looks at the segments in `directory`.
///
/// Errors: `Unsupported` for a newer format, `Io` if a file cannot be opened.
pub fn survey_log(env: &Arc<dyn Env>, directory: &Path) -> Result<LogSurvey> {
    let mut segments = Vec::new();
    for number in list_segments(&**env, directory)? {
        let mut reader = SegmentReader::open_lenient(&**env, directory, number)?;
        // A segment whose header names another one is a misplaced file; nothing of it belongs here.
        let header =
            reader.lenient_header()?.filter(|header| header.number == number && header.first_seqno.0 > 0);
        let (store, epoch) = (header.map(|header| header.store_id), header.map(|header| header.epoch));
        let durable = header.map_or(0, |header| header.durable_seqno.0);
        let bytes = reader.end();
        segments.push(SurveyedSegment { number, store, bytes, header, epoch, durable, has_records: false });
    }
    Ok(LogSurvey { env: Arc::clone(env), directory: directory.into(), segments })
}

impl LogSurvey {
    /// The segments, oldest first.
    pub fn segments(&self) -> &[SurveyedSegment] {
        &self.segments
    }

    /// The first seqno that the log can hold, if its oldest segment tells.
    pub fn first_seqno(&self, store: StoreId) -> Option<Seqno> {
        let first = self.segments.first()?.header?;
        (first.store_id == store).then_some(first.first_seqno)
    }

    /// Hands everything of `store` after `start` to `deliver`; without a `start` the log is taken to begin with what is
    /// found of it. `proven` is a seqno that is known to have been durable.
    ///
    /// Errors: `Io` if a file cannot be opened, and whatever `deliver` returns. The end of what was delivered.
    pub fn read(
        &mut self,
        store: StoreId,
        start: Option<Seqno>,
        proven: Seqno,
        mut deliver: impl FnMut(LogEvent<'_>) -> Result<()>,
    ) -> Result<Seqno> {
        self.segments.retain(|segment| segment.store.is_none_or(|id| id == store));
        self.find_epochs(store, &mut deliver)?;
        let delivered = start.unwrap_or_default().0;
        let mut state = Reading { store, deliver, expected: 0, delivered, has_start: start.is_some() };
        let epochs = self.epochs();
        for (index, epoch) in epochs.iter().enumerate() {
            let next = epochs.get(index + 1);
            state.read_epoch(self, epoch, next, proven.0)?;
        }
        if state.delivered < proven.0 && state.has_start {
            let (first, last) = (state.delivered + 1, proven.0);
            state.hole(self.segments.last(), 0, first, last)?;
        }
        Ok(Seqno(state.delivered))
    }

    /// Finds the epochs of segments that lost their header, and what the records prove.
    fn find_epochs(
        &mut self,
        store: StoreId,
        deliver: &mut impl FnMut(LogEvent<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut known: Vec<u64> = self.segments.iter().filter_map(|segment| segment.epoch).collect();
        known.dedup();
        for segment in &mut self.segments {
            let mut reader = SegmentReader::open_lenient(&*self.env, &self.directory, segment.number)?;
            let candidates = match segment.epoch {
                Some(epoch) => vec![epoch],
                None => possible_epochs(&mut reader, store, &known)?,
            };
            for epoch in candidates {
                let salt = record_salt(store, epoch);
                let (mut offset, mut found) = (SEGMENT_HEADER_BYTES, false);
                while let Some((at, header)) = next_header(&mut reader, offset, salt)? {
                    found = true;
                    segment.durable = segment.durable.max(header.durable_seqno.0);
                    offset = at + header.record_bytes();
                }
                if found {
                    (segment.epoch, segment.has_records) = (Some(epoch), true);
                    break;
                }
            }
            deliver(LogEvent::Progress(segment.bytes))?;
        }
        Ok(())
    }

    fn epochs(&self) -> Vec<Epoch> {
        let mut epochs: Vec<Epoch> = Vec::new();
        for (index, segment) in self.segments.iter().enumerate() {
            let Some(id) = segment.epoch else { continue };
            let recovered = segment.header.map(|header| header.recovered_seqno.0);
            match epochs.last_mut() {
                Some(last) if last.id == id => {
                    last.segments.push(index);
                    last.durable = last.durable.max(segment.durable);
                    last.recovered = last.recovered.or(recovered);
                }
                _ => {
                    let first = segment.header.map(|header| header.first_seqno.0);
                    let (segments, durable) = (vec![index], segment.durable);
                    epochs.push(Epoch { id, segments, durable, recovered, first });
                }
            }
        }
        epochs
    }
}

/// The segments of one opening of the log.
struct Epoch {
    id: u64,
    segments: Vec<usize>,
    /// The greatest seqno that is said to be durable.
    durable: u64,
    /// Where the epochs before it end.
    recovered: Option<u64>,
    /// Where it begins, if its first segment tells.
    first: Option<u64>,
}

struct Reading<F> {
    store: StoreId,
    deliver: F,
    /// The next seqno of the epoch that is being read; 0 before its first segment.
    expected: u64,
    /// The last seqno that was delivered or told missing.
    delivered: u64,
    /// Whether `delivered` means anything yet.
    has_start: bool,
}

impl<F: FnMut(LogEvent<'_>) -> Result<()>> Reading<F> {
    /// Reads an epoch; `next` is the one after it.
    fn read_epoch(
        &mut self,
        survey: &LogSurvey,
        epoch: &Epoch,
        next: Option<&Epoch>,
        proven: u64,
    ) -> Result<()> {
        let salt = record_salt(self.store, epoch.id);
        // Where the recovery after this epoch found its end: later commits never counted.
        let cutoff = next.and_then(|next| next.recovered);
        let durable = epoch.durable.max(proven).max(epoch.recovered.unwrap_or(0));
        let proof = cutoff.unwrap_or(durable);
        self.expected = 0;
        for &index in &epoch.segments {
            let segment = &survey.segments[index];
            let mut reader = SegmentReader::open_lenient(&*survey.env, &survey.directory, segment.number)?;
            let mut offset = SEGMENT_HEADER_BYTES;
            if let Some(header) = segment.header
                && !self.reach(segment, 0, header.first_seqno.0, proof)?
            {
                break;
            }
            while let Some((at, header)) = next_header(&mut reader, offset, salt)? {
                if cutoff.is_some_and(|cutoff| header.first_seqno.0 > cutoff)
                    || !self.reach(segment, offset, header.first_seqno.0, proof)?
                {
                    return Ok(());
                }
                offset = self.read_record(&mut reader, at, &header, salt)?;
            }
            (self.deliver)(LogEvent::Progress(segment.bytes))?;
        }
        // The next epoch may begin with commits of this one, repeated.
        let end = next.and_then(|next| next.first).map_or(proof, |first| proof.min(first.saturating_sub(1)));
        if self.expected > 0 && self.expected <= end {
            let last = epoch.segments.last().map(|&index| &survey.segments[index]);
            let first = self.expected;
            self.hole(last, 0, first, end)?;
        }
        Ok(())
    }

    /// Something begins with `first_seqno`: what is missing before it is a hole if it had been durable; otherwise it is
    /// the end of the epoch, and the answer is `false`.
    fn reach(
        &mut self,
        segment: &SurveyedSegment,
        offset: u64,
        first_seqno: u64,
        proof: u64,
    ) -> Result<bool> {
        if self.expected == 0 {
            // An epoch repeats commits, continues the one before it, or stands behind a hole.
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

    /// Delivers the record at `at` unless it is older than what was delivered; returns where the next may stand.
    fn read_record(
        &mut self,
        reader: &mut SegmentReader,
        at: u64,
        header: &RecordHeader,
        salt: u64,
    ) -> Result<u64> {
        let end = at + header.record_bytes();
        if header.end_seqno() < self.expected {
            return Ok(end);
        }
        let payload = reader.bytes_at(at + u64_of(RECORD_HEADER_BYTES), u64::from(header.payload_bytes))?;
        if header.kind == RecordKind::Commit && checksum64(payload, salt) != header.payload_checksum {
            // Its seqnos stay missing; the next sound record tells whether they had been durable.
            return Ok(at + u64_of(RECORD_ALIGNMENT));
        }
        if header.kind == RecordKind::Commit && header.first_seqno.0 > self.delivered {
            let (first_seqno, seqno_count) = (header.first_seqno, header.seqno_count);
            (self.deliver)(LogEvent::Commit(Record { first_seqno, seqno_count, payload }))?;
        }
        self.expected = self.expected.max(header.end_seqno());
        self.delivered = self.delivered.max(header.end_seqno().saturating_sub(1));
        Ok(end)
    }
}

/// Epochs that a segment without a sound header may belong to: its neighbours', the one that its header page still
/// states, and, if one byte of that is wrong, the one under which the first record makes sense.
fn possible_epochs(reader: &mut SegmentReader, store: StoreId, known: &[u64]) -> Result<Vec<u64>> {
    let mut epochs = known.to_vec();
    let page = reader.bytes_at(0, SEGMENT_HEADER_BYTES.min(reader.end()))?;
    let Some(claimed) = claimed_epoch(page) else { return Ok(epochs) };
    epochs.push(claimed);
    for byte in 0..8 {
        for value in 1..=255u64 {
            let epoch = claimed ^ (value << (8 * byte));
            if reader.record_header(SEGMENT_HEADER_BYTES, record_salt(store, epoch))?.is_some() {
                epochs.push(epoch);
            }
        }
    }
    Ok(epochs)
}

/// The first valid record header at or after `offset`, a multiple of 8, and where it stands.
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
        offset += if is_empty_page { PAGE_BYTES } else { u64_of(RECORD_ALIGNMENT) };
    }
    Ok(None)
}

/// So that a caller can name what it cannot read at all.
impl From<&LogHole> for Error {
    fn from(hole: &LogHole) -> Self {
        let message = format!("commits {} to {} are missing", hole.first_seqno, hole.last_seqno);
        Error::corruption(hole.file.as_str(), hole.offset, message)
    }
}

#[cfg(test)]
mod tests;
