//! Both trees as one sequence of keys, for scans.

use std::sync::Arc;

use testudo_base::{Cursor, Result};
use testudo_contract::Tree;
use testudo_run::{BoundedCursor, KeyBounds, ScanLimits};
use testudo_sequence::Parts;

/// Two trees with their ranges of keys; the lesser range first.
pub(crate) struct Halves {
    pub(crate) trees: [(Arc<dyn Tree>, KeyBounds); 2],
    pub(crate) limits: ScanLimits,
}

impl Parts for Halves {
    fn count(&self) -> usize {
        self.trees.len()
    }

    fn find(&self, key: &[u8]) -> usize {
        let ends_before = |keys: &KeyBounds| keys.high.as_deref().is_some_and(|high| high <= key);
        usize::from(ends_before(&self.trees[0].1))
    }

    fn open(&self, part: usize) -> Result<Option<Box<dyn Cursor + Send>>> {
        debug_assert!(
            self.trees[0].1.high == self.trees[1].1.low,
            "the second range begins where the first ends"
        );
        let (tree, keys) = &self.trees[part];
        let open = || -> Box<dyn Cursor + Send> {
            Box::new(BoundedCursor::new(tree.cursor_within(&self.limits), keys.clone()))
        };
        Ok((!keys.is_empty()).then(open))
    }
}
