//! Finds damage in the files of an open store, page by page and record by record, bypassing all caches.
//!
//! The checked data cannot change: a run is pinned, and a sealed log segment and the committed part of the
//! manifest never change. A file that was properly removed during the check is no finding.
//!
//! **Invariants**
//! - Damage is collected, never returned as an error; it does not hide other damage.
//! - Nothing is written and no lock of the store is held over I/O.

use std::fmt;

use testudo_base::{Error, ErrorKind, PAGE_BYTES, Result, num::u64_of, sync::Arc};
use testudo_run::{PageWalk, Run};
use testudo_storage::{
    DATA_FILE, ManifestSection, SUPERBLOCK_FILE, SlotContents, inspect_manifest, inspect_superblock,
    manifest_file_name, read_file,
};
use testudo_store::{Store, commits::batch_format};
use testudo_wal::{HeaderContents, RecordKind, SegmentInfo, SegmentSection, segment_file_name};

/// Maximum repeated reads of the superblock. A slot may be written while it is read, so only damage in every
/// read counts.
const SLOT_READS: usize = 3;

/// Damage, or an entry that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Finding {
    /// Name of the file in the store's directory; empty if no single file is at fault.
    pub file: String,
    /// Byte offset of the damage.
    pub offset: u64,
    /// Length of the damage in bytes, if known; 0 if the finding is not about bytes.
    pub bytes: u64,
    /// Name of the affected keyspace.
    pub keyspace: Option<String>,
    /// Description of the problem.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{} at offset {}: ", self.file, self.offset)?;
        }
        f.write_str(&self.what)?;
        match &self.keyspace {
            Some(keyspace) => write!(f, " (keyspace {keyspace:?})"),
            None => Ok(()),
        }
    }
}

impl From<&Error> for Finding {
    /// Converts an error of opening the store, for a report.
    fn from(error: &Error) -> Self {
        let (file, offset) = error.location().unwrap_or(("", 0));
        let text = error.to_string();
        let what = text.strip_prefix(&format!("{file} at offset {offset}: ")).unwrap_or(&text);
        Self { offset, ..Self::about(file, None, what.to_owned()) }
    }
}

impl Finding {
    /// A finding about `file`, at no known offset.
    pub(crate) fn about(file: &str, keyspace: Option<&str>, what: String) -> Self {
        Self { file: file.to_owned(), offset: 0, bytes: 0, keyspace: keyspace.map(str::to_owned), what }
    }

    /// Converts a `Corruption` error to a finding; returns other errors.
    pub(crate) fn of_error(error: Error, file: &str, keyspace: Option<&str>) -> Result<Self> {
        if error.kind() != ErrorKind::Corruption {
            return Err(error);
        }
        let location = error.location().map(|(file, offset)| (file.to_owned(), offset));
        let (file, offset) = location.unwrap_or_else(|| (file.to_owned(), 0));
        let (keyspace, what) = (keyspace.or(error.keyspace()).map(str::to_owned), error.message().to_owned());
        Ok(Self { file, offset, bytes: 0, keyspace, what })
    }
}

/// Verifies the pages of a run from page `from` on. After each stretch, calls `passed` with the bytes read,
/// the next page and the number of findings; an error of `passed` stops the walk.
pub(crate) fn check_run_pages(
    run: &Arc<Run>,
    keyspace: &str,
    from: u32,
    findings: &mut Vec<Finding>,
    passed: &mut dyn FnMut(u64, u32, usize) -> Result<()>,
) -> Result<()> {
    let mut walk = PageWalk::new(run.reference(), run.data().store(), from);
    let mut single_until = 0;
    let mut read = |page: u32, buffer: &mut [u8]| run.read_pages(page, buffer);
    let mut notes = PageNotes { run, keyspace, findings };
    loop {
        let page = walk.next_page();
        if page >= single_until {
            walk.set_stretch(None);
        }
        match walk.next_stretch(&mut read) {
            Ok(None) => return Ok(()),
            Ok(Some(stretch)) => {
                for block in stretch.blocks {
                    if let Some(why) = block.damage {
                        notes.add(block.page, block.pages, why);
                    } else if !block.is_padded_with_zeros {
                        notes.add(block.page, block.pages, "bytes after the payload are not zeros");
                    }
                }
                let bytes = u64_of(stretch.bytes.len());
                debug_assert!(bytes > 0 && bytes.is_multiple_of(PAGE_BYTES), "whole pages");
                debug_assert!(walk.next_page() > page, "the walk moves forward");
                passed(bytes, walk.next_page(), notes.findings.len())?;
            }
            Err(error) if page < single_until => {
                notes.add(page, 1, &format!("cannot be read: {error}"));
                walk.skip(1);
                passed(PAGE_BYTES, page + 1, notes.findings.len())?;
            }
            Err(_) => {
                // Some page of the stretch cannot be read: retry page by page.
                single_until = page.saturating_add(64);
                walk.set_stretch(Some(1));
            }
        }
    }
}

/// Findings about pages of a run.
struct PageNotes<'a> {
    run: &'a Run,
    keyspace: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl PageNotes<'_> {
    fn add(&mut self, page: u32, pages: u32, what: &str) {
        debug_assert!(pages > 0, "a finding is about some page");
        let physical = self.run.reference().locate(page).map_or(0, |(physical, _)| physical);
        let (offset, bytes) = (physical.saturating_mul(PAGE_BYTES), u64::from(pages) * PAGE_BYTES);
        // Consecutive pages with the same problem become one finding.
        if let Some(last) = self.findings.last_mut()
            && (last.file.as_str(), last.offset + last.bytes, last.what.as_str()) == (DATA_FILE, offset, what)
        {
            last.bytes += bytes;
            return;
        }
        let (file, keyspace, what) = (DATA_FILE.to_owned(), Some(self.keyspace.to_owned()), what.to_owned());
        self.findings.push(Finding { file, offset, bytes, keyspace, what });
    }
}

/// Checks superblock, manifest and sealed log segments as stored on the device; returns the bytes read.
pub(crate) fn check_files(store: &Store, findings: &mut Vec<Finding>) -> Result<u64> {
    let mut slots = inspect_superblock(&*store.env, &store.directory)?;
    for _ in 0..SLOT_READS {
        if slots.iter().any(|slot| matches!(slot, SlotContents::Damaged(_))) {
            slots = inspect_superblock(&*store.env, &store.directory)?;
        }
    }
    // Opening for writing repairs a slot that a crash has torn; opening read-only leaves it.
    let may_be_torn = store.log.wal.is_none() && !store.manifest.was_closed();
    for (slot, contents) in (0..).zip(slots).filter(|_| !may_be_torn) {
        if let SlotContents::Damaged(what) = contents {
            let (file, offset) = (SUPERBLOCK_FILE.to_owned(), slot * PAGE_BYTES);
            findings.push(Finding { file, offset, bytes: PAGE_BYTES, keyspace: None, what });
        }
    }
    let mut bytes = 2 * PAGE_BYTES + check_manifest(store, findings)?;
    let segments = store.log.wal.as_ref().map(|wal| wal.sealed_segments()).unwrap_or_default();
    for segment in segments.iter().filter(|segment| segment.bytes > 0) {
        bytes += check_segment(store, segment, findings)?;
    }
    Ok(bytes)
}

fn check_manifest(store: &Store, findings: &mut Vec<Finding>) -> Result<u64> {
    loop {
        let before = store.manifest.stats();
        let name = manifest_file_name(before.number);
        let read = read_file(&*store.env, &store.directory, &name);
        if store.manifest.stats().number != before.number {
            // The manifest was replaced during the read.
            continue;
        }
        let mut bytes = match read {
            Err(error) if error.kind() == ErrorKind::Io => {
                findings.push(unread(&name, &error));
                return Ok(0);
            }
            read => read?,
        };
        bytes.truncate(testudo_base::num::usize_of(before.file_bytes));
        let length = u64_of(bytes.len());
        let mut found = |offset: u64, bytes: u64, what: String| {
            findings.push(Finding { file: name.clone(), offset, bytes, keyspace: None, what });
        };
        let (mut next_edit, mut end) = (None, 0);
        inspect_manifest(&bytes, store.id, before.number, &mut |part| match part {
            ManifestSection::Record { offset, bytes, edit_number, .. } => {
                if let Some(next) = next_edit.filter(|next| *next != edit_number) {
                    found(offset, bytes, format!("edit {next} is missing"));
                }
                next_edit = Some(edit_number.saturating_add(1));
                end = (offset + bytes).next_multiple_of(PAGE_BYTES);
            }
            ManifestSection::Damage { offset, bytes, why } => found(offset, bytes, why.to_owned()),
        });
        if end < before.file_bytes {
            found(end, before.file_bytes - end, "the file ends before edits that were durable".to_owned());
        }
        return Ok(length);
    }
}

fn check_segment(store: &Store, segment: &SegmentInfo, findings: &mut Vec<Finding>) -> Result<u64> {
    let name = segment_file_name(segment.number);
    let mut found = Vec::new();
    let mut note = |offset: u64, bytes: u64, what: &str| {
        let (file, what) = (name.clone(), what.to_owned());
        found.push(Finding { file, offset, bytes, keyspace: None, what });
    };
    let mut next = segment.first_seqno.0;
    let mut strange = None;
    let header = testudo_wal::inspect_segment(&*store.env, &store.directory, segment.number, &mut |part| {
        let (offset, header, payload) = match part {
            SegmentSection::Record { offset, header, payload } => (offset, header, payload),
            SegmentSection::Damage { offset, bytes } => {
                strange.get_or_insert((offset, bytes));
                return;
            }
        };
        if next > segment.last_seqno.0 {
            return;
        }
        // Between consecutive commits a power loss may have torn the end of a page.
        if let Some((offset, bytes)) = strange.take().filter(|_| header.first_seqno.0 != next) {
            note(offset, bytes, "not a log record");
        }
        let decodes = |payload: &[u8]| {
            batch_format::decode::<testudo_base::codec::Damage>(payload, |_, _| Ok(())).is_ok()
        };
        match payload {
            _ if header.first_seqno.0 != next => note(offset, 0, "commits before this record are missing"),
            None => note(offset, u64::from(header.payload_bytes), "the checksum of a commit does not match"),
            Some(payload) if header.kind == RecordKind::Commit && !decodes(payload) => {
                note(offset, u64::from(header.payload_bytes), "a commit does not decode");
            }
            Some(_) => {}
        }
        next = header.first_seqno.0 + u64::from(header.seqno_count);
    });
    let header = match header {
        Ok(header) => header,
        // Released during the check.
        Err(_) if !is_live(store, segment.number) => return Ok(0),
        Err(error) if error.kind() == ErrorKind::Io => {
            findings.push(unread(&name, &error));
            return Ok(0);
        }
        Err(error) => return Err(error),
    };
    match header {
        HeaderContents::Header(header) if header.store_id == store.id && header.number == segment.number => {}
        HeaderContents::Damaged(what) => note(0, PAGE_BYTES, &what),
        _ => note(0, PAGE_BYTES, "the header belongs to another segment"),
    }
    if next <= segment.last_seqno.0 {
        let (offset, bytes) = strange.unwrap_or_default();
        note(offset, bytes, "the segment ends before commits that were durable");
    }
    if is_live(store, segment.number) {
        findings.append(&mut found);
    }
    Ok(segment.bytes)
}

fn unread(file: &str, error: &Error) -> Finding {
    let what = format!("cannot be read: {error}");
    Finding { file: file.to_owned(), offset: 0, bytes: 0, keyspace: None, what }
}

fn is_live(store: &Store, number: u64) -> bool {
    store.log.wal.as_ref().is_some_and(|wal| wal.segments().iter().any(|segment| segment.number == number))
}
