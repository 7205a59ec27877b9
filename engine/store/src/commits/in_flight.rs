//! Commits that have a seqno but have not yet reached their memtables.
//!
//! **Invariants**
//! - Slots are taken under the commit lock, in the order of seqnos; they are given back without it.

use crossbeam_utils::CachePadded;
use testudo_base::{
    Seqno, planted,
    sync::{
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
        scaled, spin_loop, yield_now,
    },
};

const SLOTS: usize = scaled(128, 3);

thread_local! {
    /// Where a thread looks for a free slot first; threads are given different places in turn.
    static SLOT_OF_THREAD: usize = {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % SLOTS
    };
}

/// The commits that are on their way.
#[derive(Debug)]
pub struct InFlight {
    /// First seqno of a commit under way, or 0.
    slots: Box<[CachePadded<AtomicU64>]>,
}

/// Held by a commit until its operations are in their memtables.
#[derive(Debug)]
pub struct Underway<'a>(&'a AtomicU64);

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

impl InFlight {
    pub fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| CachePadded::new(AtomicU64::new(0))).collect() }
    }

    /// Notes a commit. REQUIRES: the commit lock is held. Waits only if that many commits are under way at
    /// once.
    pub fn enter(&self, first: Seqno) -> Underway<'_> {
        // Each thread looks at a slot of its own first: those of others are in the caches of others.
        let (before, own) = self.slots.split_at(SLOT_OF_THREAD.with(|slot| *slot));
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

    /// Returns when every commit up to `seqno` is in its memtables. REQUIRES: the commit lock was held after
    /// `seqno` was assigned; the caller has no commit of its own under way.
    pub fn wait_for(&self, seqno: Seqno) {
        for slot in &self.slots {
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

#[cfg(testudo_shuttle)]
pub mod schedule;
