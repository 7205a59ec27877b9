//! The top level, which maps keys to leaves: two layers of fences over all leaves.
//!
//! The first branch and two leaves are stored in the top itself. With thousands of keyspaces most memtables
//! are no larger and in no cache, so each pointer on the way to a leaf costs a memory latency.
//!
//! **Invariants**
//! - There is at least one branch, and each branch has at least one leaf; leaves may be empty.
//! - `fence_skip` of a leaf is the prefix length shared by the fences on both sides; at either end of the
//!   memtable, where a fence is missing, it is zero.

use std::ptr;

use smallvec::{SmallVec, smallvec};
use testudo_base::{
    key::common_prefix,
    num::u64_of,
    prefetch::{LINE_BYTES, prefetch, prefetch_to_write},
    sync::RwLock,
};

use crate::{
    arena::{Arena, Held},
    fences::Fences,
    leaf::Leaf,
};

/// Leaves of a full branch; few enough that moving half of them is cheap.
const BRANCH_LEAVES: usize = 128;

/// Number of leaves that a branch stores inline.
const FEW_LEAVES: usize = 2;

/// Cache lines that access to a leaf may touch.
pub(crate) const LEAF_LINES: usize = size_of::<LockedLeaf<'_>>() / LINE_BYTES;

/// A leaf that shares no cache line with its neighbors.
#[derive(Debug)]
#[repr(align(64))]
struct LockedLeaf<'id>(RwLock<Leaf<'id>>);

impl<'id> LockedLeaf<'id> {
    fn new(leaf: Leaf<'id>) -> Self {
        Self(RwLock::new(leaf))
    }
}

#[derive(Debug)]
struct Branch<'id> {
    fences: Fences,
    leaves: SmallVec<[Held<'id, LockedLeaf<'id>>; FEW_LEAVES]>,
}

impl Branch<'_> {
    /// Bytes on the heap; leaves are in the arena.
    fn heap_bytes(&self) -> u64 {
        self.fences.heap_bytes() + spilled_bytes(&self.leaves)
    }
}

/// Position of a leaf: its branch, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    branch: usize,
    leaf: usize,
}

impl Place {
    /// The leaf with the least keys.
    pub(crate) const FIRST: Self = Self { branch: 0, leaf: 0 };
}

#[derive(Debug)]
pub(crate) struct Top<'id> {
    /// No further inserts are allowed.
    pub(crate) frozen: bool,
    fences: Fences,
    branches: SmallVec<[Branch<'id>; 1]>,
}

impl<'id> Top<'id> {
    /// A top with one leaf, in `arena`.
    pub(crate) fn new(arena: &Arena<'id>) -> Self {
        let (leaf, _) = arena.hold(LockedLeaf::new(Leaf::new(0)));
        let branch = Branch { fences: Fences::default(), leaves: smallvec![leaf] };
        Self { frozen: false, fences: Fences::default(), branches: smallvec![branch] }
    }

    /// Bytes on the heap; leaves are in the arena.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.root_bytes() + self.branches.iter().map(Branch::heap_bytes).sum::<u64>()
    }

    fn root_bytes(&self) -> u64 {
        self.fences.heap_bytes() + spilled_bytes(&self.branches)
    }

    pub(crate) fn leaf_count(&self) -> usize {
        self.branches.iter().map(|branch| branch.leaves.len()).sum()
    }

    /// The leaf that has `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Place {
        let branch = self.fences.child_of(key);
        Place { branch, leaf: self.branches[branch].fences.child_of(key) }
    }

    /// The last leaf that can have keys below `key`.
    pub(crate) fn find_before(&self, key: &[u8]) -> Place {
        let branch = self.fences.child_before(key);
        Place { branch, leaf: self.branches[branch].fences.child_before(key) }
    }

    pub(crate) fn last(&self) -> Place {
        let branch = self.branches.len() - 1;
        Place { branch, leaf: self.branches[branch].leaves.len() - 1 }
    }

    #[inline]
    pub(crate) fn leaf(&self, place: Place) -> &RwLock<Leaf<'id>> {
        let leaf = &self.branches[place.branch].leaves[place.leaf].0;
        // Nothing behind the lock is loaded before the lock is taken, unless it is prefetched.
        prefetch::<LEAF_LINES>(ptr::from_ref(leaf).cast());
        leaf
    }

    /// Like [`Top::leaf`], for an insert.
    #[inline]
    pub(crate) fn leaf_to_write(&self, place: Place) -> &RwLock<Leaf<'id>> {
        let leaf = &self.branches[place.branch].leaves[place.leaf].0;
        prefetch_to_write::<LEAF_LINES>(ptr::from_ref(leaf).cast());
        leaf
    }

    /// Address of the leaf, if there is just one.
    pub(crate) fn only_leaf(&self) -> *const u8 {
        match &*self.branches {
            [branch] if branch.leaves.len() == 1 => ptr::from_ref(&*branch.leaves[0]).cast(),
            _ => ptr::null(),
        }
    }

    /// Lower bound of the leaf's keys, inclusive; `None` if there is none.
    pub(crate) fn low(&self, place: Place) -> Option<&[u8]> {
        match (place.branch, place.leaf) {
            (0, 0) => None,
            (branch, 0) => self.fences.get(branch - 1),
            (branch, leaf) => self.branches[branch].fences.get(leaf - 1),
        }
    }

    /// Upper bound of the leaf's keys, exclusive; `None` if there is none.
    pub(crate) fn high(&self, place: Place) -> Option<&[u8]> {
        self.branches[place.branch].fences.get(place.leaf).or_else(|| self.fences.get(place.branch))
    }

    /// All leaves with their places, in order.
    pub(crate) fn leaves(&self) -> impl DoubleEndedIterator<Item = (Place, &RwLock<Leaf<'id>>)> {
        self.leaves_of_branches(0)
    }

    /// The leaves from `first` on.
    pub(crate) fn leaves_from(&self, first: Place) -> impl Iterator<Item = (Place, &RwLock<Leaf<'id>>)> {
        self.leaves_of_branches(first.branch).skip(first.leaf)
    }

    fn leaves_of_branches(
        &self,
        first: usize,
    ) -> impl DoubleEndedIterator<Item = (Place, &RwLock<Leaf<'id>>)> {
        self.branches.iter().enumerate().skip(first).flat_map(|(branch, content)| {
            content.leaves.iter().enumerate().map(move |(leaf, locked)| (Place { branch, leaf }, &locked.0))
        })
    }

    /// Splits the leaf for `key` so that `key` can be inserted; returns the bytes by which the heap of the
    /// index and the arena grew.
    pub(crate) fn split(&mut self, arena: &Arena<'id>, key: &[u8]) -> (i64, u64) {
        let place = self.find(key);
        let root_before = self.root_bytes();
        let low = self.low(place).map(<[u8]>::to_vec);
        let high = self.high(place).map(<[u8]>::to_vec);
        let branch = &mut self.branches[place.branch];
        let branch_before = branch.heap_bytes();
        let left = branch.leaves[place.leaf].0.get_mut();
        let (keep, fence) = left.split_point(arena, key);
        let shared =
            |fence: &[u8], other: Option<&[u8]>| other.map_or(0, |other| common_prefix(fence, other));
        let right = left.split(arena, keep, shared(&fence, low.as_deref()), shared(&fence, high.as_deref()));
        let (right, arena_grown) = arena.hold(LockedLeaf::new(right));
        branch.fences.insert(place.leaf, fence);
        branch.leaves.insert(place.leaf + 1, right);
        debug_assert_eq!(branch.leaves.len(), branch.fences.len() + 1, "a fence between any two leaves");
        let mut branches_after = 0;
        if branch.leaves.len() >= BRANCH_LEAVES {
            // For ascending keys, the split leaf is the last one; the left branch needs no room.
            let fence_count = branch.fences.len();
            let middle = if place.leaf + 1 == fence_count { fence_count - 1 } else { fence_count / 2 };
            branches_after += self.split_branch(place.branch, middle);
        }
        branches_after += self.branches[place.branch].heap_bytes();
        let grown = signed(branches_after) - signed(branch_before);
        (grown + signed(self.root_bytes()) - signed(root_before), arena_grown)
    }

    /// Moves the leaves above fence `middle` to a new branch; returns the bytes of the new branch.
    fn split_branch(&mut self, at: usize, middle: usize) -> u64 {
        let branch = &mut self.branches[at];
        let (fence, fences) = branch.fences.split(middle);
        let right = Branch { fences, leaves: branch.leaves.drain(middle + 1..).collect() };
        debug_assert_eq!(right.leaves.len(), right.fences.len() + 1, "a fence between any two leaves");
        debug_assert_eq!(branch.leaves.len(), branch.fences.len() + 1, "a fence between any two leaves");
        let bytes = right.heap_bytes();
        self.fences.insert(at, fence);
        self.branches.insert(at + 1, right);
        debug_assert_eq!(self.branches.len(), self.fences.len() + 1, "a fence between any two branches");
        bytes
    }
}

/// Heap bytes of a vector.
fn spilled_bytes<A: smallvec::Array>(items: &SmallVec<A>) -> u64 {
    if items.spilled() { u64_of(items.capacity() * size_of::<A::Item>()) } else { 0 }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).expect("sizes of memory fit in 63 bits")
}

#[cfg(test)]
mod tests;
