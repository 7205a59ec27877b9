//! Commits that have a seqno but are not in their memtables yet.
//!
//! **Invariants**
//! - Slots are taken under the commit lock, in seqno order; they are released without it.

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

const _: () = assert!(SLOTS > 0, "a commit needs a slot");

thread_local! {
    /// First slot that a thread tries; threads are assigned slots in turn.
    static SLOT_OF_THREAD: usize = {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % SLOTS
    };
}

/// The commits in flight.
#[derive(Debug)]
pub struct InFlight {
    /// First seqno of a commit in flight, or 0.
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

impl Default for InFlight {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| CachePadded::new(AtomicU64::new(0))).collect() }
    }
}

impl InFlight {
    /// Registers a commit. REQUIRES: the commit lock is held. Waits only if commits in flight occupy all
    /// slots.
    pub fn enter(&self, first: Seqno) -> Underway<'_> {
        debug_assert!(first.0 > 0, "0 marks a free slot");
        // Each thread tries a slot of its own first: those of other threads are in the caches of other cores.
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

    /// Waits until every commit up to `seqno` is in its memtables. REQUIRES: the commit lock was held after
    /// `seqno` was assigned; the caller has no commit of its own in flight.
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
