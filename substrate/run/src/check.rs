//! Checks the contents of a run: order, counts, positions, and that filter and index lead to every key.
//!
//! **Invariants**
//! - Fails with the first contradiction, as `Corruption`.

use testudo_base::{Cursor, Error, ErrorKind, Result, operands_format::check_value, sync::Arc};

use testudo_storage::{Access, PageKind};

use crate::{ReadAhead, Run, RunCursor, footer::BlockPosition};

impl Run {
    /// Checks what the partitions of the filter must agree on within themselves.
    pub fn check_filters(&self) -> Result<()> {
        let footer = self.footer()?;
        for page in footer.filter_page..footer.filter_page + footer.filter_pages {
            let position = BlockPosition { page, pages: 1 };
            let checked =
                self.with_block(PageKind::Filter, position, Access::Blocking, testudo_filter::check)?;
            checked.unwrap_or(Ok(())).map_err(|damage| self.damaged(page, damage))?;
        }
        Ok(())
    }

    /// Reads all entries: keys increase, first and last key and counts are those of the reference, the filter denies none, index
    /// and blocks lead to each.
    pub fn check_entries(self: &Arc<Self>) -> Result<()> {
        let reference = self.reference();
        let broken =
            |what: &str| Err(Error::new(ErrorKind::Corruption, format!("data: run {} {what}", reference.id)));
        let mut cursor = RunCursor::new(Arc::clone(self), ReadAhead::bytes(256 << 10));
        let (mut entries, mut previous): (u64, Option<Vec<u8>>) = (0, None);
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            if previous.as_deref().is_some_and(|previous| previous >= entry.key) {
                return broken("has keys that do not increase");
            }
            if entries == 0 && entry.key != reference.first_key.as_slice() {
                return broken("starts with another key than it says");
            }
            if check_value(entry.kind, entry.value).is_err() {
                return broken("has an entry of operands that cannot be read");
            }
            self.check_filter(entry.key)?;
            if !cursor.is_where_a_query_looks()? {
                return broken("has an entry that no query finds");
            }
            let previous = previous.get_or_insert_default();
            previous.clear();
            previous.extend_from_slice(entry.key);
            entries += 1;
            cursor.next()?;
        }
        if entries != reference.entries {
            return broken("has another number of entries than it says");
        }
        if previous.as_deref() != Some(reference.last_key.as_slice()) {
            return broken("ends with another key than it says");
        }
        Ok(())
    }
}
