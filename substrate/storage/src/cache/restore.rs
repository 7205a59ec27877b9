//! What is in the cache, for a later one, and putting pages back that an earlier one had.
//!
//! **Invariants**
//! - No page is evicted for one that is put back: it takes a free frame, or memory that pages may have.
//! - A page that is here, or on its way, is left alone.

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
    /// Its number in the data file.
    pub page: u64,
    /// The run that it belongs to.
    pub generation: RunId,
    /// How it is kept.
    pub keeping: Keeping,
}

/// What became of a page that was to be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restoring {
    /// It is there now.
    Done,
    /// It was there, or somebody else is bringing it.
    Present,
    /// There is no memory for it.
    Full,
}

impl PageCache {
    /// The pages that are here and kept like that, about: others come and go meanwhile. Of each its run and
    /// its number. `can_return` sees what is in a page: one for which it is `false` is left out.
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

    /// Whether a page is here or on its way.
    pub fn has(&self, page: u64) -> bool {
        self.map.entry(page).is_some_and(|entry| matches!(entry.get(), Trace::In(_)))
    }

    /// Puts a verified page back. REQUIRES: its extent is held.
    pub fn restore(&self, hot: &HotPage, bytes: &[u8]) -> Restoring {
        let Some(entry) = self.map.make_entry(hot.page) else { return Restoring::Present };
        let trace = entry.get();
        if matches!(trace, Trace::In(_)) {
            return Restoring::Present;
        }
        let Some(mut claim) = self.take_free() else { return Restoring::Full };
        claim.start_loading(hot.page, hot.generation);
        if !entry.change(trace, Trace::In(claim.frame().number())) {
            // Who found the page here by an older entry may wait.
            self.give_up(claim);
            return Restoring::Present;
        }
        claim.bytes_mut().copy_from_slice(bytes);
        drop(self.show(claim, Class::Restored(hot.keeping)));
        count(&self.counters.of(stripe()).restored);
        Restoring::Done
    }

    /// A frame that holds nothing, if there is one or may be one more.
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
