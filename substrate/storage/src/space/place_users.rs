//! Users of the pages of an extent, where pages of a run are rewritten while the extent stays allocated
//! (decision 0049).
//!
//! Replacing pages of a run creates a new version of it, and several versions coexist while snapshots and
//! iterators hold them. A page, called a *place* here, is reused once no version uses it. Users of a place
//! are checked only when one is about to be written: every version has a list of its places, and dropping the
//! version drops the list.
//!
//! **Invariants**
//! - A place in use is never written: choosing places and registering them is one atomic step.
//! - Versions without replaced pages do not list their places; while one exists, every place originally
//!   written is in use.

use testudo_base::{
    num::usize_of,
    planted,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

/// Set of places of a run, counted from its start.
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

    /// Whether the set contains the place.
    pub fn contains(&self, place: u32) -> bool {
        let (word, bit) = word_of(place);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Adds all places of `other`.
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

/// Users of the places of one run; all its versions share it through the run's first extent.
#[derive(Debug, Default)]
pub(crate) struct PlaceUsers {
    /// Number of versions without replaced pages.
    plain: AtomicU32,
    /// Boxed, because few extents have any.
    versions: OnceLock<Box<Mutex<Vec<Weak<PlaceSet>>>>>,
}

impl PlaceUsers {
    pub(crate) fn add_plain(&self) {
        self.plain.fetch_add(1, SeqCst);
    }

    pub(crate) fn remove_plain(&self) {
        let before = self.plain.fetch_sub(1, SeqCst);
        debug_assert!(before > 0, "version count underflows");
    }

    /// Calls `choose` with the used places, and whether a version without replaced pages exists. The set that
    /// it returns is in use until it is dropped.
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
