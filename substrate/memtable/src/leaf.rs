//! A leaf: the entries of one range of keys in sorted groups.
//!
//! Entries are found by the eight bytes after `skip`, a prefix length shared by all keys of the leaf; a
//! record is read only if these are equal. `fence_skip`, the prefix length shared by the fences, applies to
//! every key ever searched here. Where the present keys share much more, `skip` exceeds it, and a key is
//! first compared with the shared bytes.
//!
//! **Invariants**
//! - Keys ascend strictly, within and across groups; the head of a key is taken after its first `skip` bytes.
//! - All keys share their first `skip` bytes and their first `fence_skip` bytes.
//! - The first `group_count` groups exist and are not empty; `firsts[i]` is the first head of group `i`, and
//!   `u64::MAX` beyond.
//! - The first record of an entry is its newest version; `prev` links to older ones, in strict order.
//! - A version with operands contains those of all older versions of its key in this memtable, and the value
//!   they change if that is here, too.
//! - Over all leaves, the versions inserted plus the versions made of operands equal the newest versions of
//!   all keys plus those counted by `drops`.
//! - Over all leaves, `user_bytes` is the sum over the newest versions; a split divides it by the number of
//!   keys.

mod versions;

use std::cmp::Ordering;

use testudo_base::{
    DropCounts, DropSink, Entry, Kind, Seqno,
    key::{common_prefix, head, separator},
    merge_operator::FullMerge,
    num::{u64_of, usize_of},
};

use crate::{
    arena::{Arena, Held, Record, Version, View},
    group::{GROUP_ENTRIES, Group, count},
};

/// Groups of a full leaf.
const GROUPS: usize = GROUP_ENTRIES;
/// Additional bytes shared by the fences, beyond `skip`, from which on rebuilding the heads pays off.
const FENCE_SKIP_GAIN: usize = 3;
/// As above, for bytes shared by the existing keys; every later key must then be compared with them.
const SKIP_GAIN: usize = 6;

/// Number of records prefetched ahead of the visited one.
const PREFETCH_ENTRIES: usize = 4;

/// Result of one insert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InsertOutcome {
    /// Bytes by which [`crate::Memtable::memory_bytes`] grew.
    pub memory_bytes_added: usize,
    /// The key was not in the memtable before.
    pub new_key: bool,
    /// The version replaced its predecessor and reused its memory.
    pub replaced_in_place: bool,
    /// The version was not stored, because a newer one is there and no snapshot needs this one.
    pub obsolete: bool,
    /// Bytes of the entry that the operands were stacked on; 0 for other versions and for the first one of a
    /// key.
    pub stacked_bytes: usize,
}

/// A position in a leaf; `at` may be just past the last entry of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    group: usize,
    at: usize,
}

impl Slot {
    /// The slot after this one.
    pub(crate) fn next(self) -> Self {
        Self { at: self.at + 1, ..self }
    }
}

/// The fields changed by every insert come first, in one cache line with the lock around it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Leaf<'id> {
    lens: [u8; GROUPS],
    user_bytes: i64,
    min_seqno: Seqno,
    max_seqno: Seqno,
    drops: Drops,
    len: u16,
    group_count: u8,
    firsts: [u64; GROUPS],
    groups: [Option<Held<'id, Group<'id>>>; GROUPS],
    skip: usize,
    fence_skip: usize,
    garbage_bytes: u64,
    /// Drops by stacked operands, and overflow of `drops`.
    rarer_drops: DropCounts,
}

/// Versions that will not be flushed because newer ones of their keys exist.
#[repr(C, packed(4))]
#[derive(Clone, Copy, Debug, Default)]
struct Drops {
    bytes: u64,
    entries: u32,
}

/// Counts the dropped versions of a leaf.
struct VersionSink<'a> {
    drops: &'a mut Drops,
    rarer: &'a mut DropCounts,
}

impl DropSink for VersionSink<'_> {
    #[inline]
    fn dropped(&mut self, entry: &Entry<'_>) {
        let Some(entries) = self.drops.entries.checked_add(1) else { return self.rarer.dropped(entry) };
        self.drops.entries = entries;
        self.drops.bytes += u64_of(entry.user_bytes());
    }

    fn made(&mut self, entry: &Entry<'_>) {
        self.rarer.made(entry);
    }
}

impl<'id> Leaf<'id> {
    /// An empty leaf for keys that all share their first `fence_skip` bytes.
    pub(crate) fn new(fence_skip: usize) -> Self {
        Self {
            firsts: [u64::MAX; GROUPS],
            lens: [0; GROUPS],
            groups: [const { None }; GROUPS],
            group_count: 0,
            len: 0,
            skip: fence_skip,
            fence_skip,
            user_bytes: 0,
            garbage_bytes: 0,
            drops: Drops::default(),
            rarer_drops: DropCounts::default(),
            min_seqno: Seqno(u64::MAX),
            max_seqno: Seqno(0),
        }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    #[inline]
    fn group_count(&self) -> usize {
        usize::from(self.group_count)
    }

    /// Approximate bytes of keys and newest values; see the invariants.
    pub(crate) fn user_bytes(&self) -> i64 {
        self.user_bytes
    }

    /// Bytes of unreferenced records.
    pub(crate) fn garbage_bytes(&self) -> u64 {
        self.garbage_bytes
    }

    /// Versions that will not be flushed because newer ones of their keys exist, including those that
    /// snapshots read.
    pub(crate) fn drops(&self) -> DropCounts {
        let Drops { bytes, entries } = self.drops;
        let mut drops = self.rarer_drops;
        drops.dropped_entries += u64::from(entries);
        drops.dropped_bytes += bytes;
        drops
    }

    /// Least and greatest seqno ever inserted; the least is above the greatest if there is none.
    pub(crate) fn seqnos(&self) -> (Seqno, Seqno) {
        (self.min_seqno, self.max_seqno)
    }

    #[inline]
    fn group(&self, at: usize) -> &Group<'id> {
        self.groups[at].as_ref().expect("the group exists")
    }

    #[inline]
    fn group_mut(&mut self, at: usize) -> &mut Group<'id> {
        self.groups[at].as_mut().expect("the group exists")
    }

    fn records(&self) -> impl DoubleEndedIterator<Item = &Record<'id>> {
        self.groups.iter().flatten().flat_map(|group| group.records())
    }

    /// The first and the last key.
    fn ends<'a>(&'a self, arena: &'a Arena<'id>) -> Option<(&'a [u8], &'a [u8])> {
        let first = self.records().next()?;
        let last = self.records().next_back()?;
        Some((arena.view(first).key(), arena.view(last).key()))
    }

    /// The greatest key.
    pub(crate) fn last_key<'a>(&'a self, arena: &'a Arena<'id>) -> Option<&'a [u8]> {
        self.ends(arena).map(|(_, last)| last)
    }

    /// The least key.
    pub(crate) fn first_key<'a>(&'a self, arena: &'a Arena<'id>) -> Option<&'a [u8]> {
        self.ends(arena).map(|(first, _)| first)
    }

    /// The newest version of an entry.
    #[inline]
    pub(crate) fn newest<'a>(&'a self, arena: &'a Arena<'id>, slot: Slot) -> View<'a> {
        arena.view(self.group(slot.group).record(slot.at))
    }

    /// Number of entries before a slot.
    pub(crate) fn rank(&self, slot: Slot) -> usize {
        self.lens[..slot.group].iter().map(|&len| usize::from(len)).sum::<usize>() + slot.at
    }

    /// The slot past the last entry.
    pub(crate) fn end(&self) -> Slot {
        let group = self.group_count().saturating_sub(1);
        Slot { group, at: usize::from(self.lens[group]) }
    }

    /// Finds the entry of `key`, or its insertion slot.
    #[inline]
    pub(crate) fn search(&self, arena: &Arena<'id>, key: &[u8]) -> Result<Slot, Slot> {
        self.search_in(arena, key, Group::prefetch)
    }

    /// Like [`Leaf::search`], with a function to load the group.
    #[expect(clippy::inline_always, reason = "a call would cost 50 of the 700 instructions of a read")]
    #[inline(always)]
    fn search_in(
        &self,
        arena: &Arena<'id>,
        key: &[u8],
        load: impl FnOnce(&Group<'id>),
    ) -> Result<Slot, Slot> {
        if self.group_count == 0 {
            return Err(Slot { group: 0, at: 0 });
        }
        if self.skip > self.fence_skip {
            match self.compare_shared(arena, key) {
                Ordering::Less => return Err(Slot { group: 0, at: 0 }),
                Ordering::Greater => return Err(self.end()),
                Ordering::Equal => {}
            }
        }
        let tail = &key[self.skip..];
        let wanted = head(tail);
        let tail_of = |record| &arena.view(record).key()[self.skip..];
        // Find the last group that starts at or before the key; read records only where heads are equal.
        let (mut group, up_to) = count(&self.firsts, wanted);
        let mut up_to = up_to.min(self.group_count());
        while group < up_to {
            let middle = group + (up_to - group) / 2;
            if tail_of(self.group(middle).record(0)) <= tail { group = middle + 1 } else { up_to = middle }
        }
        let group = group.saturating_sub(1);
        let content = self.group(group);
        load(content);
        let (mut at, mut end) = content.equal_range(usize::from(self.lens[group]), wanted);
        while at < end {
            let middle = at + (end - at) / 2;
            arena.view(content.record(middle)).prefetch();
            match tail_of(content.record(middle)).cmp(tail) {
                Ordering::Less => at = middle + 1,
                Ordering::Equal => return Ok(Slot { group, at: middle }),
                Ordering::Greater => end = middle,
            }
        }
        Err(Slot { group, at })
    }

    /// Compares `key` with the prefix shared by all present keys.
    fn compare_shared(&self, arena: &Arena<'id>, key: &[u8]) -> Ordering {
        let first = arena.view(self.group(0).record(0)).key();
        key[..self.skip.min(key.len())].cmp(&first[..self.skip])
    }

    /// Inserts a version; returns `None` if the key is new and its group and leaf have no room. Older
    /// versions at or before `keep_from`, the newest snapshot, are kept.
    pub(crate) fn insert(
        &mut self,
        arena: &Arena<'id>,
        version: &Version<'_>,
        keep_from: Option<Seqno>,
        full_merge: &FullMerge,
    ) -> Option<InsertOutcome> {
        let outcome = match self.search_in(arena, version.key, Group::prefetch_to_write) {
            Ok(slot) if version.kind == Kind::Operands => {
                self.add_operands(arena, slot, version, keep_from, full_merge)
            }
            Ok(slot) => self.update(arena, slot, version, keep_from),
            Err(slot) if self.has_room_at(slot) => self.add(arena, slot, version),
            Err(_) => return None,
        };
        self.min_seqno = self.min_seqno.min(version.seqno);
        self.max_seqno = self.max_seqno.max(version.seqno);
        Some(outcome)
    }

    /// Whether `key` is present or can be added without splitting the leaf.
    pub(crate) fn has_room_for(&self, arena: &Arena<'id>, key: &[u8]) -> bool {
        self.search(arena, key).map_or_else(|slot| self.has_room_at(slot), |_| true)
    }

    fn has_room_at(&self, slot: Slot) -> bool {
        self.group_count() < GROUPS || usize::from(self.lens[slot.group]) < GROUP_ENTRIES
    }

    /// Adds an entry for a new key. REQUIRES: there is room at `slot`.
    fn add(&mut self, arena: &Arena<'id>, slot: Slot, version: &Version<'_>) -> InsertOutcome {
        debug_assert!(self.has_room_at(slot), "there is room");
        if self.skip > self.fence_skip
            && let Some((first, _)) = self.ends(arena)
        {
            let shared = common_prefix(version.key, first);
            if shared < self.skip {
                self.rebuild_heads(arena, shared);
            }
        }
        let (Slot { group, at }, index_grown) = self.grow(arena, slot);
        let (record, grown) = arena.write(version, None);
        let (len, head) = (usize::from(self.lens[group]), head(&version.key[self.skip..]));
        let content = self.group_mut(group);
        content.insert(len, at, head, record);
        self.firsts[group] = content.first_head();
        self.lens[group] += 1;
        self.len += 1;
        self.user_bytes += signed(version.key.len() + version.value.len());
        debug_assert!(usize::from(self.lens[group]) <= GROUP_ENTRIES, "a group has room for the entry");
        if matches!(self.len, 16 | 64 | 192) {
            self.adapt_skip(arena);
        }
        let memory_bytes_added = usize_of(grown + index_grown);
        InsertOutcome { memory_bytes_added, new_key: true, ..InsertOutcome::default() }
    }

    /// Splits the group of `slot` if it is full; returns the new slot, and the bytes by which the arena grew.
    fn grow(&mut self, arena: &Arena<'id>, slot: Slot) -> (Slot, u64) {
        let Slot { group, at } = slot;
        let count = self.group_count();
        if count > 0 && usize::from(self.lens[group]) < GROUP_ENTRIES {
            return (slot, 0);
        }
        let (mut right, grown) = arena.hold(Group::new());
        if count == 0 {
            (self.groups[0], self.group_count) = (Some(right), 1);
            return (slot, grown);
        }
        // For ascending inserts, keep full groups.
        let keep = if slot == self.end() { GROUP_ENTRIES } else { GROUP_ENTRIES / 2 };
        self.group_mut(group).split(keep, &mut right);
        self.firsts.copy_within(group + 1..count, group + 2);
        self.lens.copy_within(group + 1..count, group + 2);
        self.groups[group + 1..=count].rotate_right(1);
        self.firsts[group + 1] = right.first_head();
        (self.lens[group], self.lens[group + 1]) = (entries(keep), entries(GROUP_ENTRIES - keep));
        self.groups[group + 1] = Some(right);
        self.group_count += 1;
        debug_assert!(self.group_count() <= GROUPS, "a leaf has room for the group");
        let is_right = at > keep || keep == GROUP_ENTRIES;
        (if is_right { Slot { group: group + 1, at: at - keep } } else { slot }, grown)
    }

    /// Returns where to split before `key` is inserted: the number of groups that stay, and the fence.
    ///
    /// Usually in the middle; for ascending inserts at the end, which leaves full leaves. REQUIRES: there is
    /// no room for `key`.
    pub(crate) fn split_point(&self, arena: &Arena<'id>, key: &[u8]) -> (usize, Vec<u8>) {
        debug_assert!(!self.has_room_for(arena, key), "only a leaf without room is split");
        let key_of = |slot| self.newest(arena, slot).key();
        let end = self.end();
        if self.search(arena, key) == Err(end) {
            return (self.group_count(), separator(key_of(Slot { at: end.at - 1, ..end }), key));
        }
        let keep = self.group_count() / 2;
        debug_assert!(keep > 0, "a full leaf has groups on both sides");
        let last = Slot { group: keep - 1, at: usize::from(self.lens[keep - 1]) - 1 };
        (keep, separator(key_of(last), key_of(Slot { group: keep, at: 0 })))
    }

    /// Keeps the first `keep` groups and returns a leaf with the rest. `left_skip` and `right_skip` are the
    /// prefix lengths shared by the fences of the two leaves.
    pub(crate) fn split(
        &mut self,
        arena: &Arena<'id>,
        keep: usize,
        left_skip: usize,
        right_skip: usize,
    ) -> Self {
        debug_assert!(keep > 0 && keep <= self.group_count(), "some groups stay");
        let mut right = Self::new(right_skip);
        for (to, from) in (keep..self.group_count()).enumerate() {
            right.groups[to] = self.groups[from].take();
            right.firsts[to] = std::mem::replace(&mut self.firsts[from], u64::MAX);
            right.lens[to] = std::mem::take(&mut self.lens[from]);
            right.len += u16::from(right.lens[to]);
        }
        let keep = entries(keep);
        right.group_count = self.group_count - keep;
        self.group_count = keep;
        right.user_bytes = self.user_bytes * i64::from(right.len) / i64::from(self.len);
        self.user_bytes -= right.user_bytes;
        self.len -= right.len;
        debug_assert_eq!(self.len(), self.rank(self.end()), "every entry is in one of the two");
        (right.min_seqno, right.max_seqno) = self.seqnos();
        if right.len > 0 {
            right.skip = self.skip;
        }
        right.set_fence_skip(arena, right_skip);
        self.set_fence_skip(arena, left_skip);
        right
    }

    /// Sets the prefix length shared by the fences, which never decreases.
    fn set_fence_skip(&mut self, arena: &Arena<'id>, fence_skip: usize) {
        self.fence_skip = fence_skip;
        if fence_skip >= self.skip + FENCE_SKIP_GAIN {
            self.rebuild_heads(arena, fence_skip);
        }
        self.adapt_skip(arena);
    }

    /// Raises `skip` if the present keys share so much that their heads barely differ.
    fn adapt_skip(&mut self, arena: &Arena<'id>) {
        if self.len < 16 {
            return;
        }
        if let Some((first, last)) = self.ends(arena) {
            let shared = common_prefix(first, last);
            if shared >= self.skip + SKIP_GAIN {
                self.rebuild_heads(arena, shared);
            }
        }
    }

    fn rebuild_heads(&mut self, arena: &Arena<'id>, skip: usize) {
        let skip = skip.max(self.fence_skip);
        debug_assert!(self.ends(arena).is_none_or(|(a, b)| common_prefix(a, b) >= skip), "all keys share it");
        self.skip = skip;
        for (group, first) in self.groups.iter_mut().flatten().zip(&mut self.firsts) {
            for (place, record) in group.heads_mut() {
                *place = head(&arena.view(record).key()[skip..]);
            }
            *first = group.first_head();
        }
    }

    /// Returns the first key at or after `low` whose newest version is newer than `since`.
    pub(crate) fn first_newer(&self, arena: &Arena<'id>, low: &[u8], since: Seqno) -> Option<Vec<u8>> {
        if self.len == 0 || self.max_seqno <= since {
            return None;
        }
        // The keys of a leaf to the right may have a different prefix than `low`.
        let is_before = self.first_key(arena).is_none_or(|first| low <= first);
        let from = if is_before {
            Slot { group: 0, at: 0 }
        } else {
            self.search(arena, low).unwrap_or_else(|slot| slot)
        };
        let mut found = None;
        self.visit_forward(arena, from, Seqno(u64::MAX), |view| {
            found = (view.seqno() > since).then(|| view.key().to_vec());
            found.is_none()
        });
        found
    }

    /// Visits entries from `start` on as of `at`, until `visit` returns false.
    pub(crate) fn visit_forward<'a>(
        &'a self,
        arena: &'a Arena<'id>,
        start: Slot,
        at: Seqno,
        visit: impl FnMut(View<'a>) -> bool,
    ) {
        let mut groups = self.groups[start.group..].iter().flatten();
        let first = groups.next().into_iter().flat_map(|group| group.records().skip(start.at));
        let rest = groups.flat_map(|group| group.records());
        visit_each(first.chain(rest), arena, at, visit);
    }

    /// Visits the entries before `end`, last first, as of `at`, until `visit` returns false.
    pub(crate) fn visit_backward<'a>(
        &'a self,
        arena: &'a Arena<'id>,
        end: Slot,
        at: Seqno,
        visit: impl FnMut(View<'a>) -> bool,
    ) {
        let mut groups = self.groups[..=end.group].iter().flatten().rev();
        let first = groups.next().into_iter().flat_map(|group| (0..end.at).rev().map(|at| group.record(at)));
        let rest = groups.flat_map(|group| group.records().rev());
        visit_each(first.chain(rest), arena, at, visit);
    }

    /// Address range of the fields changed by every insert.
    #[cfg(test)]
    pub(crate) fn changed_by_inserts(&self) -> std::ops::Range<usize> {
        let (first, last) = (std::ptr::from_ref(&self.lens), std::ptr::from_ref(&self.group_count));
        first.addr()..last.addr() + size_of_val(&self.group_count)
    }

    /// Checks the invariants of this file, and that all keys are in `[low, high)`; returns the bytes of keys
    /// and newest values.
    #[cfg(test)]
    pub(crate) fn check(&self, arena: &Arena<'id>, low: Option<&[u8]>, high: Option<&[u8]>) -> i64 {
        let mut user_bytes = 0;
        let mut previous: Option<&[u8]> = None;
        let mut len = 0;
        for (at, group) in self.groups.iter().enumerate() {
            let Some(group) = group else {
                assert!(at >= self.group_count() && self.lens[at] == 0 && self.firsts[at] == u64::MAX);
                continue;
            };
            assert!(at < self.group_count() && self.lens[at] > 0);
            assert_eq!(self.firsts[at], group.first_head());
            assert_eq!(group.records().count(), usize::from(self.lens[at]));
            for (slot, record) in group.records().enumerate() {
                let view = arena.view(record);
                let key = view.key();
                assert!(previous.is_none_or(|previous| previous < key));
                assert!(low.is_none_or(|low| low <= key) && high.is_none_or(|high| key < high));
                assert_eq!(self.search(arena, key), Ok(Slot { group: at, at: slot }));
                user_bytes += signed(key.len() + view.value().len());
                previous = Some(key);
                let mut newer = view;
                while let Some(older) = newer.prev() {
                    assert!(older.key() == key && older.seqno() < newer.seqno());
                    newer = older;
                }
                len += 1;
            }
        }
        assert_eq!(len, self.len());
        user_bytes
    }
}

fn visit_each<'a, 'id: 'a>(
    records: impl Iterator<Item = &'a Record<'id>> + Clone,
    arena: &'a Arena<'id>,
    at: Seqno,
    mut visit: impl FnMut(View<'a>) -> bool,
) {
    let mut ahead = records.clone();
    let mut prefetch = |count| ahead.by_ref().take(count).for_each(|record| arena.view(record).prefetch());
    prefetch(PREFETCH_ENTRIES);
    for record in records {
        prefetch(1);
        if let Some(view) = arena.view(record).visible_at(at)
            && !visit(view)
        {
            return;
        }
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("lengths fit in 63 bits")
}

fn entries(count: usize) -> u8 {
    u8::try_from(count).expect("a group has few entries")
}
