//! Reads a segment through a window of large aligned reads, for replay.
//!
//! **Invariants**
//! - Never reads past the end of the file, and never allocates more than its length.

use std::{path::Path, sync::Arc};

use testudo_base::{
    Error, PAGE_BYTES, PAGE_SIZE, Result,
    num::{u64_of, usize_of},
    planted,
};
use testudo_env::{AlignedBuffer, Env, File, OpenMode, OpenOptions};

use crate::segment::wal_format::{
    RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, SegmentHeader, segment_file_name,
};

const WINDOW_BYTES: u64 = 256 << 10;

pub(crate) struct SegmentReader {
    file: Arc<dyn File>,
    pub(crate) name: String,
    /// Where reading stops: the length of the file in whole pages.
    end: u64,
    window: AlignedBuffer,
    window_start: u64,
    window_bytes: usize,
    /// Unreadable sectors count as zeros.
    is_lenient: bool,
}

/// Contents of a segment from some offset on.
pub(crate) struct TailScan {
    /// Offset of a record that is the requested proof.
    pub(crate) proof_at: Option<u64>,
    /// Whether any byte is not zero.
    pub(crate) has_bytes: bool,
}

impl SegmentReader {
    pub(crate) fn open(env: &dyn Env, dir: &Path, number: u64) -> Result<Self> {
        let name = segment_file_name(number);
        let failed = |error| Error::io(name.as_str(), error);
        let options = OpenOptions { mode: OpenMode::Read, direct: true };
        let file = env.open(&dir.join(&name), options).map_err(failed)?;
        Self::of_file(file, name)
    }

    /// A reader of the segment in `file`, wherever the file is located.
    pub(crate) fn of_file(file: Arc<dyn File>, name: String) -> Result<Self> {
        let end = file.len().map_err(|error| Error::io(name.as_str(), error))? & !(PAGE_BYTES - 1);
        let window = AlignedBuffer::zeroed(0);
        Ok(Self { file, name, end, window, window_start: 0, window_bytes: 0, is_lenient: false })
    }

    /// Opens a segment and reads whatever is readable.
    pub(crate) fn open_lenient(env: &dyn Env, dir: &Path, number: u64) -> Result<Self> {
        Ok(Self { is_lenient: true, ..Self::open(env, dir, number)? })
    }

    /// The offset at which reading stops.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Reads the header page; `None` if it is not valid.
    pub(crate) fn header(&mut self) -> Result<Option<SegmentHeader>> {
        let page = self.bytes_at(0, SEGMENT_HEADER_BYTES.min(self.end))?.to_vec();
        SegmentHeader::decode(&page, &self.name)
    }

    /// Reads the record header at `offset`, if there is one and the record fits into the segment.
    pub(crate) fn record_header(&mut self, offset: u64, salt: u64) -> Result<Option<RecordHeader>> {
        let header_bytes = u64_of(RECORD_HEADER_BYTES);
        let left = self.end.saturating_sub(offset);
        if left < header_bytes {
            return Ok(None);
        }
        let bytes = self.bytes_at(offset, header_bytes)?.first_chunk().expect("the full header was read");
        let header = RecordHeader::decode(bytes, salt);
        Ok(header.filter(|header| header.record_bytes() <= left))
    }

    /// Returns the bytes at `offset`. REQUIRES: they lie within the segment.
    pub(crate) fn bytes_at(&mut self, offset: u64, bytes: u64) -> Result<&[u8]> {
        let end = offset + bytes;
        assert!(end <= self.end, "reads stay within the segment");
        if offset < self.window_start || end > self.window_start + u64_of(self.window_bytes) {
            self.load(offset, end)?;
        }
        let start = usize_of(offset - self.window_start);
        Ok(&self.window[start..start + usize_of(bytes)])
    }

    /// The first page from `offset` on that may hold data; the end if there is none. Holes are skipped
    /// without reading.
    pub(crate) fn behind_hole(&self, offset: u64) -> u64 {
        if planted!("holes-of-the-log-read") {
            return offset;
        }
        offset.max(self.file.next_data(offset).min(self.end) & !(PAGE_BYTES - 1))
    }

    /// Searches the segment from `offset`, a multiple of 8, for a record at any position that was reserved
    /// when `seqno` was durable.
    pub(crate) fn scan_tail(&mut self, offset: u64, salt: u64, seqno: u64) -> Result<TailScan> {
        self.scan(offset, salt, |header| header.durable_seqno.0 >= seqno)
    }

    /// Whether there is a record with `seqno` or a later one, at any position behind the header page.
    pub(crate) fn has_record(&mut self, salt: u64, seqno: u64) -> Result<bool> {
        let scan = self.scan(SEGMENT_HEADER_BYTES, salt, |header| header.end_seqno() > seqno)?;
        Ok(scan.proof_at.is_some())
    }

    /// Searches the segment from `offset`, a multiple of 8, for a record that satisfies `is_proof`.
    fn scan(
        &mut self,
        mut offset: u64,
        salt: u64,
        is_proof: impl Fn(&RecordHeader) -> bool,
    ) -> Result<TailScan> {
        let mut scan = TailScan { proof_at: None, has_bytes: false };
        while offset < self.end {
            // Data already in the window is not read again.
            let window_end = self.window_start + u64_of(self.window_bytes);
            let here = window_end.saturating_sub(offset);
            let has_header = offset >= self.window_start && here >= u64_of(RECORD_HEADER_BYTES);
            if !has_header {
                // A header that begins before the end of a hole may continue behind it.
                let overlap = u64_of(RECORD_HEADER_BYTES - 8);
                offset = offset.max(self.behind_hole(offset).saturating_sub(overlap));
            }
            let left = self.end - offset;
            let wanted = if has_header { here } else { WINDOW_BYTES };
            let bytes = self.bytes_at(offset, wanted.min(left))?;
            let mut at = 0;
            while at < bytes.len() {
                // Most of a segment is prepared space. The kind in a header is not zero, so no header lies
                // within a page of zeros.
                if at.is_multiple_of(PAGE_SIZE) && bytes[at..].first_chunk() == Some(&[0; PAGE_SIZE]) {
                    at += PAGE_SIZE - RECORD_HEADER_BYTES + 8;
                    continue;
                }
                scan.has_bytes |= bytes[at..at + 8] != [0; 8];
                if let Some(head) = bytes[at..].first_chunk()
                    && let Some(header) = RecordHeader::decode(head, salt)
                    && is_proof(&header)
                {
                    scan.proof_at = Some(offset + u64_of(at));
                    return Ok(scan);
                }
                at += 8;
            }
            // A header across the end of this chunk is found at the start of the next one.
            let overlap = if u64_of(bytes.len()) < left { RECORD_HEADER_BYTES - 8 } else { 0 };
            offset += u64_of(bytes.len() - overlap);
        }
        Ok(scan)
    }

    pub(crate) fn damage(&self, offset: u64, message: &str) -> Error {
        Error::corruption(self.name.as_str(), offset, message)
    }

    fn load(&mut self, offset: u64, end: u64) -> Result<()> {
        let start = offset & !(PAGE_BYTES - 1);
        let bytes =
            usize_of((end - start).next_multiple_of(PAGE_BYTES).max(WINDOW_BYTES).min(self.end - start));
        self.window_bytes = 0;
        if bytes > self.window.len() {
            self.window = AlignedBuffer::unfilled(bytes);
        }
        let read = self.file.read_at(start, &mut self.window[..bytes]);
        if let Err(error) = read {
            if !self.is_lenient {
                return Err(Error::io(self.name.as_str(), error));
            }
            for (offset, page) in (start..).step_by(PAGE_SIZE).zip(self.window[..bytes].chunks_mut(PAGE_SIZE))
            {
                if self.file.read_at(offset, page).is_err() {
                    page.fill(0);
                }
            }
        }
        self.window_start = start;
        self.window_bytes = bytes;
        Ok(())
    }
}
