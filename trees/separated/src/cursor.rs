//! A cursor over a tree that reads the values to which entries refer.
//!
//! **Invariants**
//! - It shows no references. After an error it stands nowhere.

use testudo_base::{Cursor, Entry, Kind, Result};
use testudo_run::Access;
use testudo_values::SegmentSet;

use crate::resolve::resolve;

/// The cursor.
pub(crate) struct ValueCursor {
    tree: Box<dyn Cursor + Send>,
    /// Those of the state that the cursor is over.
    segments: SegmentSet,
    /// What stands in the place of the reference that the tree's cursor stands on.
    read: Option<(Kind, Vec<u8>)>,
    has_failed: bool,
}

impl ValueCursor {
    pub(crate) fn new(tree: Box<dyn Cursor + Send>, segments: SegmentSet) -> Self {
        Self { tree, segments, read: None, has_failed: false }
    }

    /// After the tree's cursor has moved.
    fn look(&mut self, moved: Result<()>) -> Result<()> {
        self.read = None;
        let outcome = moved.and_then(|()| self.read_value());
        self.has_failed = outcome.is_err();
        outcome
    }

    fn read_value(&mut self) -> Result<()> {
        let Some(entry) = self.tree.entry() else { return Ok(()) };
        if matches!(entry.kind, Kind::Reference | Kind::UnmergedReference) {
            self.read = resolve(&self.segments, &entry, Access::Blocking)?;
        }
        Ok(())
    }
}

impl Cursor for ValueCursor {
    fn seek_first(&mut self) -> Result<()> {
        let moved = self.tree.seek_first();
        self.look(moved)
    }

    fn seek_last(&mut self) -> Result<()> {
        let moved = self.tree.seek_last();
        self.look(moved)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let moved = self.tree.seek(key);
        self.look(moved)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let moved = self.tree.seek_before(key);
        self.look(moved)
    }

    fn next(&mut self) -> Result<()> {
        if self.has_failed {
            return Ok(());
        }
        let moved = self.tree.next();
        self.look(moved)
    }

    fn prev(&mut self) -> Result<()> {
        if self.has_failed {
            return Ok(());
        }
        let moved = self.tree.prev();
        self.look(moved)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        let entry = self.tree.entry().filter(|_| !self.has_failed)?;
        Some(match &self.read {
            None => entry,
            Some((kind, value)) => Entry { kind: *kind, value, ..entry },
        })
    }
}
