//! The order of commits: the stripes of their keys, the lock under which they get their seqnos, and the
//! commits in flight, which have a seqno but are not in their memtables yet.
//!
//! A stripe serializes writes to the same key, so that read-modify-write is atomic among all writers.
//!
//! **Invariants**
//! - Stripes are locked in increasing order, before the commit lock, and released after the memtable insert.
//! - Slots of commits in flight are taken under the commit lock, in seqno order, and released without it.

use crossbeam_utils::CachePadded;
use testudo_base::{
    KeyspaceId, Seqno,
    checksum::hash_key,
    num::{u64_of, usize_of},
    planted,
    sync::{
        Mutex, MutexGuard,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
        is_held, scaled, spin_loop, yield_now,
    },
};

const STRIPES: usize = scaled(1024, 16);
const SLOTS: usize = scaled(128, 3);
const _: () = assert!(SLOTS > 0, "a commit needs a slot");

thread_local! {
    /// First slot that a thread tries; threads are assigned slots in turn.
    static SLOT_OF_THREAD: usize = {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % SLOTS
    };
}

/// The order of commits.
#[derive(Debug)]
pub struct CommitOrder {
    /// On a cache line of its own, because every commit writes it.
    commit: CachePadded<Mutex<()>>,
    stripes: Box<[Mutex<()>]>,
    /// First seqno of a commit in flight, or 0.
    in_flight: Box<[CachePadded<AtomicU64>]>,
}

/// Held by a commit until its operations are in their memtables.
#[derive(Debug)]
pub struct Underway<'a>(&'a AtomicU64);

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

impl Default for CommitOrder {
    fn default() -> Self {
        Self {
            commit: CachePadded::new(Mutex::new(())),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            in_flight: (0..SLOTS).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
        }
    }
}

impl CommitOrder {
    /// Locks the stripe of one key.
    pub fn lock_stripe(&self, keyspace: KeyspaceId, key: &[u8]) -> MutexGuard<'_, ()> {
        self.stripes[stripe_of(keyspace, key)].lock()
    }

    /// Locks the stripes of many keys.
    pub fn lock_stripes<'k>(
        &self,
        keys: impl Iterator<Item = (KeyspaceId, &'k [u8])>,
    ) -> Vec<MutexGuard<'_, ()>> {
        let mut indices: Vec<usize> = keys.map(|(keyspace, key)| stripe_of(keyspace, key)).collect();
        indices.sort_unstable();
        indices.dedup();
        debug_assert!(
            indices.is_sorted_by(|a, b| a < b),
            "stripes are locked in increasing order, each once"
        );
        indices.into_iter().map(|index| self.stripes[index].lock()).collect()
    }

    /// Whether some thread holds the stripe of this key, for assertions.
    pub fn is_stripe_locked(&self, keyspace: KeyspaceId, key: &[u8]) -> bool {
        is_held(&self.stripes[stripe_of(keyspace, key)])
    }

    /// Takes the commit lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.commit.lock()
    }

    /// Whether the commit lock is held, for assertions.
    pub fn is_locked(&self) -> bool {
        is_held(&self.commit)
    }

    /// Registers a commit in flight. REQUIRES: the commit lock is held. Waits only if commits in flight
    /// occupy all slots.
    pub fn enter(&self, first: Seqno) -> Underway<'_> {
        debug_assert!(first.0 > 0, "0 marks a free slot");
        // Each thread tries a slot of its own first: those of other threads are in the caches of other cores.
        let (before, own) = self.in_flight.split_at(SLOT_OF_THREAD.with(|slot| *slot));
        loop {
            for slot in own.iter().chain(before) {
                if slot.load(Acquire) == 0 {
                    slot.store(first.0, Release);
                    return Underway(slot);
                }
            }
            yield_now();
        }
    }

    /// Waits until every commit up to `seqno` is in its memtables. REQUIRES: the commit lock was held after
    /// `seqno` was assigned; the caller has no commit of its own in flight.
    pub fn wait_for(&self, seqno: Seqno) {
        for slot in &self.in_flight {
            let mut spins = 0;
            loop {
                let first = slot.load(Acquire);
                let is_later = first > seqno.0 || (first == seqno.0 && planted!("own-seqno-not-awaited"));
                if first == 0 || is_later {
                    break;
                }
                spins += 1;
                if spins < 100 {
                    spin_loop();
                } else {
                    yield_now();
                }
            }
        }
    }
}

fn stripe_of(keyspace: KeyspaceId, key: &[u8]) -> usize {
    let hash = hash_key(key) ^ u64::from(keyspace.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize_of((hash >> 20) % u64_of(STRIPES))
}

#[cfg(testudo_shuttle)]
pub mod schedule;
