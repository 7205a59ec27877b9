//! Sorted keys that separate children, searched by eight-byte heads.
//!
//! Child `i` has the keys from fence `i - 1` (inclusive) to fence `i` (exclusive).
//!
//! **Invariants**
//! - Fences ascend strictly. All of them share their first `skip` bytes.
//! - `heads[i]` is the head of fence `i` after these bytes. `shared_mask` and `shared_head` cover the first
//!   eight of them.

use std::cmp::Ordering;

use testudo_base::{
    key::{common_prefix, head},
    num::{u32_of, u64_of},
};

#[derive(Debug, Default)]
pub(crate) struct Fences {
    skip: usize,
    /// Mask of the shared bytes in a head.
    shared_mask: u64,
    /// Head of a fence, masked by `shared_mask`.
    shared_head: u64,
    heads: Vec<u64>,
    keys: Vec<Box<[u8]>>,
    key_bytes: usize,
}

impl Fences {
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns fence `at`, if it exists.
    pub(crate) fn get(&self, at: usize) -> Option<&[u8]> {
        self.keys.get(at).map(|key| &**key)
    }

    /// Number of fences ≤ `key`: the child that has `key`.
    #[inline]
    pub(crate) fn child_of(&self, key: &[u8]) -> usize {
        self.rank(key, |fence| fence <= key)
    }

    /// Number of fences < `key`: the last child with keys below `key`.
    pub(crate) fn child_before(&self, key: &[u8]) -> usize {
        self.rank(key, |fence| fence < key)
    }

    #[inline]
    fn rank(&self, key: &[u8], is_left: impl Fn(&[u8]) -> bool) -> usize {
        match self.compare_shared(key) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.keys.len(),
            Ordering::Equal => {}
        }
        let wanted = head(&key[self.skip..]);
        let start = self.heads.partition_point(|&head| head < wanted);
        if self.heads.get(start) != Some(&wanted) {
            return start;
        }
        // Fences ascend, so among those with this head the ones to the left come first.
        let candidates = self.heads[start..].iter().zip(&self.keys[start..]);
        start + candidates.take_while(|&(&head, fence)| head == wanted && is_left(fence)).count()
    }

    /// Compares `key` with the prefix shared by the fences.
    #[inline]
    fn compare_shared(&self, key: &[u8]) -> Ordering {
        if self.skip <= 8 && key.len() >= 8 {
            return (head(key) & self.shared_mask).cmp(&self.shared_head);
        }
        let first = self.keys.first().map_or(&[][..], |first| &first[..self.skip]);
        key[..self.skip.min(key.len())].cmp(first)
    }

    /// Inserts a fence at index `at`. REQUIRES: it is between its neighbors there.
    pub(crate) fn insert(&mut self, at: usize, fence: Vec<u8>) {
        debug_assert!(
            (at == 0 || *self.keys[at - 1] < *fence) && self.keys.get(at).is_none_or(|next| *fence < **next),
            "fences ascend strictly"
        );
        self.key_bytes += fence.len();
        self.keys.insert(at, fence.into_boxed_slice());
        debug_assert_eq!(self.heads.len() + 1, self.keys.len(), "a head per fence");
        let skip = self.shared();
        if skip == self.skip {
            self.heads.insert(at, head(&self.keys[at][skip..]));
        } else {
            self.rebuild();
        }
    }

    /// Keeps the fences below index `at`; returns fence `at` and those above it.
    pub(crate) fn split(&mut self, at: usize) -> (Vec<u8>, Fences) {
        let above = self.keys.split_off(at + 1);
        let fence = self.keys.pop().expect("the fence exists").into_vec();
        let above_bytes = above.iter().map(|key| key.len()).sum();
        debug_assert!(self.key_bytes >= above_bytes + fence.len(), "bytes of fences are counted");
        self.key_bytes -= above_bytes + fence.len();
        self.rebuild();
        let mut right = Self { keys: above, key_bytes: above_bytes, ..Self::default() };
        right.rebuild();
        (fence, right)
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> u64 {
        u64_of(self.heads.capacity() * 8 + self.keys.capacity() * size_of::<Box<[u8]>>() + self.key_bytes)
    }

    fn shared(&self) -> usize {
        match (self.keys.first(), self.keys.last()) {
            (Some(first), Some(last)) => common_prefix(first, last),
            _ => 0,
        }
    }

    fn rebuild(&mut self) {
        self.skip = self.shared();
        self.shared_mask = u64::MAX.checked_shl(64 - 8 * u32_of(self.skip.min(8))).unwrap_or(0);
        self.shared_head = self.keys.first().map_or(0, |first| head(first) & self.shared_mask);
        self.heads.clear();
        self.heads.extend(self.keys.iter().map(|key| head(&key[self.skip..])));
    }
}

#[cfg(test)]
mod tests;
