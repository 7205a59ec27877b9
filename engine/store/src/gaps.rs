//! Gaps of a keyspace: ranges of keys in which scans have found nothing but tombstones.
//!
//! A scan that has passed many tombstones leaves a gap behind, and later scans seek past it. So reading the
//! front of a queue costs the same however much was removed before it (decision 0060). A gap is a statement
//! about keys and seqnos, not about runs: flushes and compactions do not affect it.
//!
//! **Invariants**
//! - A known gap holds no live entry at its `since`, nor at any later seqno up to which no write to it was
//!   acknowledged: a commit that writes anything but a tombstone cuts the gaps at its keys before snapshots
//!   can see it.
//! - Known gaps are disjoint. Two adjacent gaps are joined unless a live snapshot lies between their seqnos:
//!   it can use the older one only.
//! - No scan uses a proposed gap; writes cut it as they cut known ones.
//! - Lock order: the list, then the list of snapshots.

use std::{
    collections::BTreeMap,
    mem,
    ops::Bound::{Excluded, Included, Unbounded},
};

use testudo_base::{
    Seqno,
    num::u64_of,
    planted,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// Number of parts between two cuts that a gap may be divided into.
const PARTS_KEPT: usize = 8;
/// Bytes of a gap in addition to its keys: map nodes, allocations.
const GAP_BYTES: u64 = 128;

/// A range of keys: `low` inclusive, `high` exclusive if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub low: Vec<u8>,
    pub high: Option<Vec<u8>>,
}

impl Stretch {
    fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|high| *high <= self.low)
    }

    fn holds(&self, key: &[u8]) -> bool {
        *self.low <= *key && self.high.as_deref().is_none_or(|high| key < high)
    }

    /// Truncates the range at `key`, exclusive.
    fn cut(&mut self, key: &[u8]) {
        if self.holds(key) {
            self.high = Some(key.to_vec());
        }
    }
}

/// Where a scan continues after a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edge {
    /// At this key, inclusive; backwards: below it.
    Key(Vec<u8>),
    /// There are no further keys.
    End,
}

/// A gap without its lower bound.
#[derive(Debug)]
struct Gap {
    high: Option<Box<[u8]>>,
    since: Seqno,
    /// A write has cut the gap at its lower bound, or its upper bound.
    has_cut_low: bool,
    has_cut_high: bool,
    /// A scan has used it since the last cut.
    is_used_since: AtomicBool,
    /// A scan has used it since the clock hand last passed.
    is_used: AtomicBool,
}

impl Gap {
    /// Whether `key`, which is not below the lower bound, is in the gap.
    fn reaches_beyond(&self, key: &[u8]) -> bool {
        self.high.as_deref().is_none_or(|high| key < high)
    }

    fn note_use(&self) {
        self.is_used.store(true, Relaxed);
        self.is_used_since.store(true, Relaxed);
    }

    fn bytes(&self, low: &[u8]) -> u64 {
        GAP_BYTES + u64_of(low.len()) + self.high.as_ref().map_or(0, |high| u64_of(high.len()))
    }
}

/// Ranges that a scan has found, until it is certain that no concurrent write hit them.
#[derive(Debug)]
struct Proposed {
    number: u64,
    stretches: Vec<Stretch>,
}

#[derive(Debug, Default)]
struct List {
    known: BTreeMap<Box<[u8]>, Gap>,
    proposed: Vec<Proposed>,
    /// Number of the next proposal.
    next_number: u64,
    bytes: u64,
    /// Maximum bytes of the gaps of all keyspaces.
    limit_bytes: u64,
    /// Position of the clock hand: the last gap it has passed.
    hand: Box<[u8]>,
}

/// The gaps of a keyspace.
#[derive(Debug)]
pub struct Gaps {
    /// Number of known and proposed gaps: a write with none skips the list.
    count: AtomicUsize,
    list: RwLock<List>,
    /// Bytes of the gaps of all keyspaces.
    total_bytes: Arc<AtomicU64>,
}

/// A proposed set of ranges; see [`Gaps::propose`].
#[derive(Debug)]
pub struct Proposal(u64);

/// Terms under which gaps are accepted.
pub struct Terms<'a> {
    /// The seqno of the scan that found them.
    pub since: Seqno,
    /// Whether no snapshot lies in this range of seqnos, end exclusive.
    pub is_free: &'a dyn Fn(Seqno, Seqno) -> bool,
    /// Maximum bytes of the gaps of all keyspaces.
    pub limit_bytes: u64,
}

impl Gaps {
    /// Creates an empty set; `total_bytes` counts the bytes of all keyspaces.
    pub fn new(total_bytes: &Arc<AtomicU64>) -> Self {
        Self { count: 0.into(), list: RwLock::default(), total_bytes: Arc::clone(total_bytes) }
    }

    /// Whether there are none. The lock of a memtable leaf orders this check after a proposal that read the
    /// leaf before the write did.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Where a scan at `at` that reaches `key` continues, if `key` is in a gap.
    pub fn end_of(&self, key: &[u8], at: Seqno) -> Option<Edge> {
        if self.is_empty() {
            return None;
        }
        let list = self.list.read();
        let is_seen = |gap: &Gap| gap.since <= at || planted!("gap-shown-to-older-snapshot");
        let below = list.known.range::<[u8], _>((Unbounded, Included(key))).next_back();
        let mut gap = below.map(|(_, gap)| gap).filter(|gap| gap.reaches_beyond(key) && is_seen(gap))?;
        loop {
            gap.note_use();
            let Some(high) = &gap.high else { return Some(Edge::End) };
            match list.known.get(high).filter(|next| is_seen(next)) {
                Some(next) => gap = next,
                None => return Some(Edge::Key(high.to_vec())),
            }
        }
    }

    /// Where a backward scan at `at` continues that reaches the keys just below `key`, or the last keys, if
    /// those are in a gap.
    pub fn begin_of(&self, key: Option<&[u8]>, at: Seqno) -> Option<Edge> {
        if self.is_empty() {
            return None;
        }
        let list = self.list.read();
        let is_seen = |gap: &Gap| gap.since <= at || planted!("gap-shown-to-older-snapshot");
        let before = |key: &[u8]| list.known.range::<[u8], _>((Unbounded, Excluded(key))).next_back();
        let reaches = |gap: &Gap| match (&gap.high, key) {
            (None, _) => true,
            (Some(high), Some(key)) => *key <= **high,
            (Some(_), None) => false,
        };
        let last = key.map_or_else(|| list.known.last_key_value(), before);
        let (mut low, mut gap) = last.filter(|(_, gap)| reaches(gap) && is_seen(gap))?;
        loop {
            gap.note_use();
            match before(low).filter(|(_, gap)| gap.high.as_ref() == Some(low) && is_seen(gap)) {
                Some(next) => (low, gap) = next,
                None if low.is_empty() => return Some(Edge::End),
                None => return Some(Edge::Key(low.to_vec())),
            }
        }
    }

    /// Cuts the gaps at `key`, for which a commit has inserted an entry other than a tombstone. REQUIRES: the
    /// commit still counts as in flight.
    #[inline]
    pub fn end_at(&self, key: &[u8]) {
        if !self.is_empty() && !planted!("gap-outlives-a-write") {
            self.end_in_list(key);
        }
    }

    #[cold]
    fn end_in_list(&self, key: &[u8]) {
        if self.list.read().holds(key) {
            let mut list = self.list.write();
            list.cut(key, &self.total_bytes);
            self.count.store(list.count(), Relaxed);
        }
    }

    /// Proposes ranges in which a scan has found no live entry. They become known once it is certain that
    /// nothing was written to them since: the caller checks for such writes after this call.
    pub fn propose(&self, stretches: Vec<Stretch>) -> Proposal {
        let mut list = self.list.write();
        let number = list.next_number;
        debug_assert!(list.proposed.iter().all(|earlier| earlier.number < number), "numbers ascend");
        list.next_number += 1;
        list.proposed.push(Proposed { number, stretches });
        self.count.store(list.count(), Relaxed);
        Proposal(number)
    }

    /// Drops a proposal.
    pub fn withdraw(&self, proposal: &Proposal) {
        let mut list = self.list.write();
        list.take(proposal);
        self.count.store(list.count(), Relaxed);
    }

    /// Makes a proposal known, truncating each range at the first of the keys `written` since.
    pub fn confirm(&self, proposal: &Proposal, written: &[Vec<u8>], terms: &Terms<'_>) {
        let mut list = self.list.write();
        for mut stretch in list.take(proposal) {
            written.iter().for_each(|key| stretch.cut(key));
            if !stretch.is_empty() {
                list.insert(&stretch, terms, &self.total_bytes);
            }
        }
        debug_assert!(self.total_bytes.load(Relaxed) >= list.bytes, "the total includes this keyspace");
        list.limit_bytes = terms.limit_bytes;
        list.evict(&self.total_bytes, &[]);
        self.count.store(list.count(), Relaxed);
    }
}

impl Drop for Gaps {
    fn drop(&mut self) {
        self.total_bytes.fetch_sub(self.list.get_mut().bytes, Relaxed);
    }
}

impl List {
    fn count(&self) -> usize {
        self.known.len() + self.proposed.len()
    }

    /// The known gap that contains `key`.
    fn gap_of(&self, key: &[u8]) -> Option<(&[u8], &Gap)> {
        let (low, gap) = self.known.range::<[u8], _>((Unbounded, Included(key))).next_back()?;
        gap.reaches_beyond(key).then_some((&**low, gap))
    }

    fn holds(&self, key: &[u8]) -> bool {
        let mut proposed = self.proposed.iter().flat_map(|proposed| &proposed.stretches);
        self.gap_of(key).is_some() || proposed.any(|stretch| stretch.holds(key))
    }

    fn take(&mut self, proposal: &Proposal) -> Vec<Stretch> {
        let at = self.proposed.iter().position(|proposed| proposed.number == proposal.0);
        debug_assert!(at.is_some(), "a proposal is confirmed or withdrawn once");
        at.map(|at| self.proposed.swap_remove(at).stretches).unwrap_or_default()
    }

    fn add(&mut self, low: Box<[u8]>, gap: Gap, total: &AtomicU64) {
        debug_assert!(gap.high.as_deref().is_none_or(|high| *low < *high), "a gap has room for a key");
        debug_assert!(
            self.known
                .range::<[u8], _>((Excluded(&*low), Unbounded))
                .next()
                .is_none_or(|(next, _)| gap.high.as_ref().is_some_and(|high| high <= next)),
            "gaps are disjoint"
        );
        debug_assert!(self.gap_of(&low).is_none(), "gaps are disjoint");
        let bytes = gap.bytes(&low);
        self.bytes += bytes;
        total.fetch_add(bytes, Relaxed);
        let before = self.known.insert(low, gap);
        debug_assert!(before.is_none(), "gaps are disjoint");
    }

    fn remove(&mut self, low: &[u8], total: &AtomicU64) -> Option<Gap> {
        let gap = self.known.remove(low)?;
        let bytes = gap.bytes(low);
        self.bytes -= bytes;
        total.fetch_sub(bytes, Relaxed);
        Some(gap)
    }

    /// Removes `key` from all gaps. A part between two cuts is dropped unless a scan has used it since the
    /// first of them: when a removed range is rewritten in order, such parts would be numerous and empty. If
    /// one contains tombstones, the next scan finds it again.
    fn cut(&mut self, key: &[u8], total: &AtomicU64) {
        let stretches = self.proposed.iter_mut().flat_map(|proposed| &mut proposed.stretches);
        stretches.for_each(|stretch| stretch.cut(key));
        let Some(low) = self.gap_of(key).map(|(low, _)| Box::<[u8]>::from(low)) else { return };
        let Some(gap) = self.remove(&low, total) else { return };
        let Gap { high, since, has_cut_low, has_cut_high, is_used_since, is_used } = gap;
        let (is_used, is_used_since) = (is_used.load(Relaxed), is_used_since.load(Relaxed));
        let part = |high, has_cut_low: bool, has_cut_high: bool| {
            (is_used_since || !has_cut_low || !has_cut_high).then(|| Gap {
                high,
                since,
                has_cut_low,
                has_cut_high,
                is_used_since: false.into(),
                is_used: is_used.into(),
            })
        };
        let behind: Box<[u8]> = successor(key).into();
        if high.as_ref() != Some(&behind)
            && let Some(part) = part(high, true, has_cut_high)
        {
            self.add(behind.clone(), part, total);
        }
        if *low != *key
            && let Some(part) = part(Some(key.into()), has_cut_low, true)
        {
            self.add(low.clone(), part, total);
        }
        self.evict(total, &[&low, &behind]);
    }

    /// Drops parts between two cuts that `stretch` covers, if there are many. They would divide it if a
    /// snapshot keeps them apart, and a stack leaves one part for each key.
    fn forget_parts(&mut self, stretch: &Stretch, since: Seqno, total: &AtomicU64) {
        let is_covered = |gap: &Gap| match (&gap.high, &stretch.high) {
            (_, None) => true,
            (Some(high), Some(end)) => **high <= **end,
            (None, Some(_)) => false,
        };
        let is_part = |gap: &Gap| gap.has_cut_low && gap.has_cut_high && gap.since <= since;
        let covered = self.known.range::<[u8], _>((Included(&*stretch.low), Unbounded));
        let covered = covered.take_while(|(low, _)| stretch.holds(low));
        let covered = covered.filter(|(_, gap)| is_part(gap) && is_covered(gap));
        let covered: Vec<_> = covered.map(|(low, _)| low.clone()).collect();
        if covered.len() > PARTS_KEPT {
            covered.iter().for_each(|low| _ = self.remove(low, total));
        }
    }

    /// Adds the parts of `stretch` that are in no gap.
    fn insert(&mut self, stretch: &Stretch, terms: &Terms<'_>, total: &AtomicU64) {
        self.forget_parts(stretch, terms.since, total);
        let high: Option<Box<[u8]>> = stretch.high.as_deref().map(Into::into);
        let mut from: Box<[u8]> = stretch.low.as_slice().into();
        while high.as_ref().is_none_or(|high| from < *high) {
            if let Some((_, gap)) = self.gap_of(&from) {
                match gap.high.clone() {
                    Some(high) => from = high,
                    None => return,
                }
                continue;
            }
            let next = self.known.range::<[u8], _>((Excluded(&*from), Unbounded)).next();
            let next =
                next.map(|(low, _)| low.clone()).filter(|low| high.as_ref().is_none_or(|high| low < high));
            let end = next.or_else(|| high.clone());
            let gap = Gap {
                high: end.clone(),
                since: terms.since,
                has_cut_low: false,
                has_cut_high: false,
                is_used_since: false.into(),
                is_used: false.into(),
            };
            self.add(from.clone(), gap, total);
            self.join_around(&from, terms, total);
            match end {
                Some(end) => from = end,
                None => return,
            }
        }
    }

    /// Joins the gap at `low` with adjacent ones, unless a snapshot could use only one of them.
    fn join_around(&mut self, low: &[u8], terms: &Terms<'_>, total: &AtomicU64) {
        let mut low: Box<[u8]> = low.into();
        while let Some(high) = self.known.get(&low).and_then(|gap| gap.high.clone()) {
            if !self.join(&low, &high, terms, total) {
                break;
            }
        }
        loop {
            let before = self.known.range::<[u8], _>((Unbounded, Excluded(&*low))).next_back();
            let Some(before) = before.filter(|(_, gap)| gap.high.as_ref() == Some(&low)) else { break };
            let before = before.0.clone();
            if !self.join(&before, &low, terms, total) {
                break;
            }
            low = before;
        }
    }

    /// Joins the adjacent gaps at `low` and `middle`; returns `false` if one does not exist or they must stay
    /// apart.
    fn join(&mut self, low: &[u8], middle: &[u8], terms: &Terms<'_>, total: &AtomicU64) -> bool {
        let since = |low| self.known.get(low).map(|gap: &Gap| gap.since);
        let (Some(one), Some(other)) = (since(low), since(middle)) else { return false };
        if one != other && !(terms.is_free)(one.min(other), one.max(other)) {
            return false;
        }
        let mut taken = |low| self.remove(low, total).expect("both are there");
        let (left, right) = (taken(low), taken(middle));
        debug_assert_eq!(left.high.as_deref(), Some(middle), "only adjacent gaps are joined");
        let gap = Gap {
            high: right.high,
            since: one.max(other),
            has_cut_low: left.has_cut_low,
            has_cut_high: right.has_cut_high,
            is_used_since: true.into(),
            is_used: (left.is_used.load(Relaxed) || right.is_used.load(Relaxed)).into(),
        };
        self.add(low.into(), gap, total);
        true
    }

    /// Evicts gaps that no scan has used recently, until those of all keyspaces fit the limit. Gaps that
    /// begin at `spared` are kept.
    fn evict(&mut self, total: &AtomicU64, spared: &[&[u8]]) {
        while total.load(Relaxed) > self.limit_bytes && self.known.len() > spared.len() {
            let behind = self.known.range::<[u8], _>((Excluded(&*self.hand), Unbounded)).next();
            let Some((low, gap)) = behind.or_else(|| self.known.first_key_value()) else { return };
            let (low, was_used) = (low.clone(), gap.is_used.swap(false, Relaxed));
            if !was_used && !spared.contains(&&*low) {
                self.remove(&low, total);
            }
            self.hand = low;
        }
        if self.known.is_empty() {
            mem::take(&mut self.hand);
        }
    }
}

/// The smallest key greater than `key`.
pub fn successor(key: &[u8]) -> Vec<u8> {
    let mut successor = Vec::with_capacity(key.len() + 1);
    successor.extend_from_slice(key);
    successor.push(0);
    successor
}

#[cfg(test)]
mod tests;
