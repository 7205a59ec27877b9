//! Appends whole pages of records to the current segment and switches to the next one.
//!
//! **Invariants**
//! - Owned by one thread at a time (the lock around it is the right to write), so that the order of the calls
//!   is the order of the log.
//! - `position` is a multiple of the page and only grows: no page of records is written twice. Zeros are
//!   written only ahead of `position`.
//! - `unsynced` holds every file written since it was last handed to a sync, oldest first.
//! - A log that continues older segments creates none of its own until there is something to write.

use std::sync::Arc;

use testudo_base::{
    Error, Incarnation, PAGE_BYTES, Result, Seqno, StoreId,
    num::{u64_of, usize_of},
    planted,
};
use testudo_env::AlignedBuffer;

use crate::{
    recovery::evidence::DurabilityListener,
    segment::{
        store::{ALLOCATION_BYTES_MAX, INITIAL_BYTES, SegmentFile, SegmentStore, reserve_ahead},
        wal_format::{
            RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader, record_salt,
        },
    },
};

/// Zeros written at once ahead of small synced commits. Each sync after a write into unwritten space costs a
/// metadata update of the file system. With zeros, there is one update per this many bytes, or per current
/// segment size if that is smaller.
const ZERO_AHEAD_BYTES: u64 = 512 << 10;
/// A round of syncing that wrote at most this much counts as small.
const SMALL_ROUND_BYTES: u64 = 64 << 10;
/// Zeros are written ahead after this many small rounds in a row; bulk loads never reach it.
const SMALL_ROUNDS_BEFORE_ZEROS: u32 = 8;

/// Identity of the log, for the headers of its segments.
#[derive(Clone, Debug)]
pub(crate) struct LogIdentity {
    pub(crate) store_id: StoreId,
    /// Source of the newest manifest edit.
    pub(crate) listener: Arc<dyn DurabilityListener>,
    pub(crate) incarnation: Incarnation,
    pub(crate) recovered_seqno: Seqno,
}

/// Bytes and calls written so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteCounts {
    pub(crate) bytes_written: u64,
    pub(crate) zero_bytes: u64,
    pub(crate) header_syncs: u64,
    pub(crate) segments_begun: u64,
}

impl WriteCounts {
    fn record_segment(&mut self) {
        self.bytes_written += SEGMENT_HEADER_BYTES;
        self.header_syncs += 1;
        self.segments_begun += 1;
    }
}

#[derive(Debug)]
pub(crate) struct SegmentWriter {
    identity: LogIdentity,
    store: Arc<SegmentStore>,
    /// `None` before the first segment.
    current: Option<Arc<SegmentFile>>,
    /// Number of the next segment.
    next_number: u64,
    position: u64,
    /// Space on the device is reserved up to here.
    allocated_until: u64,
    zeroed_until: u64,
    small_rounds: u32,
    bytes_in_round: u64,
    unsynced: Vec<Arc<SegmentFile>>,
    zeros: Option<AlignedBuffer>,
    written_seqno: Seqno,
    /// Greatest durable seqno stated in the log itself.
    attested_seqno: Seqno,
    /// Newest manifest edit stated there.
    attested_edit: u64,
    /// An edit marker could not be written; it is written before the next records.
    owes_edit: bool,
    pub(crate) counts: WriteCounts,
}

impl SegmentWriter {
    /// A writer whose first segment will have number `next_number` and begin with `next_seqno`.
    pub(crate) fn new(
        store: Arc<SegmentStore>,
        identity: LogIdentity,
        next_number: u64,
        next_seqno: Seqno,
    ) -> Self {
        let durable = Seqno(next_seqno.0 - 1);
        Self {
            identity,
            store,
            current: None,
            next_number,
            position: SEGMENT_HEADER_BYTES,
            allocated_until: INITIAL_BYTES,
            zeroed_until: 0,
            small_rounds: 0,
            bytes_in_round: 0,
            unsynced: Vec::new(),
            zeros: None,
            written_seqno: durable,
            attested_seqno: durable,
            attested_edit: 0,
            owes_edit: false,
            counts: WriteCounts::default(),
        }
    }

    /// Creates the first segment unless there is one; its header is durable on return.
    pub(crate) fn begin(&mut self) -> Result<()> {
        if self.current.is_some() {
            return Ok(());
        }
        let first = Seqno(self.written_seqno.0 + 1);
        self.switch_segment(0, first, self.written_seqno)
    }

    /// Writes whole pages of records, `first..=last`, to the current segment or, if they do not fit, to the
    /// next one.
    pub(crate) fn append(
        &mut self,
        pages: &[u8],
        (first, last): (Seqno, Seqno),
        durable: Seqno,
    ) -> Result<()> {
        debug_assert!(first.0 == self.written_seqno.0 + 1 && last.0 + 1 >= first.0, "the log has no gaps");
        let bytes = u64_of(pages.len());
        self.begin()?;
        if self.owes_edit {
            self.append_edit(durable)?;
            self.owes_edit = false;
        }
        if self.position + bytes > self.bytes_max() {
            self.switch_segment(SEGMENT_HEADER_BYTES + bytes, first, durable)?;
        }
        self.write_pages(pages)?;
        self.written_seqno = last;
        self.store.advance(last, self.position);
        Ok(())
    }

    /// Maximum length of the current segment. After its first record, the current segment size applies.
    fn bytes_max(&self) -> u64 {
        let is_begun = self.position > SEGMENT_HEADER_BYTES;
        let Some(current) = &self.current else { return 0 };
        if is_begun { current.bytes.min(self.store.segment_bytes()) } else { current.bytes }
    }

    /// Writes a marker that states everything up to `durable` as durable, unless the log states it already.
    /// It exposes damage to the last synced commits, which no later record would prove otherwise.
    pub(crate) fn append_marker(&mut self, durable: Seqno) -> Result<()> {
        if durable <= self.attested_seqno {
            return Ok(());
        }
        self.write_marker(durable)
    }

    /// Writes a marker that states which manifest edit the log builds on from here, unless it is stated
    /// already.
    pub(crate) fn append_edit(&mut self, durable: Seqno) -> Result<()> {
        if self.identity.listener.newest_edit() <= self.attested_edit || planted!("edit-not-noted") {
            return Ok(());
        }
        self.write_marker(durable)
    }

    /// Like [`SegmentWriter::append_edit`], but postponed until the next records if it cannot be written now.
    pub(crate) fn append_edit_soon(&mut self, durable: Seqno) -> Result<()> {
        match self.append_edit(durable) {
            Err(error) if error.is_transient() => {
                self.owes_edit = true;
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Without room for the marker, or without a segment yet, the header of the next segment states the same.
    fn write_marker(&mut self, durable: Seqno) -> Result<()> {
        if self.position + PAGE_BYTES > self.bytes_max() {
            return Ok(());
        }
        debug_assert!(durable <= self.written_seqno, "durable records were written");
        let newest_edit = self.identity.listener.newest_edit();
        let mut page = AlignedBuffer::for_bytes(PAGE_BYTES);
        let marker = RecordHeader {
            kind: RecordKind::Marker,
            payload_bytes: 0,
            payload_checksum: newest_edit,
            first_seqno: Seqno(self.written_seqno.0 + 1),
            seqno_count: 0,
            durable_seqno: durable,
        };
        let salt = record_salt(self.identity.store_id, self.identity.incarnation);
        marker.encode(&mut page[..RECORD_HEADER_BYTES], salt);
        self.write_pages(&page)?;
        (self.attested_seqno, self.attested_edit) = (durable, newest_edit);
        self.store.advance(self.written_seqno, self.position);
        Ok(())
    }

    /// Ends the writes of a round of syncing and returns the files to sync, oldest first.
    pub(crate) fn take_unsynced(&mut self) -> Result<Vec<Arc<SegmentFile>>> {
        if std::mem::take(&mut self.bytes_in_round) <= SMALL_ROUND_BYTES {
            self.small_rounds = self.small_rounds.saturating_add(1);
        } else {
            self.small_rounds = 0;
        }
        if self.small_rounds >= SMALL_ROUNDS_BEFORE_ZEROS && self.position >= self.zeroed_until {
            self.write_zeros_ahead()?;
        }
        Ok(std::mem::take(&mut self.unsynced))
    }

    /// Number of the newest segment; if there is none yet, the one before the first.
    pub(crate) fn newest_number(&self) -> u64 {
        self.next_number - 1
    }

    /// Whether there is a segment.
    pub(crate) fn has_begun(&self) -> bool {
        self.current.is_some()
    }

    /// Number of the segment to create ahead, once the current one is half full.
    pub(crate) fn segment_to_prepare(&self) -> Option<u64> {
        (self.has_begun() && self.position > self.bytes_max() / 2).then_some(self.next_number)
    }

    fn write_pages(&mut self, pages: &[u8]) -> Result<()> {
        let bytes = u64_of(pages.len());
        debug_assert!(
            self.position.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES),
            "whole pages are written"
        );
        debug_assert!(self.position + bytes <= self.current().bytes, "the segment has room");
        self.record_unsynced();
        self.allocate_to(self.position + bytes)?;
        let current = self.current();
        let written = current.file.write_at(self.position, pages);
        written.map_err(|error| Error::io(current.name.as_str(), error))?;
        self.position += bytes;
        debug_assert!(self.position <= self.current().bytes, "records end within their segment");
        self.bytes_in_round += bytes;
        self.counts.bytes_written += bytes;
        Ok(())
    }

    /// Reserves space on the device up to `end`, plus a step that grows with the segment. Returns `false` if
    /// the device is full.
    fn allocate_to(&mut self, end: u64) -> Result<bool> {
        if end <= self.allocated_until {
            return Ok(true);
        }
        let step = self.allocated_until.min(ALLOCATION_BYTES_MAX);
        let until = (self.allocated_until + step).max(end).min(self.bytes_max().max(end));
        let current = self.current();
        let reserved = reserve_ahead(&*current.file, self.allocated_until, until - self.allocated_until);
        let is_reserved = reserved.map_err(|error| Error::io(current.name.as_str(), error))?;
        if is_reserved {
            self.allocated_until = until;
        }
        Ok(is_reserved)
    }

    /// Truncates the current segment to its contents, but not below its initial length. Only saves space: a
    /// failure has no effect.
    pub(crate) fn give_back_space(&mut self) {
        if let Some(current) = &self.current {
            let _ = current.file.set_len(self.position.max(current.initial_bytes));
        }
    }

    /// REQUIRES: there is a segment.
    fn current(&self) -> &Arc<SegmentFile> {
        self.current.as_ref().expect("a segment is begun before it is written to")
    }

    fn record_unsynced(&mut self) {
        let current = self.current();
        if !self.unsynced.last().is_some_and(|last| Arc::ptr_eq(last, current)) {
            let current = Arc::clone(current);
            self.unsynced.push(current);
        }
    }

    fn switch_segment(&mut self, bytes_min: u64, first: Seqno, durable: Seqno) -> Result<()> {
        let size = (self.next_number, bytes_min);
        let newest_edit = self.identity.listener.newest_edit();
        let seqnos = (first, durable);
        self.current = Some(begin_segment(&self.store, &self.identity, size, seqnos, newest_edit)?);
        self.next_number += 1;
        self.attested_edit = newest_edit;
        self.counts.record_segment();
        self.position = SEGMENT_HEADER_BYTES;
        self.allocated_until = INITIAL_BYTES;
        self.zeroed_until = 0;
        Ok(())
    }

    fn write_zeros_ahead(&mut self) -> Result<()> {
        let ahead = self.position.clamp(INITIAL_BYTES, ZERO_AHEAD_BYTES);
        let bytes = ahead.min(self.bytes_max().saturating_sub(self.position));
        if bytes == 0 {
            return Ok(());
        }
        if !self.allocate_to(self.position + bytes)? {
            return Ok(());
        }
        self.record_unsynced();
        let zeros = self.zeros.get_or_insert_with(|| AlignedBuffer::for_bytes(ZERO_AHEAD_BYTES));
        let current = self.current.as_ref().expect("rounds are counted when they have written");
        let written = current.file.write_at(self.position, &zeros[..usize_of(bytes)]);
        match written.map_err(|error| Error::io(current.name.as_str(), error)) {
            // Records can be written without zeros ahead.
            Err(error) if error.is_transient() => return Ok(()),
            outcome => outcome?,
        }
        self.zeroed_until = self.position + bytes;
        self.counts.zero_bytes += bytes;
        self.counts.bytes_written += bytes;
        Ok(())
    }
}

fn begin_segment(
    store: &SegmentStore,
    identity: &LogIdentity,
    (number, bytes_min): (u64, u64),
    (first_seqno, durable_seqno): (Seqno, Seqno),
    newest_edit: u64,
) -> Result<Arc<SegmentFile>> {
    let segment = store.begin_segment(number, bytes_min, first_seqno, |segment| {
        let header = SegmentHeader {
            store_id: identity.store_id,
            number,
            incarnation: identity.incarnation,
            first_seqno,
            durable_seqno,
            recovered_seqno: identity.recovered_seqno,
            segment_bytes: segment.initial_bytes,
            newest_edit,
        };
        let mut page = AlignedBuffer::for_bytes(SEGMENT_HEADER_BYTES);
        header.encode(&mut page);
        // The file's length is durable from here on, too.
        let sync = || if planted!("segment-header-unsynced") { Ok(()) } else { segment.file.sync() };
        let written = segment.file.write_at(0, &page).and_then(|()| sync());
        written.map_err(|error| Error::io(segment.name.as_str(), error))
    })?;
    Ok(Arc::new(segment))
}
