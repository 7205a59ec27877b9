//! Compaction of a range of a keyspace on demand.

use testudo_base::Result;
use testudo_flush::compact_range::compact_range;

use crate::{KeyRange, Keyspace};

impl Keyspace {
    /// Merges everything stored of `range` at the bottom of the tree: afterwards a read of a key searches one
    /// run, and removed keys, replaced values and merged operands of the range take no space, unless a
    /// snapshot or iterator still needs them. Garbage in separated values is counted, and collected as usual.
    ///
    /// For a range after mass removals or an import, or before it is scanned often; normal use never needs
    /// it, and it writes the range's data once. It flushes the keyspace's write buffers if they have keys of
    /// the range, and then runs jobs of some megabytes, like those of the background. Reads and writes
    /// continue. Everything committed before the call is covered; later commits may be above it. Data
    /// outside the range is rewritten only where a run or node has keys on both sides of an end of the range;
    /// a large run may be cut there instead, and keeps its dead part until it is merged again.
    /// Leaves that it nearly empties are joined by background jobs afterwards. Writes nothing if the range is
    /// empty or already compact.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-range-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// users.insert("ada", "countess")?;
    /// users.remove("ada")?;
    /// users.compact_range("a".."b")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Invalid` for a dropped keyspace; `Closed` once the store is being closed; otherwise as
    /// [`Db::flush`](crate::Db::flush). Parts of the range that were completed before the error stay compact.
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        compact_range(self.db.store(), &self.core, range.into_bounds())
    }
}
