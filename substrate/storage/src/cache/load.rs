//! Loads of pages: a page is read straight into its frame, once, however many threads want it.
//!
//! **Invariants**
//! - A page that is being loaded is in the page map, so that a second thread finds the load and waits for it.
//! - A thread never waits for another load while it holds one itself, so waits cannot deadlock.
//! - A load wakes all of its waiters when it ends, whether it succeeds or fails.

use testudo_base::{
    PAGE_BYTES, RunId,
    chunks::Division,
    num::u64_of,
    sync::{Backoff, Condvar, Mutex, atomic::Ordering::Relaxed},
};

use super::{
    PageCache, PageRef, Priority,
    counters::{count, stripe},
    page_map::{Entry, Trace, age},
    pins::{Claim, FrameRef, state},
    replacement::{Class, Set, is_used_again},
};

/// Maximum retries while a page is claimed, before it is read without the cache.
const TRIES_MAX: usize = 10_000;

/// Where threads sleep until a load ends; loads share a few gates.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    lock: Mutex<()>,
    ended: Condvar,
}

/// How to get a page that was not cached.
#[derive(Debug)]
pub enum Arrival<'a> {
    /// The page is cached now.
    Present(PageRef<'a>),
    /// The caller must read the page.
    Load(Loading<'a>),
    /// The caller must wait until another thread has read it, then look it up again.
    Elsewhere(Awaited<'a>),
    /// The caller must read it without the cache: all frames are pinned.
    Refused,
}

/// State of a page at one moment.
enum Sighting<'a> {
    /// It can be read.
    Readable(PageRef<'a>),
    /// Another thread is loading it.
    Loading(FrameRef<'a>),
    /// Another thread has claimed it and may evict it.
    ChangingHands,
    /// It is in no frame.
    Nowhere,
}

/// A frame whose page is being loaded. Dropping it releases the frame; the page is then not cached.
#[derive(Debug)]
pub struct Loading<'a> {
    cache: &'a PageCache,
    /// `None` once the load has ended.
    claim: Option<Claim<'a>>,
    class: Class,
}

/// A page that another thread is loading.
#[derive(Debug)]
pub struct Awaited<'a> {
    cache: &'a PageCache,
    frame: FrameRef<'a>,
    page: u64,
    generation: RunId,
}

impl Awaited<'_> {
    /// Sleeps until the load has succeeded or failed. REQUIRES: the caller holds no [`Loading`].
    pub fn wait(self) {
        let gate = self.cache.gate(self.frame.number());
        let mut held = gate.lock.lock();
        while self.frame.await_load(self.page, self.generation) {
            gate.ended.wait(&mut held);
        }
    }
}

impl<'a> Loading<'a> {
    /// Buffer for the page: 4 KiB, aligned for direct I/O.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.claim.as_mut().expect("the load has ended").bytes_mut()
    }

    /// Publishes the page. REQUIRES: the buffer is filled and verified.
    pub fn finish(mut self) -> PageRef<'a> {
        let claim = self.claim.take().expect("the load has ended");
        self.cache.show(claim, self.class)
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        if let Some(entry) = self.cache.map.entry(claim.page()) {
            entry.change(Trace::In(claim.frame().number()), Trace::Unknown);
        }
        self.cache.give_up(claim);
    }
}

impl PageCache {
    /// Starts the load of a page that [`PageCache::get`] did not find.
    pub fn begin_load(&self, page: u64, generation: RunId, priority: Priority) -> Arrival<'_> {
        let Some(entry) = self.map.make_entry(page) else { return Arrival::Refused };
        let stripe = stripe();
        let backoff = Backoff::new();
        let mut taken: Option<(Claim<'_>, Option<Set>)> = None;
        for _ in 0..TRIES_MAX {
            let trace = entry.get();
            let arrival = match self.sight(trace, page, generation, stripe) {
                Sighting::Readable(page) => Some(Arrival::Present(page)),
                Sighting::Loading(frame) => {
                    count(&self.counters.of(stripe).shared_loads);
                    Some(Arrival::Elsewhere(Awaited { cache: self, frame, page, generation }))
                }
                Sighting::ChangingHands => {
                    backoff.snooze();
                    continue;
                }
                Sighting::Nowhere => None,
            };
            if let Some(arrival) = arrival {
                taken.into_iter().for_each(|(claim, _)| self.release_unused_frame(claim));
                return arrival;
            }
            let Some((mut claim, found)) = taken.take().or_else(|| self.take_frame(stripe)) else {
                return Arrival::Refused;
            };
            claim.start_loading(page, generation);
            if self.lead_here(entry, trace, &claim) {
                let class = self.class_of(&claim, trace, priority, found);
                return Arrival::Load(Loading { cache: self, claim: Some(claim), class });
            }
            if claim.stop_loading() {
                self.wake(claim.frame().number());
            }
            taken = Some((claim, found));
        }
        taken.into_iter().for_each(|(claim, _)| self.release_unused_frame(claim));
        Arrival::Refused
    }

    /// Inserts a page that replaces one in use by queries: into the main set, as if it had been used twice.
    /// Does nothing if every frame is pinned.
    pub fn insert_warm(&self, page: u64, generation: RunId, bytes: &[u8]) {
        if let Arrival::Load(mut loading) = self.begin_load(page, generation, Priority::Data) {
            loading.class = Class::Kept(1);
            loading.bytes().copy_from_slice(bytes);
            drop(loading.finish());
            count(&self.counters.of(stripe()).warmed);
        }
    }

    /// Whether the page is cached and was used more than once. A hint.
    pub fn is_warm(&self, page: u64, generation: RunId) -> bool {
        let Some(Trace::In(number)) = self.map.entry(page).map(Entry::get) else { return false };
        let Some(frame) = self.frames.frame(number) else { return false };
        frame.state() == state::READABLE
            && frame.is_of(page, generation)
            && is_used_again(frame.heat().load(Relaxed))
    }

    /// State of the page to which the page map points by `trace`.
    #[inline]
    fn sight(&self, trace: Trace, page: u64, generation: RunId, stripe: usize) -> Sighting<'_> {
        let Trace::In(number) = trace else { return Sighting::Nowhere };
        let Some(frame) = self.frames.frame(number) else { return Sighting::Nowhere };
        if let Some(found) = frame.pin(stripe, page, generation) {
            return Sighting::Readable(found);
        }
        match frame.state() {
            state::LOADING | state::AWAITED if frame.is_of(page, generation) => Sighting::Loading(frame),
            state::CLAIMED | state::READABLE if frame.is_of(page, generation) => Sighting::ChangingHands,
            _ => Sighting::Nowhere,
        }
    }

    fn lead_here(&self, entry: Entry<'_>, trace: Trace, claim: &Claim<'_>) -> bool {
        entry.change(trace, Trace::In(claim.frame().number()))
    }

    fn class_of(&self, claim: &Claim<'_>, trace: Trace, priority: Priority, found: Option<Set>) -> Class {
        if priority == Priority::Structure {
            return Class::Structure;
        }
        if let Trace::Gone(then) = trace {
            let gone_for = u64::from(age(self.replacement.eviction_clock(), then));
            let used = u64_of(self.frames.used());
            if gone_for < used / u64::from(Division::GHOST_PARTS) {
                count(&self.counters.of(stripe()).ghost_hits);
            }
            self.record_absence(gone_for);
            if gone_for < used {
                return Class::Returned;
            }
        }
        Class::New { is_young: self.replacement.is_young(&self.frames, claim.frame().number(), found) }
    }

    /// Records a miss of a page that was evicted `evictions` evictions ago.
    fn record_absence(&self, evictions: u64) {
        let Some(pool) = self.borrowed.pool() else { return };
        let limit = pool.limit_bytes();
        if evictions < Division::ghost_bytes(limit) / PAGE_BYTES {
            pool.division().page_was_missed(limit);
        }
    }

    /// Publishes a page whose bytes are in its frame.
    pub(super) fn show<'a>(&'a self, claim: Claim<'a>, class: Class) -> PageRef<'a> {
        let number = claim.frame().number();
        self.replacement.track(&claim, class);
        let (page, is_awaited) = claim.publish(stripe());
        if is_awaited {
            self.wake(number);
        }
        page
    }

    /// Frees the frame of a failed load.
    pub(super) fn give_up(&self, mut claim: Claim<'_>) {
        let number = claim.frame().number();
        let is_awaited = claim.stop_loading();
        self.release_unused_frame(claim);
        if is_awaited {
            self.wake(number);
        }
    }

    /// Releases a frame that was not needed.
    pub(super) fn release_unused_frame(&self, claim: Claim<'_>) {
        let number = claim.frame().number();
        drop(claim);
        self.free.push(number);
    }

    fn gate(&self, number: u32) -> &Gate {
        &self.gates[testudo_base::num::usize_of(u64::from(number)) % self.gates.len()].0
    }

    fn wake(&self, number: u32) {
        let gate = self.gate(number);
        // Every announced waiter sleeps on the condition variable by the time the lock is free.
        drop(gate.lock.lock());
        gate.ended.notify_all();
    }
}
