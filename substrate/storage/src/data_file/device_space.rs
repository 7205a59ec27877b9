//! Device space of the file: free pages are punched out, and holes are filled again where space must be
//! guaranteed.

use testudo_base::{Error, ExtentSpan, PAGE_BYTES, Result};

use super::{DATA_FILE, DataFile};
use testudo_env::File as _;

use crate::space::free_space::Spans;

/// Maximum spans released after one round of work: meanwhile no thread can allocate or free pages.
const SPANS_OF_A_ROUND: usize = 16;

impl DataFile {
    /// Allocates device space for these pages where they have none: free pages may be holes that an earlier
    /// opening punched.
    ///
    /// Errors: `OutOfSpace`, `Io`.
    pub fn back(&self, spans: &[ExtentSpan]) -> Result<()> {
        spans.iter().try_for_each(|span| {
            let (offset, bytes) = (span.first_page * PAGE_BYTES, u64::from(span.page_count) * PAGE_BYTES);
            self.file.allocate(offset, bytes).map_err(|e| Error::io(DATA_FILE, e).context("cannot grow"))
        })
    }

    /// Releases free space to the file system: the end of the file, and holes of at least 256 KiB.
    pub fn give_back_space(&self) -> Result<()> {
        self.give_up(0, Spans::large(usize::MAX))
    }

    /// Releases all but `kept_bytes` of free space, down to single pages: on a full device, a fragmented file
    /// has no larger spans.
    pub fn give_back_beyond(&self, kept_bytes: u64) -> Result<()> {
        self.give_up(kept_bytes.div_ceil(PAGE_BYTES), Spans::ALL)
    }

    /// Records the end of a round, and releases some of the free space if it is far more than recent rounds
    /// needed.
    pub fn end_round(&self) -> Result<()> {
        match self.extents.end_round() {
            Some(kept_pages) => self.give_up(kept_pages, Spans::large(SPANS_OF_A_ROUND)),
            None => Ok(()),
        }
    }

    fn give_up(&self, kept_pages: u64, spans: Spans) -> Result<()> {
        let _growing = self.growing.lock();
        let kept_pages = kept_pages.max(self.extents.kept_pages());
        let outcome = self.extents.give_up(kept_pages, spans, |end_page, spans| {
            if self.file.len()? > end_page * PAGE_BYTES {
                self.file.set_len(end_page * PAGE_BYTES)?;
            }
            while let Some(&(start, pages)) = spans.last() {
                self.file.punch_hole(start * PAGE_BYTES, pages * PAGE_BYTES)?;
                spans.pop();
            }
            Ok(())
        });
        outcome.map_err(|e: std::io::Error| Error::io(DATA_FILE, e))
    }
}
