//! The front of an iterator: entries in ascending order, taken ahead if their values are separated.
//!
//! After an entry that refers to a separated value, the front takes following entries ahead: 2, 4 and up to
//! 64, or the number that the iterator expects. Their references are kept together. The first access to one
//! of the values reads them together (`separated_value.rs`).
//!
//! A front may be parked: it takes a few entries ahead and drops its sources until these have been returned.
//! Then it continues after the last of them, at the same seqno.
//!
//! **Invariants**
//! - Entries taken ahead are within the bounds of that moment.
//! - An error of the sources is returned after the entries that were taken ahead before it.

use std::{collections::VecDeque, sync::Arc};

use testudo_base::{
    Cursor, Error, Kind, Result,
    num::{u64_of, usize_of},
    planted,
};
use testudo_run::Direction;
use testudo_store::{
    read::{
        look_up::{self, Shown, classify, long_value, operands_over},
        scan_sources::Sources,
        slice::Slice,
    },
    snapshots::held_view::HeldView,
};
use testudo_values::{LargeValues, Placement, ValueClass, ValueCosts};

use crate::db::{
    dead_run::{DeadRun, Led},
    entry::Entry,
    pinned::Pinned,
    separated_value::{AHEAD_BYTES, SeparatedScan, TakingAhead, Unmerged, refers},
};

/// Values counted per update of the shared counter.
const COUNTED_TOGETHER: u64 = 64;
/// Maximum entries taken ahead.
const AHEAD_ENTRIES: u64 = 64;
/// Maximum entries taken ahead when a front is parked, and about how many bytes of memory they use.
const PARKED_ENTRIES: u64 = 64;
const PARKED_BYTES: usize = 2 << 10;

/// A position in the entries of a scan, which moves to greater keys.
pub(crate) struct Front {
    /// `None` while it is parked.
    sources: Option<Sources>,
    /// The key after which it resumes.
    parked_at: Vec<u8>,
    /// Number of entries to take ahead the next time it is parked.
    parked_count: usize,
    /// The sources are positioned on an entry that was returned or taken ahead.
    is_passed: bool,
    dead: DeadRun,
    /// No entries remain within the bounds, whatever the position of the sources.
    has_ended: bool,
    /// Entries taken ahead.
    ahead: VecDeque<Entry>,
    /// Error of the sources after those entries.
    failure: Option<Error>,
    /// The last returned key, if its entry had been taken ahead.
    key_returned: Option<Vec<u8>>,
    /// Number of entries to take ahead next.
    count: u64,
    /// Expected number of entries of the scan, and the number returned since the last seek.
    expected: Option<u64>,
    returned: u64,
    /// Number of separated values met so far.
    separated_count: u64,
    /// Set once there is such a value.
    scan: Option<Arc<SeparatedScan>>,
    /// Counts large values that are stored with their keys, if the tree measures their cost.
    watch: Option<Watch>,
}

/// Measures the cost to scans if large values were separated (decision 0053).
pub(crate) struct Watch {
    placement: Placement,
    costs: Arc<ValueCosts>,
    /// Number of such values passed.
    passed: u64,
}

impl Watch {
    /// A watch for a scan of `pinned`, if the tree measures that cost.
    pub(crate) fn of(pinned: &Pinned) -> Option<Self> {
        let HeldView { options, tree, .. } = &*pinned.view;
        let are_with_keys = options.large_values() == LargeValues::WithKeys;
        let costs = tree.value_costs().filter(|_| are_with_keys)?;
        Some(Self { placement: options.placement(), costs: Arc::clone(costs), passed: 0 })
    }

    /// Counts an entry that is returned.
    pub(crate) fn pass(&mut self, entry: &testudo_base::Entry<'_>) {
        let is_large = || self.placement.class_of(entry.value.len()) == ValueClass::Large;
        self.passed += u64::from(entry.kind == Kind::Value && is_large());
        if self.passed >= COUNTED_TOGETHER {
            self.costs.note_reads(std::mem::take(&mut self.passed));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.costs.note_reads(self.passed);
    }
}

/// One of the entries taken ahead; for a separated value only its key.
enum Taken {
    Entry(Entry),
    Separated(Slice),
}

/// Copies an entry that is neither a tombstone nor a reference to a value segment. Operands become the value
/// they merge to, if they merge.
fn owned(entry: &testudo_base::Entry<'_>, pinned: &Arc<Pinned>) -> Entry {
    let value = match classify::<look_up::Value>(entry.kind, entry.value) {
        Ok(Shown::Operands) => pinned.view.full_merge.merge(entry),
        Ok(Shown::Value(_) | Shown::Nothing) => Ok(entry.value.to_vec()),
        Ok(Shown::Reference(reference)) => match long_value(reference) {
            Ok(reference) => return Entry::with_long_value(entry.key.to_vec().into(), pinned, reference),
            Err(why) => Err(why),
        },
        Ok(Shown::OperandsOver(reference)) => Err(operands_over(&reference)),
        Err(why) => Err(why),
    };
    let unmerged = |why| Unmerged::new(entry.kind, entry.value.to_vec(), why);
    Entry::new(entry.key.to_vec().into(), value.map(Slice::from).map_err(unmerged))
}

/// As [`owned`], for any entry but a tombstone; a separated value will be read on its own.
///
/// Errors: `Corruption` if a reference cannot be read.
pub(crate) fn owned_alone(
    entry: &testudo_base::Entry<'_>,
    pinned: &Arc<Pinned>,
    scan: &mut Option<Arc<SeparatedScan>>,
) -> Result<Entry> {
    if !refers(entry) {
        return Ok(owned(entry, pinned));
    }
    let scan = scan.get_or_insert_with(|| SeparatedScan::of(pinned));
    let mut separated = TakingAhead::new();
    separated.push(entry)?;
    Ok(Entry::with_separated(entry.key.to_vec().into(), separated.finish(scan, 0).value(0)))
}

impl Front {
    /// In a forked child, drops the parts that are independent of the parent's threads and leaks the rest.
    pub(crate) fn forget(self) {
        let Self { sources, watch, .. } = self;
        std::mem::forget((sources, watch));
    }

    /// A front before all entries of `sources`, which the caller seeks. `expected`: number of entries the
    /// scan will return, if known.
    pub(crate) fn new(sources: Sources, expected: Option<u64>, pinned: &Pinned) -> Self {
        Self {
            sources: Some(sources),
            parked_at: Vec::new(),
            parked_count: 1,
            is_passed: false,
            dead: DeadRun::new(Direction::Forward),
            has_ended: false,
            ahead: VecDeque::new(),
            failure: None,
            key_returned: None,
            count: 1,
            expected,
            returned: 0,
            separated_count: 0,
            scan: None,
            watch: Watch::of(pinned),
        }
    }

    /// Moves before the first entry whose key is ≥ `low`, or before all entries.
    /// REQUIRES: it is not parked.
    pub(crate) fn seek(&mut self, pinned: &Pinned, low: Option<&[u8]>) -> Result<()> {
        debug_assert!(!self.is_parked(), "a parked front resumes before it is sought");
        self.parked_count = 1;
        self.is_passed = false;
        self.ahead.clear();
        self.failure = None;
        self.key_returned = None;
        self.returned = 0;
        self.count = self.expected.filter(|expected| *expected > 0).unwrap_or(1).min(AHEAD_ENTRIES);
        let Some(sources) = &mut self.sources else { return Ok(()) };
        self.has_ended = self.dead.place(sources, pinned, low)? == Led::ToTheEnd;
        Ok(())
    }

    /// Returns `true` if it has no sources.
    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.sources.is_none()
    }

    /// Returns `true` if it needs sources for its next entry.
    #[inline]
    pub(crate) fn is_dry(&self) -> bool {
        self.is_parked() && self.ahead.is_empty() && self.failure.is_none()
    }

    /// Resumes with `sources` where it was parked.
    pub(crate) fn resume(&mut self, mut sources: Sources) -> Result<()> {
        sources.seek(&self.parked_at)?;
        let is_passed = sources.entry().is_some_and(|entry| entry.key == self.parked_at);
        self.resume_unpositioned(sources);
        self.is_passed = is_passed;
        Ok(())
    }

    /// Resumes with `sources`; the caller seeks it.
    pub(crate) fn resume_unpositioned(&mut self, sources: Sources) {
        debug_assert!(self.is_parked(), "resumes only while parked");
        self.is_passed = false;
        self.sources = Some(sources);
    }

    /// Drops its sources if it has returned an entry, and takes a few entries ahead first.
    pub(crate) fn park(&mut self, pinned: &Arc<Pinned>, is_beyond: impl Fn(&[u8]) -> bool) {
        if self.failure.is_some() || self.is_parked() {
            return;
        }
        let Some(returned) = self.key_returned().map(<[u8]>::to_vec) else { return };
        if self.ahead.is_empty() {
            self.take_plain_ahead(pinned, is_beyond);
        }
        let last = self.ahead.back().map_or(&returned[..], |entry| entry.key());
        self.parked_at.clear();
        self.parked_at.extend_from_slice(last);
        if planted!("parked-iterator-repeats") {
            self.parked_at.pop();
        }
        self.key_returned = Some(returned);
        self.sources = None;
        self.is_passed = false;
    }

    /// Takes entries ahead whose values are with their keys, starting after the current one of the sources.
    fn take_plain_ahead(&mut self, pinned: &Arc<Pinned>, is_beyond: impl Fn(&[u8]) -> bool) {
        debug_assert!(self.ahead.is_empty() && self.failure.is_none(), "entries are taken ahead in order");
        let left = usize_of(self.entries_left().unwrap_or(PARKED_ENTRIES));
        let count = self.parked_count.min(left);
        self.parked_count = (self.parked_count * 2).min(usize_of(PARKED_ENTRIES));
        let Some(sources) = &mut self.sources else { return };
        let (mut passed, mut bytes) = (0, 0);
        while passed < count && bytes < PARKED_BYTES && !self.has_ended {
            if std::mem::replace(&mut self.is_passed, true)
                && let Err(failure) = sources.next()
            {
                self.failure = Some(failure);
                return;
            }
            match sources.entry().filter(|entry| !is_beyond(entry.key) && !refers(entry)) {
                Some(entry) if entry.kind == Kind::Tombstone => {}
                Some(entry) => {
                    self.watch.iter_mut().for_each(|watch| watch.pass(&entry));
                    bytes += size_of::<Entry>() + entry.user_bytes();
                    self.ahead.push_back(owned(&entry, pinned));
                }
                None => return,
            }
            passed += 1;
        }
    }

    /// Memory of the front in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let ahead = self.ahead.iter().map(|entry| size_of::<Entry>() + entry.memory_bytes()).sum::<usize>();
        let keys = self.parked_at.capacity() + self.key_returned.as_ref().map_or(0, Vec::capacity);
        ahead + keys + self.sources.as_ref().map_or(0, Cursor::memory_bytes)
    }

    /// Returns the key of the last returned entry, unless it has been sought since.
    pub(crate) fn key_returned(&self) -> Option<&[u8]> {
        let of_sources = || {
            let entry = self.sources.as_ref()?.entry().filter(|_| self.is_passed)?;
            Some(entry.key)
        };
        self.key_returned.as_deref().or_else(of_sources)
    }

    /// Returns the next entry that is not a tombstone; `None` from the first entry on for which `is_beyond`
    /// holds.
    pub(crate) fn next(
        &mut self,
        pinned: &Arc<Pinned>,
        is_beyond: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Entry>> {
        if self.ahead.is_empty()
            && let Some(entry) = self.next_of_sources(pinned, &is_beyond)?
        {
            self.key_returned = None;
            self.returned += 1;
            return Ok(Some(entry));
        }
        if self.ahead.front().is_none_or(|entry| is_beyond(entry.key())) {
            return Ok(None);
        }
        let Some(entry) = self.ahead.pop_front() else { return Ok(None) };
        let key = self.key_returned.get_or_insert_default();
        debug_assert!(key.is_empty() || key.as_slice() < entry.key(), "the front moves up");
        key.clear();
        key.extend_from_slice(entry.key());
        self.returned += 1;
        Ok(Some(entry))
    }

    /// Returns the next entry of the sources; `None` at the end, or if the next entries were taken ahead.
    fn next_of_sources(
        &mut self,
        pinned: &Arc<Pinned>,
        is_beyond: &impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Entry>> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let Some(sources) = &mut self.sources else { return Ok(None) };
        if std::mem::take(&mut self.is_passed) {
            sources.next()?;
        }
        while let Some(entry) = self.sources.as_ref().and_then(Cursor::entry)
            && !self.has_ended
            && !is_beyond(entry.key)
        {
            if refers(&entry) {
                self.take_ahead(pinned, is_beyond)?;
                return Ok(None);
            }
            if entry.kind != Kind::Tombstone {
                self.is_passed = true;
                self.dead.end();
                self.watch.iter_mut().for_each(|watch| watch.pass(&entry));
                return Ok(Some(owned(&entry, pinned)));
            }
            self.pass_dead(pinned, is_beyond)?;
        }
        Ok(None)
    }

    /// Skips tombstones, starting with the current entry of the sources.
    fn pass_dead(&mut self, pinned: &Pinned, is_beyond: &impl Fn(&[u8]) -> bool) -> Result<()> {
        let Some(sources) = &mut self.sources else { return Ok(()) };
        self.has_ended = self.dead.pass(sources, pinned, is_beyond)? == Led::ToTheEnd;
        Ok(())
    }

    /// Returns the expected number of remaining entries, if known.
    fn entries_left(&self) -> Option<u64> {
        self.expected.map(|expected| expected.saturating_sub(self.returned)).filter(|left| *left > 0)
    }

    /// Takes entries ahead, starting with the current entry of the sources.
    fn take_ahead(&mut self, pinned: &Arc<Pinned>, is_beyond: &impl Fn(&[u8]) -> bool) -> Result<()> {
        debug_assert!(self.ahead.is_empty(), "entries are taken ahead in order");
        debug_assert!((1..=AHEAD_ENTRIES).contains(&self.count), "at least the current entry");
        let count = usize_of(self.entries_left().unwrap_or(self.count).min(self.count));
        self.count = (self.count * 2).min(AHEAD_ENTRIES);
        let (mut taken, mut separated, mut bytes, mut passed) = (Vec::new(), TakingAhead::new(), 0, 0);
        while let Some(entry) = self.sources.as_ref().and_then(Cursor::entry)
            && !self.has_ended
            && !is_beyond(entry.key)
        {
            if entry.kind == Kind::Tombstone {
                if let Err(failure) = self.pass_dead(pinned, is_beyond) {
                    self.failure = Some(failure);
                    break;
                }
                continue;
            }
            self.dead.end();
            if refers(&entry) {
                match separated.push(&entry) {
                    Ok(value_bytes) => bytes += value_bytes,
                    Err(failure) => {
                        self.failure = Some(failure);
                        break;
                    }
                }
                taken.push(Taken::Separated(entry.key.to_vec().into()));
            } else {
                self.watch.iter_mut().for_each(|watch| watch.pass(&entry));
                bytes += u64_of(entry.value.len());
                taken.push(Taken::Entry(owned(&entry, pinned)));
            }
            passed += 1;
            self.is_passed = true;
            if passed >= count || bytes >= AHEAD_BYTES {
                break;
            }
            self.is_passed = false;
            let moved = self.sources.as_mut().map_or(Ok(()), Cursor::next);
            if let Err(failure) = moved {
                self.failure = Some(failure);
                break;
            }
        }
        let scan = self.scan.get_or_insert_with(|| SeparatedScan::of(pinned));
        let separated = separated.finish(scan, self.separated_count);
        let mut index = 0;
        for taken in taken {
            self.ahead.push_back(match taken {
                Taken::Entry(entry) => entry,
                Taken::Separated(key) => {
                    index += 1;
                    Entry::with_separated(key, separated.value(index - 1))
                }
            });
        }
        debug_assert_eq!(index, separated.len(), "each reference has an entry");
        self.separated_count += u64_of(index);
        match self.failure.take_if(|_| self.ahead.is_empty()) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}
