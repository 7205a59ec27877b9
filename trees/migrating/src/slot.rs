//! Slots: the assignment of a keyspace's objects to its trees.
//!
//! The top four bits of an object's id are a slot: 0 for trees that have never migrated, from 8 on for
//! objects outside trees. A tree is unaware of it: [`Slotted`] puts the slot into the changes of its edits.
//! After a migration a tree keeps its slot.
//!
//! **Invariants**
//! - Trees have slot 0 or 1; slot 7 has one object, the border.

use std::{collections::BTreeMap, sync::Arc};

use testudo_base::{Cursor, ObjectId, Result, RunId, codec::Damage};
use testudo_contract::{
    Compact, Heading, Inspect, Job, JobRequest, Movable, OutlineLine, Part, Portion, Prepared, RangeJob,
    Read, Reclaim, ReclaimLimits, Tree, TreeEdit, TreeStats, Update, Updates, Work,
};
use testudo_run::{Access, KeyBounds, Lookup, RunLayout, ScanLimits};
use testudo_storage::{Change, PageAddress};

/// Position of the slot in an id.
const SHIFT: u32 = 60;
/// Number of slots for trees.
const TREES: u8 = 2;
/// The object with the course of a migration.
pub(crate) const BORDER: ObjectId = ObjectId(7 << SHIFT);

/// The objects of a tree.
pub type Objects = BTreeMap<ObjectId, Arc<[u8]>>;

/// The slot of a tree's objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot(u8);

impl Slot {
    /// Returns the slot with this number, if it is one for trees.
    pub(crate) fn of_tree(number: u8) -> Option<Self> {
        (number < TREES).then_some(Self(number))
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// Returns the slot for a second tree.
    #[must_use]
    pub(crate) fn other(self) -> Self {
        Self((self.0 + 1) % TREES)
    }

    fn id(self, inner: ObjectId) -> ObjectId {
        debug_assert!(inner.0 >> SHIFT == 0, "no tree has so many objects");
        ObjectId(u64::from(self.0) << SHIFT | inner.0)
    }

    /// Removes the objects of this slot from `objects`, and returns them with the tree's own ids.
    pub(crate) fn take(self, objects: &mut Objects) -> Objects {
        let is_inside = |id: &ObjectId| id.0 >> SHIFT == u64::from(self.0);
        let all = std::mem::take(objects).into_iter();
        debug_assert!(self.0 < TREES, "a slot of a tree");
        let (taken, others): (Objects, Objects) = all.partition(|(id, _)| is_inside(id));
        *objects = others;
        let inner = |id: ObjectId| ObjectId(id.0 & ((1 << SHIFT) - 1));
        taken.into_iter().map(|(id, bytes)| (inner(id), bytes)).collect()
    }

    /// Returns the objects of a keyspace that is not migrating, and their slot.
    ///
    /// Errors: [`Damage`] if they are in more than one.
    pub fn at_rest(mut objects: Objects) -> std::result::Result<(Self, Objects), Damage> {
        let first = objects.keys().next().map_or(0, |id| id.0 >> SHIFT);
        let slot = u8::try_from(first).ok().and_then(Self::of_tree);
        let slot = slot.ok_or(Damage("objects of a tree have no slot of a tree"))?;
        let own = slot.take(&mut objects);
        if objects.is_empty() { Ok((slot, own)) } else { Err(Damage("a tree has objects in two slots")) }
    }

    /// Wraps a tree so that its changes use this slot.
    pub fn with(self, tree: Arc<dyn Tree>) -> Arc<dyn Tree> {
        if self == Self::default() { tree } else { Arc::new(Slotted { slot: self, tree }) }
    }
}

/// A tree whose objects are in a slot.
#[derive(Debug)]
struct Slotted {
    slot: Slot,
    tree: Arc<dyn Tree>,
}

impl Slotted {
    fn changes(&self, changes: Vec<Change>) -> Vec<Change> {
        let in_slot = |change| match change {
            Change::PutObject(keyspace, id, bytes) => Change::PutObject(keyspace, self.slot.id(id), bytes),
            Change::DeleteObject(keyspace, id) => Change::DeleteObject(keyspace, self.slot.id(id)),
            other => other,
        };
        changes.into_iter().map(in_slot).collect()
    }

    fn edit(&self, TreeEdit { tree, changes }: TreeEdit) -> TreeEdit {
        TreeEdit { tree: self.slot.with(tree), changes: self.changes(changes) }
    }

    fn movable(&self) -> &dyn Movable {
        self.tree.as_movable().expect("asked for as a movable tree")
    }
}

impl Read for Slotted {
    fn get(&self, key: &[u8], hash: u64, access: Access<'_>) -> Result<Lookup> {
        self.tree.get(key, hash, access)
    }

    fn may_hold_more(&self, key: &[u8], bytes: u64) -> bool {
        self.tree.may_hold_more(key, bytes)
    }

    fn load_pages(&self, pages: &[PageAddress]) -> Result<()> {
        self.tree.load_pages(pages)
    }

    fn cursor_within(&self, limits: &ScanLimits) -> Box<dyn Cursor + Send> {
        self.tree.cursor_within(limits)
    }
}

impl Update for Slotted {
    fn apply(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit> {
        Ok(self.edit(self.tree.apply(work, updates)?))
    }

    fn apply_on_top(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit> {
        Ok(self.edit(self.tree.apply_on_top(work, updates)?))
    }

    fn on_top_bytes(&self, memory_bytes: u64) -> u64 {
        self.tree.on_top_bytes(memory_bytes)
    }

    fn rewrites_per_doubling(&self) -> f64 {
        self.tree.rewrites_per_doubling()
    }
}

impl Compact for Slotted {
    fn reclaim_bytes(&self) -> u64 {
        self.tree.reclaim_bytes()
    }

    fn pick_reclaim(&self, limits: &ReclaimLimits<'_>) -> Result<Option<Reclaim>> {
        self.tree.pick_reclaim(limits)
    }

    fn reclaim(&self, work: &Work, reclaim: &Reclaim) -> Result<TreeEdit> {
        Ok(self.edit(self.tree.reclaim(work, reclaim)?))
    }

    fn pick_job(&self, request: &JobRequest<'_>) -> Option<Job> {
        self.tree.pick_job(request)
    }

    fn job_bytes_max(&self, bytes_max: u64) -> u64 {
        self.tree.job_bytes_max(bytes_max)
    }

    fn pick_range(&self, range: &KeyBounds, bytes_max: u64) -> Result<Option<RangeJob>> {
        self.tree.pick_range(range, bytes_max)
    }

    fn has_new_reasons(&self) -> bool {
        self.tree.has_new_reasons()
    }

    fn behind_bytes(&self) -> u64 {
        self.tree.behind_bytes()
    }

    fn prepare(&self, work: &Work, job: &Job) -> Result<Prepared> {
        self.tree.prepare(work, job)
    }

    fn install(&self, work: &Work, prepared: Prepared) -> Result<Option<TreeEdit>> {
        Ok(self.tree.install(work, prepared)?.map(|edit| self.edit(edit)))
    }
}

impl Inspect for Slotted {
    fn stats(&self) -> TreeStats {
        self.tree.stats()
    }

    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<u64> {
        self.tree.bytes_between(low, high)
    }

    fn outline(&self) -> Vec<OutlineLine> {
        self.tree.outline()
    }

    fn parts(&self) -> Vec<Part> {
        self.tree.parts()
    }

    fn is_spare(&self, run: RunId) -> bool {
        self.tree.is_spare(run)
    }

    fn check_invariants(&self, deep: bool) -> Result<()> {
        self.tree.check_invariants(deep)
    }

    fn check_retained(&self) -> Result<()> {
        self.tree.check_retained()
    }
}

impl Tree for Slotted {
    fn release(&self) -> Vec<Change> {
        self.tree.release()
    }

    fn as_movable(&self) -> Option<&dyn Movable> {
        self.tree.as_movable().map(|_| self as &dyn Movable)
    }
}

impl Movable for Slotted {
    fn run_bytes(&self) -> u64 {
        self.movable().run_bytes()
    }

    fn bottom_layout(&self, entry_bytes: u64) -> RunLayout {
        self.movable().bottom_layout(entry_bytes)
    }

    fn job_while_left(&self, request: &JobRequest<'_>) -> Option<Job> {
        self.movable().job_while_left(request)
    }

    fn next_border(&self, rest: &KeyBounds, heading: Heading, bytes: u64) -> Result<Option<Vec<u8>>> {
        self.movable().next_border(rest, heading, bytes)
    }

    fn merging_cursor(&self, work: &Work) -> Box<dyn Cursor + Send> {
        self.movable().merging_cursor(work)
    }

    fn with_portion(&self, work: &Work, portion: &Portion) -> Result<TreeEdit> {
        Ok(self.edit(self.movable().with_portion(work, portion)?))
    }

    fn without_outside(&self, work: &Work, keep: &KeyBounds) -> Result<TreeEdit> {
        Ok(self.edit(self.movable().without_outside(work, keep)?))
    }

    fn cut_to(&self, work: &Work, keep: &KeyBounds) -> Result<TreeEdit> {
        Ok(self.edit(self.movable().cut_to(work, keep)?))
    }

    fn clear(&self, work: &Work) -> Vec<Change> {
        self.changes(self.movable().clear(work))
    }
}
