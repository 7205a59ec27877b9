//! Iterators over a range of keys, from both ends.
//!
//! **Invariants**
//! - An iterator shows the state at its seqno; writes made later are invisible to it.
//! - It reads no further than requested, but takes entries ahead whose values are separated.
//! - The remaining keys are those at or above `low` and below `back_key` that the front has not returned
//!   since `low` was set.
//! - After an error it returns `None` until [`Iter::seek`] positions it again.

use std::{iter::Take, mem, sync::Arc};

use testudo_base::{Cursor, Kind, Result, num::u64_of, planted};
use testudo_run::{Direction, KeyBounds, ScanLimits};
use testudo_store::{
    memory::metadata::fit_caches,
    read::scan_sources::{Sources, sources_at},
};

use crate::db::{
    dead_run::{DeadRun, Led},
    entry::Entry,
    pinned::Pinned,
    scan_front::{Front, Watch, owned_alone},
    separated_value::SeparatedScan,
};

/// An iterator over entries in key order, from both ends.
///
/// If the value of an entry cannot be determined, because its merge operator is not registered or fails, the
/// iterator still returns the entry: only [`Entry::value`] fails. The same holds for a separated value (one
/// in a value segment, see [`Placement`](testudo_values::Placement)) that cannot be read. Separated values
/// are read lazily, on access, together with those of the next entries: a key-only scan reads no values.
pub struct Iter {
    pinned: Arc<Pinned>,
    bounds: KeyBounds,
    /// Inclusive lower bound of the remaining keys, apart from those that the front has returned: the start
    /// of the range or the last seek key.
    low: Option<Vec<u8>>,
    front: Option<Front>,
    back: Option<Sources>,
    /// `back` is positioned on the last returned entry; the next step moves it first.
    back_is_returned: bool,
    back_dead: DeadRun,
    /// Set once the back has met a separated value.
    back_scan: Option<Arc<SeparatedScan>>,
    back_watch: Option<Watch>,
    /// Exclusive upper bound: keys at or above it were returned from the back.
    back_key: Option<Vec<u8>>,
    /// Maximum number of entries the caller will request, if known.
    expected_entries: Option<u64>,
    has_ended: bool,
    /// Memory of the iterator when it was last accounted, in bytes.
    weight: u64,
    /// Steps taken, and the step at which the memory is accounted next.
    steps: u64,
    weigh_at: u64,
}

/// Memory is accounted at steps 1, 8 and 64, then every this many steps.
const WEIGHED_EVERY: u64 = 64;
const WEIGHED_FACTOR: u64 = 8;
/// Smaller changes in memory are not accounted.
const WEIGHT_STEP: u64 = 256;

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Iter(at {})", self.pinned.seqno)
    }
}

impl Drop for Iter {
    fn drop(&mut self) {
        if self.pinned.store().is_forked() {
            if let Some(front) = self.front.take() {
                front.forget();
            }
            mem::forget((self.back.take(), self.back_watch.take()));
        } else {
            self.set_weight(0);
        }
    }
}

impl Iter {
    pub(crate) fn new(pinned: Arc<Pinned>, bounds: KeyBounds) -> Self {
        let has_ended = bounds.is_empty();
        Self {
            pinned,
            low: bounds.low.clone(),
            bounds,
            front: None,
            back: None,
            back_is_returned: false,
            back_dead: DeadRun::new(Direction::Backward),
            back_scan: None,
            back_watch: None,
            back_key: None,
            expected_entries: None,
            has_ended,
            weight: 0,
            steps: 0,
            weigh_at: 1,
        }
    }

    /// Returns the first `count` remaining entries, as [`Iterator::take`] does. The store then reads the
    /// pages of these entries in a few large reads. Without a count it increases its read-ahead as the
    /// iterator advances.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-take-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let k = db.keyspace("letters", testudo::KeyspaceOptions::default)?;
    /// for letter in ["a", "b", "c", "d"] {
    ///     k.insert(letter, "")?;
    /// }
    /// let first = k.range("b"..)?.take(2).collect::<testudo::Result<Vec<_>>>()?;
    /// assert_eq!((first[0].key(), first[1].key(), first.len()), (&b"b"[..], &b"c"[..], 2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn take(mut self, count: usize) -> Take<Self> {
        self.expected_entries = (count < usize::MAX).then(|| u64_of(count));
        Iterator::take(self, count)
    }

    /// Moves the front to the first entry in the range whose key is ≥ `key`, forwards or backwards.
    ///
    /// The remaining entries, for both ends, then start there and stop before those that the back has
    /// returned: `next` returns the first of them, `next_back` the last. Neither end returns entries below
    /// `key`, until another seek moves the front back. Entries that the front has already returned are
    /// returned again if they are at or above `key`; those that the back has returned never are. A seek also
    /// revives an iterator that has ended or failed.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-seek-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// let k = db.keyspace("letters", testudo::KeyspaceOptions::default)?;
    /// for letter in ["a", "b", "c", "d", "e", "f"] {
    ///     k.insert(letter, "")?;
    /// }
    /// let mut iter = k.iter()?;
    /// iter.seek(b"c")?;
    /// assert_eq!(iter.next_back().unwrap()?.key(), b"f");
    /// assert_eq!(iter.next().unwrap()?.key(), b"c");
    /// iter.seek(b"b")?;
    /// let left: Vec<_> = iter.rev().map(|entry| entry.unwrap().key().to_vec()).collect();
    /// assert_eq!(left, [b"e", b"d", b"c", b"b"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Closed`; `Corruption` with file, offset and keyspace; `Io`. After an error no entries remain
    /// until the next seek.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.pinned.store().check_open()?;
        let low = self.bounds.low.as_deref().filter(|low| *low > key).unwrap_or(key).to_vec();
        let mut front = self.front.take().unwrap_or_else(|| self.new_front());
        self.has_ended = true;
        self.pinned.read(|| {
            if front.is_parked() {
                front.resume_unpositioned(self.new_sources());
            }
            front.seek(&self.pinned, Some(&low))
        })?;
        self.low = Some(low);
        self.front = Some(front);
        self.has_ended = self.bounds.is_empty();
        self.note_step();
        Ok(())
    }

    /// A front for the expected number of entries; the caller seeks it.
    fn new_front(&self) -> Front {
        Front::new(self.new_sources(), self.expected_entries, &self.pinned)
    }

    fn new_sources(&self) -> Sources {
        let end = self.bounds.high.as_deref().map(Arc::from);
        sources_at(&self.pinned.view, self.pinned.seqno, &ScanLimits { entries: self.expected_entries, end })
    }

    /// Counts a step. Accounts the iterator's memory at intervals, and parks it while iterators use too much.
    #[inline]
    fn note_step(&mut self) {
        self.steps += 1;
        let store = self.pinned.store();
        if store.iterators.is_over_bound(store.memory.total()) {
            self.park();
        } else if self.steps >= self.weigh_at {
            self.weigh_at = self.steps + (self.steps * WEIGHED_FACTOR - self.steps).min(WEIGHED_EVERY);
            self.weigh();
        }
    }

    #[cold]
    fn park(&mut self) {
        let (high, back) = (self.bounds.high.as_deref(), self.back_key.as_deref());
        let is_beyond =
            |key: &[u8]| high.is_some_and(|high| key >= high) || back.is_some_and(|back| key >= back);
        // A front that has returned nothing starts again at `low`; so does an ended one if it is sought.
        self.front = self.front.take().filter(|front| !self.has_ended && front.key_returned().is_some());
        if let Some(front) = &mut self.front {
            front.park(&self.pinned, is_beyond);
        }
        if self.back_is_returned || self.has_ended {
            self.back = None;
            self.back_is_returned = false;
        }
        self.weigh();
    }

    fn weigh(&mut self) {
        let front = self.front.as_ref().map_or(0, Front::memory_bytes);
        let back = self.back.as_ref().map_or(0, Cursor::memory_bytes);
        let weight = u64_of(size_of::<Self>() + front + back);
        if weight.abs_diff(self.weight) >= WEIGHT_STEP {
            self.set_weight(weight);
        }
    }

    fn set_weight(&mut self, weight: u64) {
        let store = self.pinned.store();
        let caches_follow = store.iterators.change(self.weight, weight, store.memory.total());
        if caches_follow && store.check_open().is_ok() {
            fit_caches(store);
        }
        self.weight = weight;
    }

    fn forward(&mut self) -> Result<Option<Entry>> {
        if self.front.is_none() {
            let mut front = self.new_front();
            front.seek(&self.pinned, self.low.as_deref())?;
            self.front = Some(front);
        }
        if self.front.as_ref().is_some_and(Front::is_dry) {
            let sources = self.new_sources();
            self.front.as_mut().map_or(Ok(()), |front| front.resume(sources))?;
        }
        let Some(front) = &mut self.front else { return Ok(None) };
        let (high, back) = (self.bounds.high.as_deref(), self.back_key.as_deref());
        let is_beyond =
            |key: &[u8]| high.is_some_and(|high| key >= high) || back.is_some_and(|back| key >= back);
        let entry = front.next(&self.pinned, is_beyond)?;
        debug_assert!(
            entry.as_ref().is_none_or(|entry| self.low.as_deref().is_none_or(|low| low <= entry.key())),
            "the front stays within the range"
        );
        Ok(entry)
    }

    fn backward(&mut self) -> Result<Option<Entry>> {
        let sources = match &mut self.back {
            Some(sources) => {
                if std::mem::take(&mut self.back_is_returned) {
                    sources.prev()?;
                }
                sources
            }
            None => {
                self.back_watch = Watch::of(&self.pinned);
                let mut sources = sources_at(&self.pinned.view, self.pinned.seqno, &ScanLimits::default());
                // After an error, continue below the entries already returned.
                let high = self.back_key.as_deref().or(self.bounds.high.as_deref());
                if self.back_dead.place(&mut sources, &self.pinned, high)? == Led::ToTheEnd {
                    return Ok(None);
                }
                self.back.insert(sources)
            }
        };
        let low = if planted!("seek-ignored-from-the-back") { &self.bounds.low } else { &self.low };
        let front = self.front.as_ref().and_then(Front::key_returned);
        let is_beyond = |key: &[u8]| {
            low.as_deref().is_some_and(|low| key < low) || front.is_some_and(|front| key <= front)
        };
        while let Some(entry) = sources.entry().filter(|entry| !is_beyond(entry.key)) {
            if entry.kind != Kind::Tombstone {
                debug_assert!(
                    self.back_key.as_deref().is_none_or(|before| entry.key < before),
                    "the back moves down"
                );
                let back_key = self.back_key.get_or_insert_default();
                back_key.clear();
                back_key.extend_from_slice(entry.key);
                self.back_is_returned = true;
                self.back_dead.end();
                self.back_watch.iter_mut().for_each(|watch| watch.pass(&entry));
                return owned_alone(&entry, &self.pinned, &mut self.back_scan).map(Some);
            }
            if self.back_dead.pass(sources, &self.pinned, is_beyond)? == Led::ToTheEnd {
                break;
            }
        }
        Ok(None)
    }

    /// One step of either end.
    fn step(&mut self, step: impl FnOnce(&mut Self) -> Result<Option<Entry>>) -> Option<Result<Entry>> {
        if self.has_ended {
            return None;
        }
        let step = self.pinned.store().check_open().and_then(|()| step(self));
        self.has_ended = !matches!(step, Ok(Some(_)));
        self.note_step();
        step.or_else(|error| self.pinned.read(|| Err(error))).transpose()
    }
}

impl Iterator for Iter {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Self::forward)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        let step = self.step(Self::backward);
        if matches!(step, Some(Err(_))) {
            // A cursor is unpositioned after an error.
            self.back = None;
            self.back_is_returned = false;
        }
        step
    }
}
