//! Baseline for the page cache: a plain LRU in sixteen shards.
//!
//! Each shard is a mutex around a hash table and an index-linked list; a page is returned as a counted
//! reference, so it may be evicted while it is read.
//!
//! **Invariants**
//! - The list holds each page of the shard once, most recently used first.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

use parking_lot::Mutex;
use testudo_base::num::{u32_of, usize_of};

const SHARDS: usize = 16;
const NONE: u32 = u32::MAX;

/// Hashes page numbers with one multiplication; the default hasher would dominate the cost of a hit.
#[derive(Default)]
struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = spread(number);
    }
}

fn spread(page: u64) -> u64 {
    let product = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

struct Entry {
    page: u64,
    bytes: Arc<[u8]>,
    before: u32,
    after: u32,
}

#[derive(Default)]
struct Shard {
    index: HashMap<u64, u32, BuildHasherDefault<PageHasher>>,
    entries: Vec<Entry>,
    /// The most and the least recently used entry.
    ends: Option<(u32, u32)>,
}

impl Shard {
    fn unlink(&mut self, at: u32) {
        let (before, after) = (self.entry(at).before, self.entry(at).after);
        let (mut newest, mut oldest) = self.ends.expect("an entry is in the list");
        if before == NONE {
            newest = after
        } else {
            self.entry(before).after = after
        }
        if after == NONE {
            oldest = before
        } else {
            self.entry(after).before = before
        }
        self.ends = (newest != NONE).then_some((newest, oldest));
    }

    fn push_front(&mut self, at: u32) {
        let first = self.ends.map(|(newest, _)| newest);
        let entry = self.entry(at);
        (entry.before, entry.after) = (NONE, first.unwrap_or(NONE));
        if let Some(first) = first {
            self.entry(first).before = at;
        }
        self.ends = Some((at, self.ends.map_or(at, |(_, oldest)| oldest)));
    }

    fn entry(&mut self, at: u32) -> &mut Entry {
        &mut self.entries[usize_of(u64::from(at))]
    }
}

/// The cache.
pub(crate) struct ShardedLru {
    shards: Vec<Mutex<Shard>>,
    shard_pages: usize,
}

impl ShardedLru {
    pub(crate) fn new(pages: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, shard_pages: pages.div_ceil(SHARDS) }
    }

    fn shard(&self, page: u64) -> &Mutex<Shard> {
        &self.shards[usize_of(spread(page) >> 60) % SHARDS]
    }

    /// Returns the page if it is cached, and makes it the most recently used.
    pub(crate) fn get(&self, page: u64) -> Option<Arc<[u8]>> {
        let mut shard = self.shard(page).lock();
        let at = *shard.index.get(&page)?;
        if shard.ends.is_some_and(|(newest, _)| newest != at) {
            shard.unlink(at);
            shard.push_front(at);
        }
        Some(Arc::clone(&shard.entry(at).bytes))
    }

    /// Inserts a page, replacing the least recently used one if the shard is full.
    pub(crate) fn put(&self, page: u64, bytes: &[u8]) {
        let bytes: Arc<[u8]> = Arc::from(bytes);
        let shard = &mut *self.shard(page).lock();
        if shard.index.contains_key(&page) {
            return;
        }
        let at = if shard.entries.len() < self.shard_pages {
            shard.entries.push(Entry { page, bytes, before: NONE, after: NONE });
            u32_of(shard.entries.len() - 1)
        } else {
            let (_, oldest) = shard.ends.expect("a shard has at least one page");
            shard.unlink(oldest);
            let entry = shard.entry(oldest);
            let evicted = std::mem::replace(&mut entry.page, page);
            entry.bytes = bytes;
            shard.index.remove(&evicted);
            oldest
        };
        shard.index.insert(page, at);
        shard.push_front(at);
    }
}

#[cfg(test)]
mod tests;
