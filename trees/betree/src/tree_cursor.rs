//! A cursor over a whole tree: at each node a merge of its tiers and of what lies below, opened on the way.
//!
//! **Invariants**
//! - A tier's cursor sees only what its shares leave; a part is one pivot, so that what is far away is never opened.

use std::sync::Arc;

use testudo_base::{Cursor, Result};
use testudo_run::{BoundedCursor, MergeCursor, ReadAhead, RunCursor};

use crate::{
    chain::{ChainCursor, Parts},
    flow::{Layer, Slice, Source, clip_runs},
    node::{Child, Node},
    plan::active_bounds,
};

/// A cursor over everything at and below `node`.
pub(crate) fn node_cursor(node: &Arc<Node>) -> Box<dyn Cursor + Send> {
    let below = ChainCursor::new(ChildParts(Arc::clone(node)));
    if node.tiers.is_empty() {
        return Box::new(below);
    }
    let mut sources: Vec<Box<dyn Cursor + Send>> = Vec::with_capacity(node.tiers.len() + 1);
    for tier in 0..node.tiers.len() {
        sources.push(Box::new(ChainCursor::new(TierParts { node: Arc::clone(node), tier })));
    }
    sources.push(Box::new(below));
    Box::new(MergeCursor::new(sources))
}

/// The children of a node.
struct ChildParts(Arc<Node>);

impl Parts for ChildParts {
    fn count(&self) -> usize {
        self.0.pivots.len()
    }

    fn find(&self, key: &[u8]) -> usize {
        self.0.pivot_of(key)
    }

    fn open(&self, part: usize) -> Result<Option<Box<dyn Cursor + Send>>> {
        Ok(match &self.0.pivots[part].child {
            Child::Node(node) => Some(node_cursor(node)),
            Child::Leaf(run) => run.as_ref().map(|run| {
                Box::new(RunCursor::new(Arc::clone(run), ReadAhead::Adaptive)) as Box<dyn Cursor + Send>
            }),
        })
    }
}

/// What one tier of a node holds for each pivot.
struct TierParts {
    node: Arc<Node>,
    tier: usize,
}

impl Parts for TierParts {
    fn count(&self) -> usize {
        self.node.pivots.len()
    }

    fn find(&self, key: &[u8]) -> usize {
        self.node.pivot_of(key)
    }

    fn open(&self, part: usize) -> Result<Option<Box<dyn Cursor + Send>>> {
        let tier = &self.node.tiers[self.tier];
        let Some(share) = &tier.shares[part] else { return Ok(None) };
        let slices = clip_runs(&tier.runs, &active_bounds(&self.node.bounds_of(part), share));
        Ok(match slices.len() {
            0 => None,
            1 => Some(slice_cursor(&slices[0])),
            _ => Some(Box::new(ChainCursor::new(SliceParts(slices)))),
        })
    }
}

/// Runs of a tier inside one pivot.
struct SliceParts(Layer);

impl Parts for SliceParts {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn find(&self, key: &[u8]) -> usize {
        self.0.partition_point(|slice| match &slice.source {
            Source::Run(run) => run.reference().last_key.as_slice() < key,
            Source::Updates(_) => false,
        })
    }

    fn open(&self, part: usize) -> Result<Option<Box<dyn Cursor + Send>>> {
        Ok(Some(slice_cursor(&self.0[part])))
    }
}

fn slice_cursor(slice: &Slice) -> Box<dyn Cursor + Send> {
    let bounds = slice.bounds.clone();
    match &slice.source {
        Source::Run(run) => {
            Box::new(BoundedCursor::new(RunCursor::new(Arc::clone(run), ReadAhead::Adaptive), bounds))
        }
        Source::Updates(updates) => Box::new(BoundedCursor::new(updates.cursor(), bounds)),
    }
}
