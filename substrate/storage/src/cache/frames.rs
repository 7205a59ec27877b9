//! All frames, by number: a table of groups that grows and never moves.
//!
//! What a group knows of its frames (1 % of their memory) stays once it was made; the memory of its pages
//! comes and goes. The table grows by buckets that double, so that a small cache has a small table.
//!
//! **Invariants**
//! - A frame's number is the number of its group × frames of a group + its place there; it is its own for
//!   ever.
//! - `used` is the number of frames that have memory.

use testudo_base::{
    num::{low32, u32_of, u64_of, usize_of},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use super::pins::{Claim, FrameRef, GROUP_FRAMES, Group};

const FIRST_BUCKET_LOG: u32 = 4;
/// Buckets: 2^24 groups, or 4 TiB.
const BUCKETS: usize = 20;
/// Least number that no group has.
pub(crate) const GROUPS_MAX: usize = ((1 << BUCKETS) - 1) << FIRST_BUCKET_LOG;

/// Where one bucket's groups are.
type Bucket = Box<[OnceLock<Box<Group>>]>;

#[derive(Debug, Default)]
pub(crate) struct FrameTable {
    buckets: [OnceLock<Bucket>; BUCKETS],
    /// Groups that were made.
    group_count: AtomicUsize,
    /// All groups before this one have memory.
    first_idle: AtomicUsize,
    used: AtomicUsize,
}

impl FrameTable {
    #[inline]
    fn place(group: usize) -> (usize, usize) {
        let shifted = group + (1 << FIRST_BUCKET_LOG);
        let log = shifted.ilog2();
        (usize_of(u64::from(log - FIRST_BUCKET_LOG)), shifted - (1 << log))
    }

    /// A group, if it was made.
    #[inline]
    pub(crate) fn group(&self, group: usize) -> Option<&Group> {
        let (bucket, at) = Self::place(group);
        self.buckets.get(bucket)?.get()?.get(at)?.get().map(|group| &**group)
    }

    /// The frame with this number, if there ever was one.
    #[inline]
    pub(crate) fn frame(&self, number: u32) -> Option<FrameRef<'_>> {
        let number = usize_of(u64::from(number));
        Some(self.group(number / GROUP_FRAMES)?.frame(number % GROUP_FRAMES))
    }

    /// Numbers of frames are below this; a multiple of [`GROUP_FRAMES`].
    pub(crate) fn positions(&self) -> usize {
        self.group_count.load(Relaxed) * GROUP_FRAMES
    }

    /// Frames that have memory.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Gives one group `count` frames of memory, and returns their numbers. REQUIRES: one call at a time,
    /// also of [`FrameTable::remove`]; fewer than [`GROUPS_MAX`] groups have memory.
    pub(crate) fn add(&self, count: usize) -> std::ops::Range<u32> {
        let made = self.group_count.load(Relaxed);
        let is_idle = |&number: &usize| self.group(number).is_some_and(|group| group.frame_count() == 0);
        let from = self.first_idle.load(Relaxed);
        let number = (from..made).find(is_idle).unwrap_or(made);
        self.first_idle.store(number + 1, Relaxed);
        debug_assert!(number < GROUPS_MAX, "fewer groups than that have memory");
        let first = u32_of(number * GROUP_FRAMES);
        let (bucket, at) = Self::place(number);
        let bucket_groups = 1_usize << (low32(u64_of(bucket)) + FIRST_BUCKET_LOG);
        let bucket =
            self.buckets[bucket].get_or_init(|| (0..bucket_groups).map(|_| OnceLock::new()).collect());
        bucket[at].get_or_init(|| Box::new(Group::new(first))).provide(count);
        self.used.fetch_add(count, Relaxed);
        self.group_count.fetch_max(number + 1, Relaxed);
        first..first + u32_of(count)
    }

    /// Frees the memory of a group, given the claims on all of its frames.
    pub(crate) fn remove(&self, group: &Group, claims: Vec<Claim<'_>>) {
        let before = self.used.fetch_sub(claims.len(), Relaxed);
        debug_assert!(before >= claims.len(), "frames with memory are counted");
        self.first_idle.fetch_min(group.number(), Relaxed);
        group.take_back(claims);
    }

    /// Bytes of the table itself, about.
    pub(crate) fn table_bytes(&self) -> u64 {
        u64_of(self.group_count.load(Relaxed) * (size_of::<Group>() + size_of::<OnceLock<Box<Group>>>()))
    }
}
