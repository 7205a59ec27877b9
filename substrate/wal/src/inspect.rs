//! Inspects a segment of the log as untrusted bytes: for checks of files in use and for people after damage.
//!
//! **Invariants**
//! - Damage is part of the result; only failing operating-system calls are errors.
//! - After damage, inspection continues at the next record of the same incarnation.

use std::path::Path;

use testudo_base::{
    Error, PAGE_BYTES, PAGE_SIZE, Result,
    checksum::checksum64,
    num::{u64_of, usize_of},
    sync::Arc,
};
use testudo_env::{AlignedBuffer, Env, File, OpenMode, OpenOptions};

use crate::segment::wal_format::{
    RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, SegmentHeader, record_salt, segment_file_name,
};

/// Contents of a segment's first page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderContents {
    /// A valid header.
    Header(SegmentHeader),
    /// All zeros: the segment was created ahead and never used.
    Empty,
    /// Anything else, with the reason.
    Damaged(String),
}

/// A section of a segment behind the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentSection<'a> {
    /// A record with a valid header.
    Record {
        /// Offset of the record.
        offset: u64,
        /// The decoded header.
        header: RecordHeader,
        /// The engine's payload; `None` if its checksum does not match.
        payload: Option<&'a [u8]>,
    },
    /// Bytes, not all zeros, that form no record.
    Damage {
        /// Offset of the first damaged byte.
        offset: u64,
        /// Number of bytes up to the next record or the end.
        bytes: u64,
    },
}

/// Reads the header of a segment.
pub fn inspect_segment_header(env: &dyn Env, dir: &Path, number: u64) -> Result<HeaderContents> {
    open(env, dir, number).map(|(_, header)| header)
}

/// Walks a segment. Without a valid header, nothing behind it can be read.
pub fn inspect_segment(
    env: &dyn Env,
    dir: &Path,
    number: u64,
    visit: &mut dyn FnMut(SegmentSection<'_>),
) -> Result<HeaderContents> {
    let (segment, header) = open(env, dir, number)?;
    if let HeaderContents::Header(header) = &header {
        let salt = record_salt(header.store_id, header.incarnation);
        let mut walk = Walk { file: &*segment.file, end: segment.bytes, salt, damage: None, visit };
        walk.run().map_err(|error| Error::io(segment_file_name(number), error))?;
    }
    Ok(header)
}

struct OpenSegment {
    file: Arc<dyn File>,
    /// Length in whole pages.
    bytes: u64,
}

fn open(env: &dyn Env, dir: &Path, number: u64) -> Result<(OpenSegment, HeaderContents)> {
    let name = segment_file_name(number);
    let failed = |error| Error::io(name.as_str(), error);
    let options = OpenOptions { mode: OpenMode::Read, direct: true };
    let file = env.open(&dir.join(&name), options).map_err(failed)?;
    let bytes = file.len().map_err(failed)? & !(PAGE_BYTES - 1);
    let page = read(&*file, 0, SEGMENT_HEADER_BYTES.min(bytes)).map_err(failed)?;
    let header = if page.iter().all(|&byte| byte == 0) {
        HeaderContents::Empty
    } else {
        match SegmentHeader::decode(&page, &name) {
            Ok(Some(header)) => HeaderContents::Header(header),
            Ok(None) => HeaderContents::Damaged("neither magic nor checksum fit a header".to_owned()),
            Err(error) => HeaderContents::Damaged(error.to_string()),
        }
    };
    Ok((OpenSegment { file, bytes }, header))
}

fn read(file: &dyn File, offset: u64, bytes: u64) -> std::io::Result<AlignedBuffer> {
    let mut buffer = AlignedBuffer::unfilled(usize_of(bytes));
    file.read_at(offset, &mut buffer)?;
    Ok(buffer)
}

struct Walk<'w> {
    file: &'w dyn File,
    end: u64,
    salt: u64,
    /// Start of the bytes that form no record.
    damage: Option<u64>,
    visit: &'w mut dyn FnMut(SegmentSection<'_>),
}

/// Bytes inspected per read.
const WINDOW_BYTES: u64 = 256 << 10;

impl Walk<'_> {
    fn run(&mut self) -> std::io::Result<()> {
        let mut at = SEGMENT_HEADER_BYTES;
        while at < self.end {
            let start = at & !(PAGE_BYTES - 1);
            if self.file.next_data(start) > start + WINDOW_BYTES {
                // A header may span the end of the hole, so inspection starts one page before it.
                let data = self.file.next_data(start).min(self.end) & !(PAGE_BYTES - 1);
                at = if data == self.end { data } else { data - PAGE_BYTES };
                continue;
            }
            let window = read(self.file, start, WINDOW_BYTES.min(self.end - start))?;
            let window: &[u8] = &window;
            let mut inside = usize_of(at - start);
            // A header cut by the end of the window is inspected again in the next one.
            let is_last = start + u64_of(window.len()) >= self.end;
            while inside + RECORD_HEADER_BYTES <= window.len() {
                // No header lies within a page of zeros: the kind in a header is not zero.
                if inside.is_multiple_of(PAGE_SIZE) && window[inside..].first_chunk() == Some(&[0; PAGE_SIZE])
                {
                    inside += PAGE_SIZE - RECORD_HEADER_BYTES + 8;
                    continue;
                }
                let header =
                    window[inside..].first_chunk().and_then(|head| RecordHeader::decode(head, self.salt));
                let offset = start + u64_of(inside);
                match header.filter(|header| header.record_bytes() <= self.end - offset) {
                    Some(header) => {
                        self.end_damage(offset);
                        self.record(offset, header)?;
                        inside += usize_of(header.record_bytes());
                    }
                    None => {
                        if window[inside..inside + 8] != [0; 8] {
                            self.damage.get_or_insert(offset);
                        }
                        inside += 8;
                    }
                }
            }
            at = start + u64_of(inside);
            if is_last && inside < window.len() {
                if window[inside..].iter().any(|&byte| byte != 0) {
                    self.damage.get_or_insert(at);
                }
                at = self.end;
            }
        }
        self.end_damage(self.end);
        Ok(())
    }

    fn record(&mut self, offset: u64, header: RecordHeader) -> std::io::Result<()> {
        let payload_at = offset + u64_of(RECORD_HEADER_BYTES);
        let start = payload_at & !(PAGE_BYTES - 1);
        let bytes = usize_of(u64::from(header.payload_bytes));
        let skipped = usize_of(payload_at - start);
        let buffer = read(self.file, start, u64_of(skipped + bytes).next_multiple_of(PAGE_BYTES))?;
        let payload = &buffer[skipped..skipped + bytes];
        let is_valid = checksum64(payload, self.salt) == header.payload_checksum || bytes == 0;
        (self.visit)(SegmentSection::Record { offset, header, payload: is_valid.then_some(payload) });
        Ok(())
    }

    fn end_damage(&mut self, end: u64) {
        if let Some(offset) = self.damage.take() {
            (self.visit)(SegmentSection::Damage { offset, bytes: end - offset });
        }
    }
}
