//! Small runs that a merge reads completely, in one batch.
//!
//! A flush of one of thousands of keyspaces merges a few runs of some kilobytes. If each cursor reads its run
//! on its own, the merge waits for the device once for each of them.
//!
//! **Invariants**
//! - A run that was not read, for whatever reason, is left to its cursor, which reports any error.

use testudo_base::num::u64_of;
use testudo_env::AlignedBuffer;
use testudo_storage::StreamLease;

use crate::{
    Run, RunCursor,
    cursor::window::{Window, page_bytes},
    spans::locate,
};

/// Maximum number of data pages of a run that is read with others.
const SMALL_RUN_PAGES: u32 = 16;

/// A run about to be read.
struct Wanted<'a> {
    cursor: &'a mut RunCursor,
    /// Its first page in the data file.
    first_page: u64,
    bytes: AlignedBuffer,
    lease: StreamLease,
}

/// Reads the data pages of small runs for those unpositioned cursors of a merge that need no other page.
pub fn read_small_runs<'a>(cursors: impl IntoIterator<Item = &'a mut RunCursor>) {
    let mut wanted: Vec<Wanted<'a>> = cursors.into_iter().filter_map(wanted).collect();
    // A single one is read as well by its cursor.
    let [Wanted { cursor, .. }, _, ..] = &*wanted else { return };
    let data = std::sync::Arc::clone(cursor.run.data());
    let mut reads: Vec<(u64, &mut [u8])> =
        wanted.iter_mut().map(|wanted| (wanted.first_page, &mut *wanted.bytes)).collect();
    let results = data.read_streams(&mut reads);
    debug_assert_eq!(results.len(), wanted.len(), "a result for each run");
    for (Wanted { cursor, bytes, lease, .. }, result) in wanted.into_iter().zip(results) {
        if result.is_ok() {
            cursor.reader.keep_window(Window::beside(0, bytes, Some(lease)));
        }
    }
}

fn wanted(cursor: &mut RunCursor) -> Option<Wanted<'_>> {
    let first_page = first_page_of(&cursor.run).filter(|_| cursor.reader.is_long())?;
    let bytes = page_bytes(cursor.run.reference().data_pages);
    let lease = cursor.run.data().lease_stream(u64_of(bytes))?;
    Some(Wanted { first_page, bytes: AlignedBuffer::unfilled(bytes), lease, cursor })
}

/// First page in the data file of a small run whose index is in memory.
fn first_page_of(run: &Run) -> Option<u64> {
    let reference = run.reference();
    let is_small = (1..=SMALL_RUN_PAGES).contains(&reference.data_pages) && reference.replaced.is_none();
    let (first_page, contiguous) = locate(run.spans(), 0)?;
    (is_small && run.has_index_in_memory() && contiguous >= reference.data_pages).then_some(first_page)
}

#[cfg(test)]
mod tests;
