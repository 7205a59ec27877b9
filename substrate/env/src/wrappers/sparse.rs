//! Reads whole files whose length may be much larger than their data.
//!
//! **Invariants**
//! - Holes and pages of zeros occupy address space only, no memory.

use std::io;

use testudo_base::{
    PAGE_BYTES, PAGE_SIZE,
    num::{u64_of, usize_of},
};

use crate::{AlignedBuffer, File};

/// Bytes per read.
const CHUNK_BYTES: u64 = 256 << 10;

/// Returns the first `length` bytes of a file.
///
/// Errors: the first read error; the bytes after it are unknown.
pub fn read_sparse(file: &dyn File, length: u64) -> io::Result<Vec<u8>> {
    read_chunks(file, length, |offset, chunk| file.read_at(offset, chunk))
}

/// Like [`read_sparse`], with zeros for unreadable pages, so that such a page does not hide the others.
pub fn read_sparse_leniently(file: &dyn File, length: u64) -> Vec<u8> {
    let read = |offset: u64, chunk: &mut [u8]| {
        if file.read_at(offset, chunk).is_err() {
            for (offset, page) in (offset..).step_by(PAGE_SIZE).zip(chunk.chunks_mut(PAGE_SIZE)) {
                if file.read_at(offset, page).is_err() {
                    page.fill(0);
                }
            }
        }
        Ok(())
    };
    read_chunks(file, length, read).unwrap_or_default()
}

fn read_chunks(
    file: &dyn File,
    length: u64,
    read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    // Zeroed memory of this size comes from the system, which backs a page only when it is first written.
    let mut bytes = vec![0; usize_of(length)];
    let mut buffer = AlignedBuffer::unfilled(usize_of(CHUNK_BYTES.min(length)));
    let mut at = 0;
    while at < length {
        at = at.max(file.next_data(at) & !(PAGE_BYTES - 1));
        if at >= length {
            break;
        }
        let chunk = &mut buffer[..usize_of(CHUNK_BYTES.min(length - at))];
        read(at, chunk)?;
        for (page, target) in chunk.chunks(PAGE_SIZE).zip(bytes[usize_of(at)..].chunks_mut(PAGE_SIZE)) {
            if page.iter().any(|&byte| byte != 0) {
                target.copy_from_slice(page);
            }
        }
        at += u64_of(chunk.len());
    }
    Ok(bytes)
}
