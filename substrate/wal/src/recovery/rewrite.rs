//! After a crash, data read back from the log may be in caches only: a failed fsync leaves its pages marked
//! clean, and no later fsync would write them. So segments that are not proven durable are copied to fresh
//! files. These are synced and renamed over the originals before their contents are shown to any caller.
//!
//! **Invariants**
//! - Bytes are copied unchanged; replay interprets them. At every instant a segment's name refers to the
//!   whole segment.
//! - A segment is skipped only if a later segment states that everything in it was durable.

use std::path::Path;

use testudo_base::{
    Error, ErrorKind, PAGE_BYTES, PAGE_SIZE, Result,
    num::{u64_of, usize_of},
    sync::Arc,
};
use testudo_env::{AlignedBuffer, Env, File, OpenMode, OpenOptions};

use crate::segment::{
    store::list_segments,
    wal_format::{SEGMENT_HEADER_BYTES, SegmentHeader, segment_file_name, segment_number},
};

const CHUNK_BYTES: u64 = 256 << 10;
/// Suffix of the name of a copy in progress.
pub(crate) const COPY_SUFFIX: &str = ".copy";

/// Makes the segments from `first_segment` on durable, by copying those whose durability is not proven;
/// returns the bytes copied. On a full device they are only synced. Called before replay for a store that was
/// not closed.
///
/// Errors: `Io`. Nothing is lost; the call can be repeated.
pub fn rewrite_unproven(env: &dyn Env, dir: &Path, first_segment: u64) -> Result<u64> {
    remove_leftovers(env, dir)?;
    let mut numbers = list_segments(env, dir)?;
    numbers.retain(|&number| number >= first_segment);
    let headers = numbers.iter().map(|&number| read_header(env, dir, number)).collect::<Result<Vec<_>>>()?;
    let mut copied = 0;
    for (index, &number) in numbers.iter().enumerate() {
        if is_proven(&headers[index + 1..]) {
            continue;
        }
        copied += match copy(env, dir, number, u64::MAX) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                remove_leftovers(env, dir)?;
                sync(env, dir, number)?;
                0
            }
            outcome => outcome?,
        };
    }
    env.sync_dir(dir).map_err(|error| Error::io(dir.display().to_string(), error))?;
    Ok(copied)
}

/// Removes the contents of a segment from `offset` on: a record for which the verdict was
/// [`crate::Verdict::Unbacked`], and everything after it. Durable on return.
///
/// Errors: `Io`; the call can be repeated.
pub fn cut_segment(env: &dyn Env, dir: &Path, number: u64, offset: u64) -> Result<()> {
    match copy(env, dir, number, offset) {
        Err(error) if error.kind() == ErrorKind::OutOfSpace => {
            remove_leftovers(env, dir)?;
            cut_in_place(env, dir, number, offset)?;
        }
        outcome => _ = outcome?,
    }
    env.sync_dir(dir).map_err(|error| Error::io(dir.display().to_string(), error))
}

/// On a full device, erases only the record itself; nothing behind it is read without it.
fn cut_in_place(env: &dyn Env, dir: &Path, number: u64, offset: u64) -> Result<()> {
    let name = segment_file_name(number);
    let failed = |error| Error::io(name.as_str(), error);
    let file = open(env, dir, &name, OpenMode::Write)?;
    let page_start = offset & !(PAGE_BYTES - 1);
    let mut page = AlignedBuffer::for_bytes(PAGE_BYTES);
    file.read_at(page_start, &mut page).map_err(failed)?;
    page[usize_of(offset - page_start)..].fill(0);
    file.write_at(page_start, &page).and_then(|()| file.sync()).map_err(failed)
}

/// Whether a later header states that everything before the first of them was durable.
fn is_proven(later: &[Option<SegmentHeader>]) -> bool {
    let Some(Some(next)) = later.first() else { return false };
    later.iter().flatten().any(|header| header.durable_seqno.0.saturating_add(1) >= next.first_seqno.0)
}

fn remove_leftovers(env: &dyn Env, dir: &Path) -> Result<()> {
    let entries = env.list_dir(dir).map_err(|error| Error::io(dir.display().to_string(), error))?;
    for entry in entries {
        if entry.name.strip_suffix(COPY_SUFFIX).and_then(segment_number).is_some() {
            env.remove_file(&dir.join(&entry.name)).map_err(|error| Error::io(entry.name, error))?;
        }
    }
    Ok(())
}

fn open(env: &dyn Env, dir: &Path, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
    env.open(&dir.join(name), OpenOptions { mode, direct: true }).map_err(|error| Error::io(name, error))
}

fn read_header(env: &dyn Env, dir: &Path, number: u64) -> Result<Option<SegmentHeader>> {
    let name = segment_file_name(number);
    let file = open(env, dir, &name, OpenMode::Read)?;
    let failed = |error| Error::io(name.as_str(), error);
    if file.len().map_err(failed)? < SEGMENT_HEADER_BYTES {
        return Ok(None);
    }
    let mut page = AlignedBuffer::for_bytes(SEGMENT_HEADER_BYTES);
    file.read_at(0, &mut page).map_err(failed)?;
    // The header of another segment is stale data in a prepared one: it proves nothing.
    Ok(SegmentHeader::decode(&page, &name)?.filter(|header| header.number == number))
}

fn sync(env: &dyn Env, dir: &Path, number: u64) -> Result<()> {
    let name = segment_file_name(number);
    open(env, dir, &name, OpenMode::Write)?.sync().map_err(|error| Error::io(name, error))
}

/// Copies a segment up to `limit` without its holes, syncs the copy, and renames it to the segment's name.
fn copy(env: &dyn Env, dir: &Path, number: u64, limit: u64) -> Result<u64> {
    let name = segment_file_name(number);
    let copy_name = format!("{name}{COPY_SUFFIX}");
    let from = open(env, dir, &name, OpenMode::Read)?;
    let to = open(env, dir, &copy_name, OpenMode::CreateNew)?;
    let failed = |error| Error::io(copy_name.as_str(), error);
    let length = from.len().map_err(|error| Error::io(name.as_str(), error))?;
    to.set_len(length).map_err(failed)?;
    let mut buffer = AlignedBuffer::unfilled(usize_of(CHUNK_BYTES.min(length)));
    let mut copied = 0;
    // A partial last page holds nothing that replay would read.
    let end = length & !(PAGE_BYTES - 1);
    let mut next = 0;
    while next < end {
        let offset = next.max(from.next_data(next).min(end) & !(PAGE_BYTES - 1));
        next = offset + CHUNK_BYTES;
        if offset == end {
            break;
        }
        let chunk = &mut buffer[..usize_of(CHUNK_BYTES.min(end - offset))];
        from.read_at(offset, chunk).map_err(|error| Error::io(name.as_str(), error))?;
        let kept = usize_of(limit.saturating_sub(offset)).min(chunk.len());
        chunk[kept..].fill(0);
        let used = chunk.as_chunks::<PAGE_SIZE>().0.iter().rposition(|page| *page != [0; PAGE_SIZE]);
        let used = used.map_or(0, |last| (last + 1) * PAGE_SIZE);
        if used > 0 {
            to.write_at(offset, &chunk[..used]).map_err(failed)?;
            copied += u64_of(used);
        }
    }
    to.sync().map_err(failed)?;
    env.rename(&dir.join(&copy_name), &dir.join(&name)).map_err(failed)?;
    Ok(copied)
}

#[cfg(test)]
mod tests;
