//! Who uses which pages of an extent, where pages of a run are written anew while the extent lives (decision
//! 0049).
//!
//! A run that has replaced some of its pages is another version of it, and several versions live side by
//! side while snapshots and iterators hold them. A page, here a *place*, is written again once no version
//! uses it. Who uses a place is asked only when one is to be written: every version has a list of its places,
//! and dropping the version drops the list.
//!
//! **Invariants**
//! - A place that a version uses is written by nobody else: choosing places and listing them is one step.
//! - Runs without replaced pages do not list their places; while one lives all that it was written to is
//!   used.

use testudo_base::{
    num::usize_of,
    planted,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

/// Places of a run, counted from its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceSet(Vec<u64>);

impl PlaceSet {
    /// Adds a place.
    pub fn insert(&mut self, place: u32) {
        let (word, bit) = word_of(place);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    /// Whether the place is one of them.
    pub fn contains(&self, place: u32) -> bool {
        let (word, bit) = word_of(place);
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

fn word_of(place: u32) -> (usize, u64) {
    (usize_of(u64::from(place / 64)), 1 << (place % 64))
}

/// The users of the places of one run; every version of it reaches them by the run's first extent.
#[derive(Debug, Default)]
pub(crate) struct PlaceUsers {
    /// Versions without replaced pages.
    plain: AtomicU32,
    /// Boxed: hardly any extent has them.
    versions: OnceLock<Box<Mutex<Vec<Weak<PlaceSet>>>>>,
}

impl PlaceUsers {
    pub(crate) fn add_plain(&self) {
        self.plain.fetch_add(1, SeqCst);
    }

    pub(crate) fn remove_plain(&self) {
        let before = self.plain.fetch_sub(1, SeqCst);
        debug_assert!(before > 0, "who is removed was added");
    }

    /// Lets `choose` see what is used, and whether a version without replaced pages lives; what it returns is
    /// in use for as long as that lives.
    pub(crate) fn use_places<R>(
        &self,
        choose: impl FnOnce(&PlaceSet, bool) -> (Arc<PlaceSet>, R),
    ) -> (Arc<PlaceSet>, R) {
        let mut versions = self.versions.get_or_init(Box::default).lock();
        let mut used = PlaceSet::default();
        let add = |version: &Weak<PlaceSet>| match version.upgrade() {
            Some(places) => {
                used.extend(&places);
                true
            }
            None => false,
        };
        versions.retain(add);
        if planted!("used-place-taken") {
            used = PlaceSet::default();
        }
        let (places, chosen) = choose(&used, self.plain.load(SeqCst) > 0);
        versions.push(Arc::downgrade(&places));
        (places, chosen)
    }
}

#[cfg(test)]
mod tests;
