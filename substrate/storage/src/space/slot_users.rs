//! Who uses which pages of an extent, where pages of a run are written anew while the extent lives (decision
//! 0049).
//!
//! A run that has replaced some of its pages is another version of it, and several versions live side by
//! side while snapshots and iterators hold them. A page, here a *slot*, is written again once no version
//! uses it. Who uses a slot is asked only when one is to be written: every version has a list of its slots,
//! and dropping the version drops the list.
//!
//! **Invariants**
//! - A slot that a version uses is written by nobody else: choosing slots and listing them is one step.
//! - Runs without replaced pages do not list their slots; while one lives all that it was written to is used.

use testudo_base::{
    num::usize_of,
    planted,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

/// Slots of a run, counted from its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotSet(Vec<u64>);

impl SlotSet {
    /// Adds a slot.
    pub fn insert(&mut self, slot: u32) {
        let (word, bit) = place_of(slot);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    /// Whether the slot is one of them.
    pub fn contains(&self, slot: u32) -> bool {
        let (word, bit) = place_of(slot);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Adds all of the other's.
    pub fn extend(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(bits, more)| *bits |= more);
    }
}

fn place_of(slot: u32) -> (usize, u64) {
    (usize_of(u64::from(slot / 64)), 1 << (slot % 64))
}

/// The users of the slots of one run; every version of it reaches them by the run's first extent.
#[derive(Debug, Default)]
pub(crate) struct SlotUsers {
    /// Versions without replaced pages.
    plain: AtomicU32,
    versions: OnceLock<Mutex<Vec<Weak<SlotSet>>>>,
}

impl SlotUsers {
    pub(crate) fn add_plain(&self) {
        self.plain.fetch_add(1, SeqCst);
    }

    pub(crate) fn remove_plain(&self) {
        let before = self.plain.fetch_sub(1, SeqCst);
        debug_assert!(before > 0, "who is removed was added");
    }

    /// Lets `choose` see what is used, and whether a version without replaced pages lives; what it returns is
    /// in use for as long as that lives.
    pub(crate) fn use_slots<R>(
        &self,
        choose: impl FnOnce(&SlotSet, bool) -> (Arc<SlotSet>, R),
    ) -> (Arc<SlotSet>, R) {
        let mut versions = self.versions.get_or_init(Mutex::default).lock();
        let mut used = SlotSet::default();
        let add = |version: &Weak<SlotSet>| match version.upgrade() {
            Some(slots) => {
                used.extend(&slots);
                true
            }
            None => false,
        };
        versions.retain(add);
        if planted!("used-slot-taken") {
            used = SlotSet::default();
        }
        let (slots, chosen) = choose(&used, self.plain.load(SeqCst) > 0);
        versions.push(Arc::downgrade(&slots));
        (slots, chosen)
    }
}

#[cfg(test)]
mod tests;
