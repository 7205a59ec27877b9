//! The tree's interface to the engine: open, get, cursor, apply, jobs, statistics.
//!
//! **Invariants**
//! - A `BeTree` is immutable; `apply` and `install` return the next one.

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use testudo_base::{Cursor, KeyspaceId, ObjectId, Result, RunId, codec::Damage, num::u64_of, planted};
use testudo_contract::{
    Compact, Heading, Inspect, Job, JobRequest, Movable, OutlineLine, Part, Portion, Prepared, RangeJob,
    Read, Reclaim, ReclaimLimits, RecordedDrops, Tree, TreeEdit, TreeStats, Update, Updates, Work,
};
use testudo_run::{Access, Effort, KeyBounds, Lookup, Run, RunLayout, ScanLimits};
use testudo_sequence::{
    Bounds, CompactionBuffer, Fence, Overwrites, PartCursor, ReclaimStep, RunSlice, Source, TreeShare,
    decode_buffer, find_stacked, load_sparing_damaged, on_top_bytes, target_of,
};
use testudo_storage::{Change, DataFile, PageAddress};

use crate::{
    BeTreeOptions,
    jobs::{self, bounded::largest_unit},
    policy::probe_kib,
    read_charges::ReadCharges,
    scan::node_parts::NodeParts,
    trunk::{
        assemble::Assembly,
        invariants,
        load::{damaged, load_node},
        node::{Child, Node, Pivot},
        node_format::{ROOT_POINTER, RootPointer, decode_root_pointer},
        references::{Buffers, all_runs, changes_of, deletions_of},
    },
    update::{
        inflow::inflow_after,
        join::Above,
        migrate,
        plan::PlanNode,
        reclaim::{self, Target},
        retain::{LiveRuns, buffer_after, retained_only_bytes},
        write::{Outputs, write_plan},
    },
};

mod measures;

use self::measures::{node_bytes, outline_node};

/// Origin of a change of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Updates,
    Job,
}

/// A Bε-tree: its root and its settings.
#[derive(Debug)]
pub struct BeTree {
    data: Arc<DataFile>,
    options: BeTreeOptions,
    root: Arc<Node>,
    next_object: u64,
    /// Object 0 exists in the manifest.
    is_stored: bool,
    /// Bytes of all entries, computed on first use.
    user_bytes: OnceLock<u64>,
    /// The compaction buffer of the leaves.
    retained: Option<Arc<CompactionBuffer>>,
    /// Retained runs that were dropped because of damage.
    damaged_runs: u64,
}

impl BeTree {
    /// Creates an empty tree, which is not yet in the manifest.
    pub fn empty(options: BeTreeOptions, data: &Arc<DataFile>) -> Arc<Self> {
        let root = Node {
            id: ObjectId(1),
            height: 1,
            pivots: vec![Pivot { low: Fence::default(), child: Child::Leaf(None) }],
            high: None,
            tiers: Vec::new(),
            read_charges: ReadCharges::default(),
            overwrites: Overwrites::UNKNOWN,
        };
        Arc::new(Self {
            data: Arc::clone(data),
            options,
            root: Arc::new(root),
            next_object: 2,
            is_stored: false,
            user_bytes: OnceLock::new(),
            retained: None,
            damaged_runs: 0,
        })
    }

    /// Opens the tree that `objects` describe; empty if there are none. Reads no pages.
    ///
    /// Errors: `Corruption` if the objects contradict each other or the live extents.
    pub fn open(
        options: BeTreeOptions,
        data: &Arc<DataFile>,
        keyspace: KeyspaceId,
        mut objects: BTreeMap<ObjectId, Arc<[u8]>>,
    ) -> Result<Arc<Self>> {
        let Some(pointer) = objects.remove(&ROOT_POINTER) else {
            return if objects.is_empty() {
                Ok(Self::empty(options, data))
            } else {
                Err(damaged(keyspace, ROOT_POINTER, "is missing"))
            };
        };
        let RootPointer { root, next_object, buffer } =
            decode_root_pointer(&pointer).map_err(|Damage(why)| damaged(keyspace, ROOT_POINTER, why))?;
        if objects.keys().next_back().is_some_and(|last| last.0 >= next_object) || next_object > MAX_OBJECT {
            return Err(damaged(keyspace, ROOT_POINTER, "the next object id is already in use"));
        }
        let root = load_node(data, keyspace, &mut objects, root, 0)?;
        let retained = buffer.map(|id| {
            let bytes = objects.remove(&id).ok_or_else(|| damaged(keyspace, id, "is missing"))?;
            let stored = decode_buffer(&bytes).map_err(|Damage(why)| damaged(keyspace, id, why))?;
            stored.open(id, data, &mut BTreeMap::new())
        });
        let retained = retained.transpose()?;
        if !objects.is_empty() || root.high.is_some() || !root.pivots[0].low.is_empty() {
            return Err(damaged(keyspace, root.id, "some nodes or keys are unreachable"));
        }
        let (data, user_bytes) = (Arc::clone(data), OnceLock::new());
        Ok(Arc::new(Self {
            data,
            options,
            root,
            next_object,
            is_stored: true,
            user_bytes,
            retained,
            damaged_runs: 0,
        }))
    }

    /// Bytes on the device of runs that are only in the compaction buffer.
    fn retained_only_bytes(&self) -> u64 {
        match &self.retained {
            None => 0,
            Some(buffer) => retained_only_bytes(Some(buffer), &live_runs(&self.root)),
        }
    }

    /// Returns every run of its nodes, once per reference.
    fn runs(&self) -> Vec<Arc<Run>> {
        let mut runs = Vec::new();
        all_runs(&self.root, &mut runs);
        runs
    }

    /// Looks up `key` in the sources after the first `passed` ones, and sets `passed` to the number of
    /// sources searched, including the one that answers.
    #[inline]
    fn find(&self, key: &[u8], hash: u64, access: Access<'_>, passed: &mut u32) -> Result<Lookup> {
        let mut node = &self.root;
        let done = *passed;
        *passed = 0;
        loop {
            let pivot = node.pivot_of(key);
            for tier in &node.tiers {
                *passed += 1;
                if *passed <= done {
                    continue;
                }
                let Some(share) = &tier.shares[pivot] else { continue };
                if share.from.as_deref().is_some_and(|from| key < from) {
                    continue;
                }
                let run = tier.runs.partition_point(|fenced| fenced.low.is_at_most(key)).checked_sub(1);
                let Some(run) = run.and_then(|run| tier.runs.get(run)) else { continue };
                let found = run.run.get(key, hash, access)?;
                if found != Lookup::Absent {
                    return Ok(found);
                }
                if let Some(effort) = access.take_effort() {
                    self.charge_probe(node, pivot, effort);
                }
                access.set_passed(*passed);
            }
            match &node.pivots[pivot].child {
                Child::Node(child) => node = child,
                Child::Leaf(None) => return Ok(Lookup::Absent),
                Child::Leaf(Some(run)) => {
                    *passed += 1;
                    if *passed <= done {
                        return Ok(Lookup::Absent);
                    }
                    let known = || self.retained.as_ref()?.get(key, hash, access);
                    return run.get_last_unless_known(key, hash, access, known);
                }
            }
        }
    }

    /// Charges a child of `node` for the search of a tier that does not have its key.
    #[cold]
    fn charge_probe(&self, node: &Node, pivot: usize, effort: Effort) {
        if planted!("probes-not-charged") {
            return;
        }
        node.read_charges.charge(pivot, node.pivots.len(), probe_kib(effort.reads()));
        self.root.read_charges.note();
    }

    /// Writes a plan and assembles the edit. `sizes`: settings for the runs written.
    fn finish(
        &self,
        mut plan: PlanNode,
        work: &Work,
        origin: Origin,
        sizes: &BeTreeOptions,
    ) -> Result<TreeEdit> {
        let outputs = write_plan(&mut plan, work, sizes)?;
        self.assemble(plan, outputs, work, origin, &self.options)
    }

    /// Assembles the tree with `options` in which a written plan has replaced the root.
    fn assemble(
        &self,
        plan: PlanNode,
        outputs: Outputs,
        work: &Work,
        origin: Origin,
        options: &BeTreeOptions,
    ) -> Result<TreeEdit> {
        let mut assembly = Assembly::new(*options, outputs, self.next_object);
        assembly.keeps_read_charges = origin == Origin::Job;
        let root = assembly.build_root(plan)?;
        Ok(self.edit(root, assembly, work))
    }

    /// Creates the edit whose tree has `root`, which was built by `assembly`.
    fn edit(&self, root: Arc<Node>, mut assembly: Assembly, work: &Work) -> TreeEdit {
        let (before, came) = (self.retained.as_ref(), std::mem::take(&mut assembly.came));
        let retained = match self.data.retained_percent() {
            0 => None,
            percent => buffer_after(before, came, &live_runs(&root), percent, &mut assembly.next_object),
        };
        self.edit_retaining(root, retained, assembly, work)
    }

    /// Like `edit`, with this compaction buffer.
    fn edit_retaining(
        &self,
        root: Arc<Node>,
        retained: Option<Arc<CompactionBuffer>>,
        mut assembly: Assembly,
        work: &Work,
    ) -> TreeEdit {
        debug_assert!(root.high.is_none() && root.pivots[0].low.is_empty(), "the root has all keys");
        debug_assert!(assembly.next_object >= self.next_object, "object ids are never reused");
        debug_assert!(assembly.next_object <= MAX_OBJECT, "object ids do not run out");
        debug_assert!(root.id.0 < assembly.next_object, "the root has an id of its own");
        if !self.is_stored {
            assembly.replaced.clear();
        }
        let old = self.retained.as_deref();
        let known = retained.as_ref().map(|buffer| buffer.runs()).unwrap_or_default();
        let is_given_up = |(id, run): &(RunId, &Arc<Run>)| run.is_known_damaged() && !known.contains_key(id);
        let given_up = old.map(CompactionBuffer::runs).unwrap_or_default().into_iter().filter(is_given_up);
        let damaged_runs = self.damaged_runs + u64_of(given_up.count());
        let buffers = Buffers { old: old.filter(|_| self.is_stored), new: retained.as_deref() };
        let changes = changes_of(&assembly, work.keyspace, root.id, buffers);
        let tree_share = TreeShare::within(work, || user_bytes_of(&root));
        let tree = Self {
            data: Arc::clone(&self.data),
            options: BeTreeOptions { tree_share, ..assembly.options },
            root,
            next_object: assembly.next_object,
            is_stored: true,
            user_bytes: OnceLock::new(),
            retained,
            damaged_runs,
        };
        TreeEdit { tree: Arc::new(tree), changes }
    }
}

/// Exclusive upper bound of object ids, which no tree reaches.
const MAX_OBJECT: u64 = 1 << 60;

impl Read for BeTree {
    fn get(&self, key: &[u8], hash: u64, access: Access<'_>) -> Result<Lookup> {
        let effort = Cell::default();
        find_stacked(access.counted(&effort), |access, passed| self.find(key, hash, access, passed))
    }

    fn may_hold_more(&self, key: &[u8], bytes: u64) -> bool {
        *self.user_bytes.get_or_init(|| user_bytes_of(&self.root)) > bytes
            && self.root.user_bytes_beside(key) > bytes
    }

    fn load_pages(&self, pages: &[PageAddress]) -> Result<()> {
        self.data.load_pages(pages).or_else(|error| match &self.retained {
            Some(buffer) => load_sparing_damaged(&self.data, pages, buffer.runs()),
            None => Err(error),
        })
    }

    fn cursor_within(&self, limits: &ScanLimits) -> Box<dyn Cursor + Send> {
        Box::new(PartCursor::new(NodeParts::new(&self.root), &self.data, limits))
    }
}

impl Update for BeTree {
    fn apply(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit> {
        let mut plan = PlanNode::new(&self.root);
        let bytes = updates.bytes();
        let inflow = match self.options.compacts_later() {
            true => inflow_after(&self.root, &self.options, &*updates),
            false => self.options.inflow,
        };
        let options = BeTreeOptions { inflow, ..self.options };
        let slice = RunSlice { source: Source::Updates(updates), bounds: Bounds::default() };
        plan.push(vec![vec![slice]], bytes, &self.options, 0)?;
        if !self.options.compacts_later() {
            plan.join_children(&self.options, 0, &Above::nothing())?;
        }
        let outputs = write_plan(&mut plan, work, &self.options)?;
        self.assemble(plan, outputs, work, Origin::Updates, &options)
    }

    fn apply_on_top(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit> {
        let mut plan = PlanNode::new(&self.root);
        plan.put_on_top(vec![RunSlice { source: Source::Updates(updates), bounds: Bounds::default() }])?;
        self.finish(plan, work, Origin::Updates, &self.options.sparing())
    }

    fn on_top_bytes(&self, memory_bytes: u64) -> u64 {
        on_top_bytes(memory_bytes, self.options.sparing().tier_run_bytes(self.root.overwrites))
    }

    fn rewrites_per_doubling(&self) -> f64 {
        self.options.rewrites_per_doubling()
    }
}

impl Compact for BeTree {
    fn reclaim_bytes(&self) -> u64 {
        reclaim::bytes_max(&self.root, &self.options)
    }

    fn pick_reclaim(&self, limits: &ReclaimLimits<'_>) -> Result<Option<Reclaim>> {
        match self.retained_only_bytes() {
            0 => reclaim::pick(&self.root, &self.options, limits),
            retained => {
                let step = ReclaimStep { target: Target::Retained, space_bytes: 0, gain_bytes: retained };
                Ok(Some(step.into_reclaim()))
            }
        }
    }

    fn reclaim(&self, work: &Work, reclaim: &Reclaim) -> Result<TreeEdit> {
        let mut plan = PlanNode::new(&self.root);
        match target_of(reclaim) {
            Target::Leaf { path, waiting_max } => plan.flush_into_leaf(path, *waiting_max)?,
            Target::Leaves(path, count) => plan.join_into_leaf(path, *count, &self.options)?,
            Target::Tiers { nodes, newest, oldest } => plan.merge_between(nodes, *newest, *oldest),
            Target::Run(run) => plan.trim(*run),
            Target::Retained => {
                let assembly = Assembly::new(self.options, Outputs::new(), self.next_object);
                return Ok(self.edit_retaining(Arc::clone(&self.root), None, assembly, work));
            }
        }
        self.finish(plan, work, Origin::Job, &self.options.sparing())
    }

    fn pick_job(&self, request: &JobRequest<'_>) -> Option<Job> {
        jobs::pick(&self.root, &self.options, request)
    }

    fn job_bytes_max(&self, bytes_max: u64) -> u64 {
        bytes_max.max(largest_unit(&self.root, &self.options))
    }

    fn pick_range(&self, range: &KeyBounds, bytes_max: u64) -> Result<Option<RangeJob>> {
        jobs::pick_range(&self.root, range, bytes_max)
    }

    fn has_new_reasons(&self) -> bool {
        self.root.read_charges.take_note()
    }

    fn behind_bytes(&self) -> u64 {
        jobs::behind_bytes(&self.root, &self.options)
    }

    fn prepare(&self, work: &Work, job: &Job) -> Result<Prepared> {
        jobs::prepare(&self.options, work, job)
    }

    fn install(&self, work: &Work, prepared: Prepared) -> Result<Option<TreeEdit>> {
        let Some((plan, outputs)) = jobs::planned_from_root(&self.root, prepared) else { return Ok(None) };
        self.assemble(plan, outputs, work, Origin::Job, &self.options).map(Some)
    }
}

impl Inspect for BeTree {
    fn stats(&self) -> TreeStats {
        let mut stats = TreeStats { height: self.root.height, ..TreeStats::default() };
        add_stats(&self.root, &mut stats);
        stats.retained_bytes = self.retained_only_bytes();
        stats.stored_bytes += stats.retained_bytes;
        stats.retained_damaged_runs = self.damaged_runs;
        stats
    }

    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<u64> {
        let bounds = Bounds { low: low.map(Fence::from), high: high.map(Fence::from) };
        node_bytes(&self.root, &bounds)
    }

    fn outline(&self) -> Vec<OutlineLine> {
        let mut lines = Vec::new();
        outline_node(&self.root, 0, &mut lines);
        lines.extend(self.retained.as_ref().map(|buffer| OutlineLine {
            depth: 1,
            what: "retained",
            count: buffer.sections(),
            bytes: buffer.stored_bytes(),
            entries: 0,
        }));
        lines
    }

    fn parts(&self) -> Vec<Part> {
        let left_out = usize::from(planted!("part-left-out"));
        let buffer = self.retained.as_ref().map(|buffer| buffer.runs()).unwrap_or_default();
        let runs = self.runs().into_iter().chain(buffer.into_values().cloned());
        runs.skip(left_out).map(Part::Run).collect()
    }

    fn is_spare(&self, run: RunId) -> bool {
        let is_retained = self.retained.as_ref().is_some_and(|buffer| buffer.runs().contains_key(&run));
        is_retained && !live_runs(&self.root).contains_key(&run)
    }

    fn check_invariants(&self, deep: bool) -> Result<()> {
        invariants::check(&self.root, &self.options, deep)
    }

    fn check_retained(&self) -> Result<()> {
        let Some(buffer) = &self.retained else { return Ok(()) };
        let own_of = |key: &[u8], hash| {
            self.root.leaf_of(key).map(|leaf| leaf.get(key, hash, Access::Blocking)).transpose()
        };
        buffer.check_law(own_of)
    }
}

impl Tree for BeTree {
    fn as_movable(&self) -> Option<&dyn Movable> {
        Some(self)
    }
}

impl Movable for BeTree {
    fn run_bytes(&self) -> u64 {
        self.options.leaf_bytes
    }

    fn bottom_layout(&self, _entry_bytes: u64) -> RunLayout {
        RunLayout::default()
    }

    fn job_while_left(&self, request: &JobRequest<'_>) -> Option<Job> {
        // Only the work that flushes wait for.
        jobs::pick_due(&self.root, &self.options, request)
    }

    fn next_border(&self, rest: &KeyBounds, heading: Heading, bytes: u64) -> Result<Option<Vec<u8>>> {
        Ok(migrate::next_border(&self.root, rest, heading, bytes))
    }

    fn merging_cursor(&self, work: &Work) -> Box<dyn Cursor + Send> {
        let sink = RecordedDrops(Arc::clone(&work.progress));
        let parts = NodeParts::new(&self.root);
        Box::new(PartCursor::with_sink(parts, &self.data, &ScanLimits::default(), sink))
    }

    fn with_portion(&self, work: &Work, portion: &Portion) -> Result<TreeEdit> {
        let plan = migrate::plan_with_portion(&self.root, portion)?;
        let mut assembly = Assembly::new(self.options, Outputs::new(), self.next_object);
        assembly.keeps_read_charges = true;
        let root = assembly.build_root(plan)?;
        Ok(self.edit_retaining(root, None, assembly, work))
    }

    fn without_outside(&self, work: &Work, keep: &KeyBounds) -> Result<TreeEdit> {
        let mut assembly = Assembly::new(self.options, Outputs::new(), self.next_object);
        let root = migrate::restricted_root(&mut assembly, &self.root, keep)?;
        Ok(self.edit_retaining(root, None, assembly, work))
    }

    fn clear(&self, work: &Work) -> Vec<Change> {
        if self.is_stored {
            deletions_of(&self.root, self.retained.as_deref(), work.keyspace)
        } else {
            Vec::new()
        }
    }
}

fn live_runs(root: &Arc<Node>) -> LiveRuns {
    let mut runs = Vec::new();
    all_runs(root, &mut runs);
    runs.iter().map(|run| (run.reference().id, run.reference().stored_bytes())).collect()
}

fn user_bytes_of(root: &Arc<Node>) -> u64 {
    let mut runs = Vec::new();
    all_runs(root, &mut runs);
    runs.iter().map(|run| run.reference().user_bytes).sum()
}

fn add_stats(node: &Arc<Node>, stats: &mut TreeStats) {
    stats.nodes += 1;
    for tier in &node.tiers {
        stats.buffered_runs += u64_of(tier.runs.len());
        stats.buffered_bytes += tier.active_bytes();
    }
    for run in node.runs() {
        let reference = run.reference();
        stats.entries += reference.entries;
        stats.tombstones += reference.tombstones;
        stats.stored_bytes += reference.stored_bytes();
    }
    for pivot in &node.pivots {
        match &pivot.child {
            Child::Node(child) => add_stats(child, stats),
            Child::Leaf(None) => {}
            Child::Leaf(Some(run)) => {
                stats.leaves += u64::from(run.reference().entries > run.reference().tombstones);
                stats.leaf_bytes += run.reference().user_bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests;
