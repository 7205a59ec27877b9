//! Export of the cache's hot set, and restoring pages of an earlier cache.
//!
//! **Invariants**
//! - No page is evicted for a restored one: it takes a free frame, or memory available for pages.
//! - A page that is cached or being loaded is left alone.

use testudo_base::{LargeVec, RunId};

use super::{
    PageCache,
    counters::{count, stripe},
    page_map::Trace,
    pins::Claim,
    replacement::{Class, Keeping, keeping_of},
};

/// A page in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotPage {
    /// Page number in the data file.
    pub page: u64,
    /// The run that it belongs to.
    pub generation: RunId,
    /// How it is kept.
    pub keeping: Keeping,
}

/// Outcome of restoring a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restoring {
    /// It is cached now.
    Done,
    /// It was cached already, or another thread is loading it.
    Present,
    /// There is no memory for it.
    Full,
}

impl PageCache {
    /// Returns run and page number of all pages cached with this `kept`, approximately: others are loaded and
    /// evicted meanwhile. `can_return` gets each page's number and bytes; pages for which it returns `false`
    /// are left out.
    pub fn hot_pages(&self, kept: Keeping, can_return: impl Fn(u64, &[u8]) -> bool) -> LargeVec<[u64; 2]> {
        let numbers = 0..testudo_base::num::u32_of(self.frames.positions());
        let hot = |number| {
            let frame = self.frames.frame(number)?;
            let keeping = keeping_of(frame.heat().load(testudo_base::sync::atomic::Ordering::Relaxed));
            let (page, generation) = frame.readable_page()?;
            let may_return = || {
                let found = frame.pin(stripe(), page, generation);
                found.is_some_and(|found| can_return(page, &found))
            };
            (keeping == kept && may_return()).then_some([generation.0, page])
        };
        numbers.filter_map(hot).collect()
    }

    /// Whether a page is cached or being loaded.
    pub fn has(&self, page: u64) -> bool {
        self.map.entry(page).is_some_and(|entry| matches!(entry.get(), Trace::In(_)))
    }

    /// Restores a verified page. REQUIRES: its extent is held.
    pub fn restore(&self, hot: &HotPage, bytes: &[u8]) -> Restoring {
        let Some(entry) = self.map.make_entry(hot.page) else { return Restoring::Present };
        let trace = entry.get();
        if matches!(trace, Trace::In(_)) {
            return Restoring::Present;
        }
        let Some(mut claim) = self.take_free() else { return Restoring::Full };
        claim.start_loading(hot.page, hot.generation);
        if !entry.change(trace, Trace::In(claim.frame().number())) {
            // A thread that found the page here by the map may be waiting.
            self.give_up(claim);
            return Restoring::Present;
        }
        claim.bytes_mut().copy_from_slice(bytes);
        drop(self.show(claim, Class::Restored(hot.keeping)));
        count(&self.counters.of(stripe()).restored);
        Restoring::Done
    }

    /// Claims a free frame, allocating memory if that is allowed.
    fn take_free(&self) -> Option<Claim<'_>> {
        if self.frames.used() == self.capacity() {
            self.borrow();
        }
        if self.frames.used() != self.capacity() {
            self.approach_capacity();
        }
        while let Some(number) = self.free.pop() {
            if let Some(claim) = self.frames.frame(number).and_then(|frame| frame.claim_free()) {
                return Some(claim);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
