//! Separators that trees keep between the runs of a sequence and between the children of a node.
//!
//! They are exact, because they route keys, and so can be as long as keys. Adjacent long ones store their
//! common prefix only once ([`share_starts`]), and copies share everything.
//!
//! **Invariants**
//! - The representation of a fence is invisible: order and equality are those of its bytes.

use std::{borrow::Cow, cmp::Ordering, sync::Arc};

use testudo_base::key::common_prefix;
use testudo_run::{KeyBounds, MAX_END_BYTES};

/// Minimum prefix worth sharing, in bytes.
const SHARED_BYTES_MIN: usize = 768;

/// A separator key.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    /// Its first `start_bytes` bytes, which it may share with others.
    start: Option<Arc<[u8]>>,
    start_bytes: usize,
    rest: Arc<[u8]>,
}

impl From<&[u8]> for Fence {
    fn from(key: &[u8]) -> Self {
        Self { rest: key.into(), ..Self::default() }
    }
}

impl From<Arc<[u8]>> for Fence {
    fn from(rest: Arc<[u8]>) -> Self {
        Self { rest, ..Self::default() }
    }
}

impl From<Vec<u8>> for Fence {
    fn from(key: Vec<u8>) -> Self {
        Self { rest: key.into(), ..Self::default() }
    }
}

impl Fence {
    /// Creates the fence of the first `shared` bytes of `before`, and `tail`.
    ///
    /// In a chain of fences made this way, each takes little more memory than its tail, or than the prefix
    /// that it is the first one to share.
    pub fn after(before: &Self, shared: usize, tail: &[u8]) -> Self {
        debug_assert!(shared <= before.len(), "both have what they share");
        if shared <= before.start_bytes {
            let start = before.start.clone().filter(|_| shared > 0);
            return Self { start, start_bytes: shared, rest: tail.into() };
        }
        let of_rest = shared - before.start_bytes;
        if of_rest >= SHARED_BYTES_MIN {
            let start = [before.start(), &before.rest[..of_rest]].concat().into();
            return Self { start: Some(start), start_bytes: shared, rest: tail.into() };
        }
        let rest = [&before.rest[..of_rest], tail].concat().into();
        Self { start: before.start.clone(), start_bytes: before.start_bytes, rest }
    }

    /// Creates the fence `key`, which shares a prefix with `before` if that is worthwhile.
    pub fn beside(before: &Self, key: &[u8]) -> Self {
        if key.len() < SHARED_BYTES_MIN {
            return key.into();
        }
        let shared = common_prefix(&before.bytes(), key);
        let fence = Self::after(before, shared, &key[shared..]);
        debug_assert!(fence.order_to(key) == Ordering::Equal, "the representation is invisible");
        fence
    }

    /// Whether it is the least key.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.start_bytes == 0
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.start_bytes + self.rest.len()
    }

    /// Returns all of its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        [self.start(), &self.rest].concat()
    }

    /// Returns all of its bytes, borrowed if no prefix is shared.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        if self.start_bytes == 0 { Cow::Borrowed(&self.rest) } else { Cow::Owned(self.to_vec()) }
    }

    /// Returns a prefix that is long enough to compare with the ends of a run.
    pub fn head(&self) -> Cow<'_, [u8]> {
        match self.start().get(..=MAX_END_BYTES) {
            Some(head) => Cow::Borrowed(head),
            None => self.bytes(),
        }
    }

    /// Returns it as a lower bound; `None` if it is the least key.
    pub fn as_low(&self) -> Option<Self> {
        (!self.is_empty()).then(|| self.clone())
    }

    fn start(&self) -> &[u8] {
        self.start.as_deref().map_or(&[], |start| &start[..self.start_bytes])
    }

    /// Whether it is less than or equal to `key`.
    #[inline]
    pub fn is_at_most(&self, key: &[u8]) -> bool {
        match &self.start {
            None => &*self.rest <= key,
            Some(_) => self.order_to(key) != Ordering::Greater,
        }
    }

    /// Whether it is less than `key`.
    #[inline]
    pub fn is_less_than(&self, key: &[u8]) -> bool {
        self.order_to(key) == Ordering::Less
    }

    /// Compares it with `key`.
    #[inline]
    pub fn order_to(&self, key: &[u8]) -> Ordering {
        let start = self.start();
        let (begin, end) = key.split_at(start.len().min(key.len()));
        start.cmp(begin).then_with(|| (*self.rest).cmp(end))
    }

    /// Whether both begin with the same shared prefix.
    fn begins_as(&self, other: &Self) -> bool {
        let is_one = match (&self.start, &other.start) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        is_one && self.start_bytes == other.start_bytes
    }
}

impl PartialEq for Fence {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Fence {}

impl PartialOrd for Fence {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fence {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.begins_as(other) {
            return self.rest.cmp(&other.rest);
        }
        if other.start_bytes == 0 { self.order_to(&other.rest) } else { self.order_to(&other.to_vec()) }
    }
}

/// The keys from `low` (inclusive) to `high` (exclusive), like [`KeyBounds`], but cheap to copy in large
/// plans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Inclusive lower bound.
    pub low: Option<Fence>,
    /// Exclusive upper bound.
    pub high: Option<Fence>,
}

impl From<&KeyBounds> for Bounds {
    fn from(keys: &KeyBounds) -> Self {
        let fence = |key: &Vec<u8>| Fence::from(key.as_slice());
        let low = keys.low.as_ref().and_then(|low| fence(low).as_low());
        Self { low, high: keys.high.as_ref().map(fence) }
    }
}

impl Bounds {
    /// Whether `key` is inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.low.as_ref().is_none_or(|low| low.is_at_most(key))
            && self.high.as_ref().is_none_or(|high| !high.is_at_most(key))
    }

    /// Whether no key can be inside.
    pub fn is_empty(&self) -> bool {
        matches!((&self.low, &self.high), (Some(low), Some(high)) if low >= high)
            || self.high.as_ref().is_some_and(Fence::is_empty)
    }

    /// Returns the keys inside both.
    pub fn intersection(&self, other: &Self) -> Self {
        let low = match (&self.low, &other.low) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.as_ref().or(b.as_ref()),
        };
        let high = match (&self.high, &other.high) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.as_ref().or(b.as_ref()),
        };
        Self { low: low.cloned(), high: high.cloned() }
    }

    /// Splits into the keys before `key` and those from `key` on.
    pub fn cut_at(self, key: &Fence) -> Vec<Self> {
        debug_assert!(self.contains(&key.bytes()), "the key is inside");
        let (before, behind) = (Some(key.clone()), Some(key.clone()));
        vec![Self { low: self.low, high: before }, Self { low: behind, high: self.high }]
    }

    /// Converts to owned keys.
    pub fn to_keys(&self) -> KeyBounds {
        KeyBounds { low: self.low.as_ref().map(Fence::to_vec), high: self.high.as_ref().map(Fence::to_vec) }
    }
}

/// Makes long fences share their common prefixes.
pub fn share_starts(mut fences: Vec<&mut Fence>) {
    fences.retain(|fence| fence.len() >= SHARED_BYTES_MIN);
    fences.sort_unstable();
    let mut before = Fence::default();
    for fence in fences {
        *fence = Fence::beside(&before, &fence.to_vec());
        before = fence.clone();
    }
}

#[cfg(test)]
mod tests;
