//! The contents of a memtable after its first write.
//!
//! **Invariants**
//! - Lock order: `top`, then one leaf. Writers of records hold `top` shared and their leaf exclusively; only
//!   splitting a leaf and freezing hold `top` exclusively, and no leaf is locked then.
//! - Leaves and their groups are in the arena of [`Index`], so that a table is freed as a whole and leaves
//!   nothing in the allocator's heaps. `index_bytes` counts the top level's heap memory, which is small.

use std::{iter::Sum, mem, ops::ControlFlow};

use testudo_base::{
    DropCounts, Kind, MAX_KEY_BYTES, MAX_VALUE_BYTES, Seqno,
    chunks::ChunkPool,
    merge_operator::FullMerge,
    num::{u64_of, usize_of},
    prefetch::{AddressHint, LINE_BYTES},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use crate::{
    arena::{Version, View},
    index::Index,
    leaf::{InsertOutcome, Leaf},
    top::{Place, Top},
};

/// Bytes that [`Table::bytes_between`] counts for each entry in addition to key and value.
const ENTRY_OVERHEAD_BYTES: u64 = 8;

/// Number of leaves that [`Table::first_newer`] visits before it releases the top level.
const LEAVES_AT_ONCE: usize = 64;

/// Memory cost of table and top level to the process, as a multiple of their bytes. Blocks of many sizes,
/// allocated by one thread and freed by another, leave as much memory unused in the allocator's heaps.
const INDEX_COST: u64 = 2;

/// Top, leaves and records; see [`crate::Memtable`] for its methods.
///
/// The fields that every insert accesses come first, so that they can be prefetched.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Table {
    index: Index,
    /// Address of the only leaf, if there is just one.
    leaf: AddressHint,
    full_merge: Arc<FullMerge>,
    /// Heap bytes of the top; signed because the delta of one split may be negative.
    index_bytes: AtomicI64,
}

/// Cache lines of a table that an insert accesses: everything up to the first windows of the arena.
pub(crate) const INSERT_LINES: usize =
    (mem::offset_of!(Table, index) + Index::INSERT_BYTES).div_ceil(LINE_BYTES);

impl Table {
    /// Charge for the table itself, which is significant with thousands of keyspaces.
    const OWN_BYTES: u64 = u64_of(size_of::<Self>()) * INDEX_COST;

    pub(crate) fn new(pool: Arc<ChunkPool>, full_merge: Arc<FullMerge>) -> Self {
        let index = Index::new(pool);
        let leaf = AddressHint::default();
        let heap_bytes = index.with(|top, _| {
            let top = top.read();
            leaf.note(top.only_leaf());
            top.heap_bytes()
        });
        let table = Self { index, leaf, index_bytes: AtomicI64::new(0), full_merge };
        table.index.pool().charge(Self::OWN_BYTES);
        table.count_index(i64::try_from(heap_bytes).expect("an empty index is small"));
        table
    }

    /// Records that the index grew by `grown` bytes, which also count against the pool's limit.
    fn count_index(&self, grown: i64) {
        self.index_bytes.fetch_add(grown, Ordering::Relaxed);
        match u64::try_from(grown) {
            Ok(grown) => self.index.pool().charge(grown * INDEX_COST),
            Err(_) => self.index.pool().discharge(grown.unsigned_abs() * INDEX_COST),
        }
    }

    /// Whether it has so few leaves that all users contend for one lock.
    #[inline]
    pub(crate) fn is_small(&self) -> bool {
        self.index.is_small()
    }

    /// Address of the leaf, if there is just one.
    #[inline]
    pub(crate) fn only_leaf(&self) -> *const u8 {
        self.leaf.address()
    }

    /// Like [`crate::Memtable::insert`].
    pub(crate) fn insert(
        &self,
        seqno: Seqno,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        keep_from: Option<Seqno>,
    ) -> InsertOutcome {
        assert!(key.len() <= MAX_KEY_BYTES && u64_of(value.len()) <= MAX_VALUE_BYTES, "entry too long");
        let value = if kind == Kind::Tombstone { &[] } else { value };
        let version = Version { seqno, kind, key, value };
        let mut grown = 0;
        loop {
            if let Some(mut outcome) = self.try_insert(&version, keep_from) {
                outcome.memory_bytes_added += usize_of(u64::try_from(grown).unwrap_or(0));
                return outcome;
            }
            grown += self.split(key);
        }
    }

    /// Inserts a version; returns `None` if its leaf must be split first.
    #[inline]
    fn try_insert(&self, version: &Version<'_>, keep_from: Option<Seqno>) -> Option<InsertOutcome> {
        self.index.with(|top, arena| {
            let guard = top.read();
            let top: &Top<'_> = &guard;
            assert!(!top.frozen, "insert into a frozen memtable");
            let mut leaf = top.leaf_to_write(top.find(version.key)).write();
            leaf.insert(arena, version, keep_from, &self.full_merge)
        })
    }

    /// Splits the leaf for `key` if it still has no room for it; returns the bytes by which memory grew.
    fn split(&self, key: &[u8]) -> i64 {
        self.index.with(|lock, arena| {
            let mut top = lock.write();
            let place = top.find(key);
            if top.leaf(place).read().has_room_for(arena, key) {
                return 0;
            }
            let (mut grown, arena_grown) = top.split(arena, key);
            self.leaf.note(top.only_leaf());
            grown += lock.shard(top).cast_signed();
            self.count_index(grown);
            grown + arena_grown.cast_signed()
        })
    }

    /// Calls `f` with the newest version of `key` at or before `at`; `Seqno(u64::MAX)` selects the newest of
    /// all.
    ///
    /// `f` runs under the lock of the leaf: it should be short, and must not call this memtable.
    pub(crate) fn get<R>(&self, key: &[u8], at: Seqno, f: impl FnOnce(Kind, &[u8]) -> R) -> Option<R> {
        self.with_newest(key, |view| {
            let view = view.visible_at(at)?;
            Some(f(view.kind(), view.value()))
        })?
    }

    /// The seqno of the newest version of `key`.
    pub(crate) fn newest_seqno(&self, key: &[u8]) -> Option<Seqno> {
        self.with_newest(key, |view| view.seqno())
    }

    #[inline]
    fn with_newest<R>(&self, key: &[u8], f: impl FnOnce(View<'_>) -> R) -> Option<R> {
        self.index.with(|top, arena| {
            let guard = top.read();
            let top: &Top<'_> = &guard;
            let leaf = top.leaf(top.find(key)).read();
            let entry = leaf.search(arena, key).ok()?;
            Some(f(leaf.newest(arena, entry)))
        })
    }

    /// Bytes of memory, used or reserved: records, index, tables.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let index = u64::try_from(self.index_bytes.load(Ordering::Relaxed)).unwrap_or(0);
        u64_of(size_of::<Self>()) + index + self.index.arena_bytes()
    }

    /// Bytes of all keys and their newest values. Visits all leaves.
    pub(crate) fn user_bytes(&self) -> u64 {
        u64::try_from(self.sum(|leaf| leaf.user_bytes())).unwrap_or(0)
    }

    /// Bytes of memory still occupied by replaced records. Visits all leaves.
    pub(crate) fn garbage_bytes(&self) -> u64 {
        self.sum(|leaf| leaf.garbage_bytes())
    }

    /// Versions that will not be flushed. Visits all leaves.
    pub(crate) fn drops(&self) -> DropCounts {
        let mut drops = DropCounts::default();
        self.index.with(|top, _| top.read().leaves().for_each(|(_, leaf)| drops += leaf.read().drops()));
        drops
    }

    /// Number of keys. Visits all leaves.
    pub(crate) fn len(&self) -> usize {
        self.sum(|leaf| leaf.len())
    }

    /// Whether it has no keys.
    pub(crate) fn is_empty(&self) -> bool {
        self.index.with(|top, _| top.read().leaves().all(|(_, leaf)| leaf.read().len() == 0))
    }

    fn sum<N: Sum>(&self, of: impl Fn(&Leaf<'_>) -> N) -> N {
        self.index.with(|top, _| top.read().leaves().map(|(_, leaf)| of(&leaf.read())).sum())
    }

    /// Least seqno inserted. Visits all leaves.
    pub(crate) fn min_seqno(&self) -> Option<Seqno> {
        self.seqnos().map(|(min, _)| min)
    }

    /// Greatest seqno inserted. Visits all leaves.
    pub(crate) fn max_seqno(&self) -> Option<Seqno> {
        self.seqnos().map(|(_, max)| max)
    }

    fn seqnos(&self) -> Option<(Seqno, Seqno)> {
        self.index.with(|top, _| {
            let top = top.read();
            let spans = top.leaves().map(|(_, leaf)| leaf.read().seqnos());
            spans.filter(|(min, max)| min <= max).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        })
    }

    /// The least key.
    pub(crate) fn min_key(&self) -> Option<Vec<u8>> {
        self.index.with(|top, arena| {
            top.read().leaves().find_map(|(_, leaf)| Some(leaf.read().first_key(arena)?.to_vec()))
        })
    }

    /// The greatest key.
    pub(crate) fn max_key(&self) -> Option<Vec<u8>> {
        self.index.with(|top, arena| {
            top.read().leaves().rev().find_map(|(_, leaf)| Some(leaf.read().last_key(arena)?.to_vec()))
        })
    }

    /// Estimates the bytes of the entries in `[low, high)`: keys, newest values, and a small overhead per
    /// entry.
    ///
    /// Exact except where a bound is within a leaf, whose entries are assumed to have equal size. Visits the
    /// leaves of the range.
    pub(crate) fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64 {
        self.index.with(|top, arena| {
            let top = top.read();
            let place_of = |bound: Option<&[u8]>| bound.map(|key| top.find(key));
            let (first, last) = (place_of(low), place_of(high));
            let mut bytes = 0;
            for (place, leaf) in top.leaves_from(first.unwrap_or(Place::FIRST)) {
                if last.is_some_and(|last| place > last) {
                    break;
                }
                let leaf = leaf.read();
                let rank = |edge: Option<Place>, bound: Option<&[u8]>| {
                    let key = bound.filter(|_| edge == Some(place))?;
                    Some(u64_of(leaf.rank(leaf.search(arena, key).unwrap_or_else(|slot| slot))))
                };
                let len = u64_of(leaf.len());
                let from = rank(first, low).unwrap_or(0);
                let count = rank(last, high).unwrap_or(len).saturating_sub(from);
                bytes += count * ENTRY_OVERHEAD_BYTES
                    + u64::try_from(leaf.user_bytes()).unwrap_or(0) * count / len.max(1);
            }
            bytes
        })
    }

    /// Forbids further inserts. On return, no insert is in progress.
    pub(crate) fn freeze(&self) {
        self.index.with(|top, _| top.write().frozen = true);
    }

    /// See [`crate::Memtable::must_seal`].
    pub(crate) fn must_seal(&self) -> bool {
        self.index.is_half_named()
    }

    /// For tests: acts as if `count` more arena ids were in use.
    pub(crate) fn use_up_names(&self, count: u32) {
        self.index.use_up_names(count);
    }

    /// Visits entries as of `at` from `start` on (after it, if `exclusive`), until `visit` returns false;
    /// stops after the first leaf that had any.
    pub(crate) fn visit_from(
        &self,
        start: &[u8],
        exclusive: bool,
        at: Seqno,
        mut visit: impl FnMut(View<'_>) -> bool,
    ) {
        let mut fence: Option<Vec<u8>> = None;
        loop {
            let start = fence.as_deref().unwrap_or(start);
            let next = self.index.with(|top, arena| {
                let top = top.read();
                let place = top.find(start);
                let mut any = false;
                {
                    let leaf = top.leaf(place).read();
                    let from = match leaf.search(arena, start) {
                        Ok(slot) if exclusive && fence.is_none() => slot.next(),
                        Ok(slot) | Err(slot) => slot,
                    };
                    leaf.visit_forward(arena, from, at, |view| {
                        any = true;
                        visit(view)
                    });
                }
                top.high(place).filter(|_| !any).map(<[u8]>::to_vec)
            });
            debug_assert!(next.as_deref().is_none_or(|next| next > start), "scans advance");
            fence = next;
            if fence.is_none() {
                return;
            }
        }
    }

    /// Visits entries as of `at` below `end` (all, if there is none), last first, until `visit` returns
    /// false; stops after the first leaf that had any.
    pub(crate) fn visit_below(&self, end: Option<&[u8]>, at: Seqno, mut visit: impl FnMut(View<'_>) -> bool) {
        let mut fence: Option<Vec<u8>> = None;
        loop {
            let end = fence.as_deref().or(end);
            let next = self.index.with(|top, arena| {
                let top = top.read();
                let place = end.map_or_else(|| top.last(), |end| top.find_before(end));
                let mut any = false;
                {
                    let leaf = top.leaf(place).read();
                    let below =
                        end.map_or(leaf.end(), |end| leaf.search(arena, end).unwrap_or_else(|slot| slot));
                    leaf.visit_backward(arena, below, at, |view| {
                        any = true;
                        visit(view)
                    });
                }
                top.low(place).filter(|_| !any).map(<[u8]>::to_vec)
            });
            debug_assert!(
                next.as_deref().is_none_or(|next| end.is_none_or(|end| next < end)),
                "backward scans advance"
            );
            fence = next;
            if fence.is_none() {
                return;
            }
        }
    }

    /// See [`crate::Memtable::first_newer`].
    pub(crate) fn first_newer(&self, low: &[u8], high: Option<&[u8]>, since: Seqno) -> Option<Vec<u8>> {
        let is_below_high = |key: &[u8]| high.is_none_or(|high| key < high);
        let mut fence: Option<Vec<u8>> = None;
        loop {
            let low = fence.as_deref().unwrap_or(low);
            let searched = self.index.with(|top, arena| {
                // Splits wait for this lock.
                let top = top.read();
                let mut last = Place::FIRST;
                for (place, leaf) in top.leaves_from(top.find(low)).take(LEAVES_AT_ONCE) {
                    if let Some(found) = leaf.read().first_newer(arena, low, since) {
                        return ControlFlow::Break(Some(found).filter(|found| is_below_high(found)));
                    }
                    last = place;
                }
                match top.high(last) {
                    Some(next) if is_below_high(next) => ControlFlow::Continue(next.to_vec()),
                    _ => ControlFlow::Break(None),
                }
            });
            match searched {
                ControlFlow::Break(found) => return found,
                ControlFlow::Continue(next) => fence = Some(next),
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn arena_bytes(&self) -> u64 {
        self.index.arena_bytes()
    }

    /// Checks the invariants of the index, and that the reported bytes are correct.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.index.with(|lock, arena| {
            let top = lock.read();
            let index_bytes = top.heap_bytes() + lock.shards_bytes();
            let mut user_bytes = 0;
            for (place, leaf) in top.leaves() {
                let leaf = leaf.read();
                user_bytes += leaf.check(arena, top.low(place), top.high(place));
            }
            assert_eq!(user_bytes, top.leaves().map(|(_, leaf)| leaf.read().user_bytes()).sum());
            assert_eq!(u64_of(size_of::<Self>()) + index_bytes + arena.bytes(), self.memory_bytes());
        });
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.count_index(-self.index_bytes.load(Ordering::Relaxed));
        self.index.pool().discharge(Self::OWN_BYTES);
    }
}
