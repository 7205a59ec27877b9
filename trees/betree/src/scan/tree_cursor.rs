//! A cursor over a whole tree: one merge of everything that may hold keys of the leaf where it is.
//!
//! The range of one leaf is a *part*. On the way from the root to the leaf every node contributes what its
//! tiers hold for that part, newest first, then comes the leaf itself; so a step compares a dozen sources at
//! most, however deep the tree is. At the border of a part the next one is entered, and the runs that reach
//! into it stay open.
//!
//! **Invariants**
//! - A tier's tier_cursor sees only what its shares leave.
//! - All tier_cursors are bounded by the part, or hold nothing beyond it.

use std::sync::Arc;

use testudo_base::{
    Cursor, Entry, Result, key,
    num::{u32_of, u64_of},
    planted,
};
use testudo_run::{Direction, MergeCursor, Run, ScanLimits, ScanProgress, Target, seek_together};
use testudo_sequence::{Bounds, Fence, FencedRun, SequenceCursor, runs_within};
use testudo_storage::DataFile;

use crate::{
    scan::read_forecast::forecast_reads,
    trunk::node::{Child, Node},
};

/// A cursor over everything at and below `root`.
pub(crate) struct TreeCursor {
    root: Arc<Node>,
    data: Arc<DataFile>,
    part: Part,
    merge: MergeCursor<SequenceCursor>,
    /// The next part's leaf, during a long scan.
    prepared: Option<SequenceCursor>,
    /// How far it is to go and has come.
    progress: Arc<ScanProgress>,
}

/// A range of keys of the trunk.
#[derive(Clone, Debug, Default)]
struct Part {
    low: Option<Arc<[u8]>>,
    high: Option<Arc<[u8]>>,
}

/// Which part to enter.
#[derive(Clone, Copy)]
enum Entrance<'a> {
    At(&'a [u8]),
    Before(&'a [u8]),
    Last,
}

impl Entrance<'_> {
    /// The child of `node` where it leads.
    fn pivot(self, node: &Node) -> usize {
        match self {
            Self::At(key) => node.pivot_of(key),
            Self::Before(key) => {
                node.pivots.partition_point(|pivot| pivot.low.is_less_than(key)).saturating_sub(1)
            }
            Self::Last => node.pivots.len() - 1,
        }
    }
}

impl TreeCursor {
    /// A cursor that stands nowhere, for a scan within `limits`: advice by which it reads ahead.
    pub(crate) fn new(root: &Arc<Node>, data: &Arc<DataFile>, limits: &ScanLimits) -> Self {
        Self {
            root: Arc::clone(root),
            data: Arc::clone(data),
            part: Part::default(),
            merge: MergeCursor::new(Vec::new()),
            prepared: None,
            progress: ScanProgress::new(limits),
        }
    }

    /// Opens the part where `entrance` leads and positions its tier_cursors.
    fn enter(&mut self, entrance: Entrance<'_>, target: Target<'_>, goes_on: bool) -> Result<()> {
        let path = self.path(entrance);
        let (mut tier_cursors, waiting) = self.tier_cursors(&path, goes_on);
        let earlier = std::mem::replace(&mut self.merge, MergeCursor::new(Vec::new()));
        let mut open = earlier.into_sources();
        open.extend(self.prepared.take());
        let direction = match target {
            Target::First | Target::From(_) => Direction::Forward,
            Target::Last | Target::Before(_) => Direction::Backward,
        };
        let passed_pages = open.iter().map(SequenceCursor::passed_leaf_pages).max().unwrap_or_default();
        for mut earlier in open {
            if !goes_on {
                earlier.begin_anew();
            }
            let _ = tier_cursors.iter_mut().any(|tier_cursor| tier_cursor.take_over(&mut earlier));
        }
        let is_forward = direction == Direction::Forward;
        if !goes_on {
            self.progress = self.progress.begun_anew();
        }
        if is_forward && (goes_on || self.progress.is_limited()) {
            forecast_reads(&self.progress, &mut tier_cursors, &waiting);
        }
        if goes_on && is_forward && passed_pages > 0 {
            tier_cursors.iter_mut().for_each(|tier_cursor| tier_cursor.go_on_after(passed_pages));
            if self.goes_beyond(&tier_cursors) {
                let prepared = |run: &Arc<Run>| SequenceCursor::prepared_leaf(run, passed_pages);
                self.prepared = self.leaf_behind().as_ref().map(prepared);
            }
        }
        let shared = match (&self.part.low, &self.part.high) {
            (Some(low), Some(high)) => key::common_prefix(low, high),
            _ => 0,
        };
        self.merge = MergeCursor::with_shared_prefix(tier_cursors, shared);
        let data = &self.data;
        self.merge.place(direction, |tier_cursors| {
            for tier_cursor in &mut *tier_cursors {
                tier_cursor.begin(target);
            }
            seek_together(tier_cursors, data)
        })
    }

    /// Whether a scan may be for more than its present part, which has these sources.
    fn goes_beyond(&self, tier_cursors: &[SequenceCursor]) -> bool {
        let leaf = tier_cursors.last().filter(|tier_cursor| tier_cursor.is_leaf());
        let entries = leaf.map_or(0, |leaf| leaf.first_run().reference().entries);
        let high = self.part.high.as_deref();
        let ends_within = self.progress.end().is_some_and(|end| high.is_none_or(|high| end <= high));
        self.progress.entries_left().is_none_or(|left| left > entries) && !ends_within
    }

    /// The leaf of the part that follows.
    fn leaf_behind(&self) -> Option<Arc<Run>> {
        let border = self.part.high.as_deref()?;
        let mut node = &self.root;
        loop {
            match &node.pivots[node.pivot_of(border)].child {
                Child::Node(child) => node = child,
                Child::Leaf(run) => return run.clone(),
            }
        }
    }

    /// The nodes down to the leaf, each with the child that is taken; notes the part.
    fn path(&mut self, entrance: Entrance<'_>) -> Vec<(Arc<Node>, usize)> {
        let mut path = Vec::with_capacity(4);
        let mut node = Arc::clone(&self.root);
        let (mut low, mut high) = (None, None);
        loop {
            let pivot = entrance.pivot(&node);
            low = node.pivots[pivot].low.as_low().map(|low| Arc::from(low.to_vec())).or(low);
            high = node.pivots.get(pivot + 1).map(|next| Arc::from(next.low.to_vec())).or(high);
            let child = node.pivots[pivot].child.clone();
            path.push((node, pivot));
            match child {
                Child::Node(child) => node = child,
                Child::Leaf(_) => break,
            }
        }
        self.part = Part { low, high };
        path
    }

    /// What the nodes on a path hold for the part, newest first, and about how many bytes of entries that is.
    /// Where a scan begins, it is charged for.
    fn tier_cursors(&self, path: &[(Arc<Node>, usize)], goes_on: bool) -> (Vec<SequenceCursor>, Vec<u64>) {
        let Part { low, high } = &self.part;
        let mut tier_cursors = Vec::with_capacity(16);
        let mut bytes = Vec::with_capacity(16);
        for (depth, (node, pivot)) in path.iter().enumerate() {
            // Of what waits for a child, one leaf below it gets about so much.
            let leaves =
                path[depth + 1..].iter().map(|(below, _)| u64_of(below.pivots.len())).product::<u64>();
            let before = tier_cursors.len();
            for tier in &node.tiers {
                let Some(share) = &tier.shares[*pivot] else { continue };
                let flushed =
                    share.from.as_deref().filter(|from| low.as_deref().is_none_or(|low| low < *from));
                let from = flushed.map(Arc::from).or_else(|| low.clone());
                let bounds =
                    Bounds { low: from.clone().map(Fence::from), high: high.clone().map(Fence::from) };
                let within = runs_within(&tier.runs, &bounds);
                let runs: Vec<FencedRun> = within.map(|(_, fenced)| fenced.clone()).collect();
                if !runs.is_empty() {
                    tier_cursors.push(SequenceCursor::new(runs, from, high.clone()));
                    bytes.push(share.bytes / leaves);
                }
            }
            if !goes_on && tier_cursors.len() > before {
                node.scan_charges.charge(*pivot, node.pivots.len(), u32_of(tier_cursors.len() - before));
                self.root.scan_charges.note();
            }
            if let Child::Leaf(Some(run)) = &node.pivots[*pivot].child {
                tier_cursors.push(SequenceCursor::leaf(run));
                bytes.push(run.reference().user_bytes);
            }
        }
        (tier_cursors, bytes)
    }

    /// While the part has ended: on to the next one.
    fn go_on_forward(&mut self) -> Result<()> {
        while self.merge.entry().is_none() {
            let Some(border) = self.part.high.clone() else { return Ok(()) };
            self.enter(Entrance::At(&border), Target::From(&border), true)?;
        }
        Ok(())
    }

    /// While the part has ended: back to the one before it.
    fn go_on_backward(&mut self) -> Result<()> {
        while self.merge.entry().is_none() {
            let Some(border) = self.part.low.clone() else { return Ok(()) };
            self.enter(Entrance::Before(&border), Target::Before(&border), true)?;
        }
        Ok(())
    }
}

impl Cursor for TreeCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.enter(Entrance::At(&[]), Target::First, false)?;
        self.go_on_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.enter(Entrance::Last, Target::Last, false)?;
        self.go_on_backward()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.enter(Entrance::At(key), Target::From(key), false)?;
        self.go_on_forward()
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.enter(Entrance::Before(key), Target::Before(key), false)?;
        self.go_on_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.merge.entry().is_none() {
            return Ok(());
        }
        self.progress.count_entry();
        self.merge.next()?;
        if self.merge.entry().is_some() { Ok(()) } else { self.go_on_forward() }
    }

    fn prev(&mut self) -> Result<()> {
        if self.merge.entry().is_none() {
            return Ok(());
        }
        self.merge.prev()?;
        if self.merge.entry().is_some() {
            return Ok(());
        }
        if planted!("backward-skips-a-part")
            && let Some(border) = self.part.low.clone()
        {
            self.path(Entrance::Before(&border));
        }
        self.go_on_backward()
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        self.merge.entry()
    }
}
