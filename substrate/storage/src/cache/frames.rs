//! All frames by number: a table of groups that grows and never moves.
//!
//! A group's metadata (1 % of its memory) is never freed; the memory of its pages is allocated and freed. The
//! table grows in buckets of doubling size, so that a small cache has a small table.
//!
//! **Invariants**
//! - A frame's number is its group's number × frames per group + its index in the group; it never changes.
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
/// Number of buckets: 2^24 groups, or 4 TiB.
const BUCKETS: usize = 20;
/// Maximum number of groups.
pub(crate) const GROUPS_MAX: usize = ((1 << BUCKETS) - 1) << FIRST_BUCKET_LOG;

/// Groups of one bucket.
type Bucket = Box<[OnceLock<Box<Group>>]>;

#[derive(Debug, Default)]
pub(crate) struct FrameTable {
    buckets: [OnceLock<Bucket>; BUCKETS],
    /// Number of groups created.
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

    /// Returns a group, if it has been created.
    #[inline]
    pub(crate) fn group(&self, group: usize) -> Option<&Group> {
        let (bucket, at) = Self::place(group);
        self.buckets.get(bucket)?.get()?.get(at)?.get().map(|group| &**group)
    }

    /// Returns the frame with this number, if its group has been created.
    #[inline]
    pub(crate) fn frame(&self, number: u32) -> Option<FrameRef<'_>> {
        let number = usize_of(u64::from(number));
        Some(self.group(number / GROUP_FRAMES)?.frame(number % GROUP_FRAMES))
    }

    /// Exclusive upper bound of frame numbers; a multiple of [`GROUP_FRAMES`].
    pub(crate) fn positions(&self) -> usize {
        self.group_count.load(Relaxed) * GROUP_FRAMES
    }

    /// Number of frames that have memory.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Allocates `count` frames of one group and returns their numbers. REQUIRES: no concurrent call, nor one
    /// of [`FrameTable::remove`]; fewer than [`GROUPS_MAX`] groups have memory.
    pub(crate) fn add(&self, count: usize) -> std::ops::Range<u32> {
        debug_assert!((1..=GROUP_FRAMES).contains(&count), "a part of a group");
        let made = self.group_count.load(Relaxed);
        let is_idle = |&number: &usize| self.group(number).is_some_and(|group| group.frame_count() == 0);
        let from = self.first_idle.load(Relaxed);
        let number = (from..made).find(is_idle).unwrap_or(made);
        self.first_idle.store(number + 1, Relaxed);
        debug_assert!(number < GROUPS_MAX, "too many groups");
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
        debug_assert!(before >= claims.len(), "frame count underflows");
        self.first_idle.fetch_min(group.number(), Relaxed);
        group.take_back(claims);
    }

    /// Approximate bytes of the table itself.
    pub(crate) fn table_bytes(&self) -> u64 {
        u64_of(self.group_count.load(Relaxed) * (size_of::<Group>() + size_of::<OnceLock<Box<Group>>>()))
    }
}
