//! Sorted keys that part one child from the next, searched by eight-byte heads.
//!
//! Child `i` has the keys from fence `i - 1` on, and below fence `i`.
//!
//! **Invariants**
//! - Fences ascend strictly. All of them share their first `skip` bytes.
//! - `heads[i]` is the head of fence `i` without these.

use std::cmp::Ordering;

use testudo_base::{
    key::{common_prefix, head},
    num::u64_of,
};

#[derive(Debug, Default)]
pub(crate) struct Fences {
    skip: usize,
    heads: Vec<u64>,
    keys: Vec<Box<[u8]>>,
    key_bytes: usize,
}

impl Fences {
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Fence `at`, if there are so many.
    pub(crate) fn get(&self, at: usize) -> Option<&[u8]> {
        self.keys.get(at).map(|key| &**key)
    }

    /// The number of fences ≤ `key`: the child that has `key`.
    #[inline]
    pub(crate) fn child_of(&self, key: &[u8]) -> usize {
        self.rank(key, |fence| fence <= key)
    }

    /// The number of fences < `key`: the last child that has keys below `key`.
    pub(crate) fn child_before(&self, key: &[u8]) -> usize {
        self.rank(key, |fence| fence < key)
    }

    #[inline]
    fn rank(&self, key: &[u8], is_left: impl Fn(&[u8]) -> bool) -> usize {
        let Some(first) = self.keys.first() else { return 0 };
        let shared = self.skip.min(key.len());
        match key[..shared].cmp(&first[..self.skip]) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.keys.len(),
            Ordering::Equal => {}
        }
        let wanted = head(&key[self.skip..]);
        let start = self.heads.partition_point(|&head| head < wanted);
        let equal = self.heads[start..].partition_point(|&head| head == wanted);
        start + self.keys[start..start + equal].partition_point(|fence| is_left(fence))
    }

    /// Adds a fence as number `at`. REQUIRES: it is between its neighbours there.
    pub(crate) fn insert(&mut self, at: usize, fence: Vec<u8>) {
        self.key_bytes += fence.len();
        self.keys.insert(at, fence.into_boxed_slice());
        let skip = self.shared();
        if skip == self.skip {
            self.heads.insert(at, head(&self.keys[at][skip..]));
        } else {
            self.rebuild();
        }
    }

    /// Keeps the fences below `at`; returns the fence `at` and those above it.
    pub(crate) fn split(&mut self, at: usize) -> (Vec<u8>, Fences) {
        let above = self.keys.split_off(at + 1);
        let fence = self.keys.pop().expect("the fence exists").into_vec();
        let above_bytes = above.iter().map(|key| key.len()).sum();
        self.key_bytes -= above_bytes + fence.len();
        self.rebuild();
        let mut right = Self { skip: 0, heads: Vec::new(), keys: above, key_bytes: above_bytes };
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
        self.heads.clear();
        self.heads.extend(self.keys.iter().map(|key| head(&key[self.skip..])));
    }
}

#[cfg(test)]
mod tests;
