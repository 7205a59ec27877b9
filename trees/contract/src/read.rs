//! Lookups and scans of a tree.
//!
//! **Invariants**
//! - The answer to any query has at most one entry per key. Merges drop older ones, except those that
//!   operands apply to.
//! - Only [`Read::load_pages`], cursors and blocking lookups read from the device.

use testudo_base::{Cursor, Result};
use testudo_run::{Access, Lookup, ScanLimits};
use testudo_storage::PageAddress;
use testudo_values::SegmentSet;

/// Answers queries.
pub trait Read {
    /// Looks up `key`; `hash` is its [`testudo_base::checksum::hash_key`]. A tombstone may be reported as
    /// such or as `Absent`. Operands are returned with all older entries they apply to, not merged. A
    /// separated value is read; for a long value, only the reference is returned.
    fn get(&self, key: &[u8], hash: u64, access: Access<'_>) -> Result<Lookup>;
    /// Whether all entries of `key` in the tree, operands and their base included, may exceed `bytes`. Reads
    /// no pages; may return false positives.
    fn may_hold_more(&self, key: &[u8], bytes: u64) -> bool;
    /// Loads pages that [`Read::get`] has noted, in one batch.
    fn load_pages(&self, pages: &[PageAddress]) -> Result<()>;
    /// Returns a cursor over all entries, tombstones included, operands as in [`Read::get`].
    /// Separated values are returned as references, to be read through [`Read::value_segments`]. The cursor
    /// keeps the state alive.
    fn cursor(&self) -> Box<dyn Cursor + Send> {
        self.cursor_within(&ScanLimits::default())
    }
    /// Like [`Read::cursor`], with read-ahead sized by `limits`. A scan that goes further still gets every
    /// entry.
    fn cursor_within(&self, limits: &ScanLimits) -> Box<dyn Cursor + Send>;
    /// Value segments that its entries refer to, if it stores some separated values.
    fn value_segments(&self) -> Option<&SegmentSet> {
        None
    }
}
