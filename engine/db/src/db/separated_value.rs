//! Separated values of a scan: read on access, many at a time.
//!
//! An iterator takes entries ahead, which reads only pages of the tree (`scan_front.rs`). The first access to
//! a value also reads the values taken ahead after it: together, in the order of their places, neighbors in
//! one read. This happens if earlier values of the scan were accessed too. A scan that skips most values
//! reads only those it accesses, and a key-only scan reads no values.
//!
//! **Invariants**
//! - Entries taken ahead pin the state of the tree that their references belong to.
//! - A value read ahead is kept until it is accessed or its entry is dropped.
//! - Read-ahead hides errors: a value that cannot be read is an error only when it is accessed.

use std::mem;

use testudo_base::{
    Entry, Error, Kind, Result, ValueReference,
    merge_operator::FullMerge,
    num::u64_of,
    operands_format::with_value_read,
    planted,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use testudo_contract::Tree;
use testudo_storage::StreamLease;
use testudo_store::read::{
    look_up::{damaged_entry, stray_reference},
    slice::Slice,
};
use testudo_values::{LargeValues, SegmentSet, ValueCosts};

use crate::db::{Open, pinned::Pinned};

/// Maximum bytes of values read together …
pub(crate) const AHEAD_BYTES: u64 = 256 << 10;
/// … and without a lease.
const UNLEASED_BYTES: u64 = 64 << 10;
/// Read-ahead gains little for values of at least this length, so it is limited to one part in `LOOKED_PARTS`
/// of the bytes accessed so far.
const LONG_VALUE_BYTES: u64 = 32 << 10;
const LOOKED_PARTS: u64 = 8;
/// Values are read ahead if at least one in this many was accessed.
const PASSED_MAX: u64 = 4;

/// The stored bytes of a key whose value cannot be determined, with the reason.
#[derive(Clone)]
pub(crate) struct Unmerged {
    pub(crate) kind: Kind,
    pub(crate) stack: Vec<u8>,
    pub(crate) why: Error,
}

impl Unmerged {
    /// Operands of `kind` that do not merge to a value.
    pub(crate) fn new(kind: Kind, stack: Vec<u8>, why: Error) -> Box<Self> {
        Box::new(Self { kind, stack, why })
    }
}

/// A value, or why there is none.
pub(crate) type Told = std::result::Result<Slice, Box<Unmerged>>;

/// Returns `true` if an entry has a reference to a value segment in place of a value.
pub(crate) fn refers(entry: &Entry<'_>) -> bool {
    matches!(entry.kind, Kind::Reference | Kind::UnmergedReference)
        && !ValueReference::is_to_long_value(entry.kind, entry.value)
}

/// State shared by the values of one scan.
pub(crate) struct SeparatedScan {
    /// Keeps the store open.
    open: Arc<Open>,
    /// Name of the keyspace.
    keyspace: Arc<str>,
    tree: Arc<dyn Tree>,
    full_merge: Arc<FullMerge>,
    /// Counters of the cost of separated values to scans.
    costs: Option<(Arc<ValueCosts>, LargeValues)>,
    /// Number of the last accessed value plus one; 0 if none was accessed.
    looked: AtomicU64,
    /// Bytes of all accessed values.
    looked_bytes: AtomicU64,
}

impl Drop for SeparatedScan {
    fn drop(&mut self) {
        if self.open.store.is_forked() {
            mem::forget((Arc::clone(&self.tree), Arc::clone(&self.full_merge), self.costs.clone()));
        }
    }
}

impl SeparatedScan {
    /// The shared state of a scan of `pinned`.
    pub(crate) fn of(pinned: &Pinned) -> Arc<Self> {
        let costs = pinned.view.tree.value_costs().cloned();
        Arc::new(Self {
            open: Arc::clone(pinned.open()),
            keyspace: Arc::clone(&pinned.keyspace),
            tree: Arc::clone(&pinned.view.tree),
            full_merge: Arc::clone(&pinned.view.full_merge),
            costs: costs.map(|costs| (costs, pinned.view.options.large_values())),
            looked: 0.into(),
            looked_bytes: 0.into(),
        })
    }

    fn segments(&self) -> Result<&SegmentSet> {
        self.tree.value_segments().ok_or_else(stray_reference)
    }

    /// Reads the values of several references together.
    fn read(&self, wanted: &[(&[u8], ValueReference)]) -> Result<Vec<Vec<u8>>> {
        let segments = self.segments()?;
        let (values, reads) = segments.read_together(wanted)?;
        debug_assert_eq!(values.len(), wanted.len(), "a value for each reference");
        if let Some((costs, large_values)) = &self.costs {
            // Values of transient segments return to their keys anyway, so they cost scans nothing for long.
            let reads = reads * u64_of(segments.count_permanent(wanted)) / u64_of(wanted.len().max(1));
            match large_values {
                LargeValues::Separated => costs.note_reads(reads),
                LargeValues::WithKeys => costs.note_stray_reads(reads),
            }
        }
        Ok(values)
    }
}

/// A reference, and the positions of its entry's bytes.
struct Wanted {
    kind: Kind,
    key_start: usize,
    value_start: usize,
    end: usize,
    reference: ValueReference,
}

/// State of one value.
enum Slot {
    Unread,
    /// Read ahead, not accessed yet.
    Read(Vec<u8>),
    /// Moved to its entry, or its entry was dropped.
    Gone,
}

/// Values read ahead, and the lease of memory for them.
struct Slots {
    slots: Vec<Slot>,
    lease: Option<StreamLease>,
}

/// References that were taken ahead together.
pub(crate) struct TakenAhead {
    scan: Arc<SeparatedScan>,
    /// Number of values of the scan before the first of these.
    first_number: u64,
    /// Keys and stored values, concatenated.
    bytes: Vec<u8>,
    wanted: Vec<Wanted>,
    /// Held while values are read; the holder takes no other lock of the store.
    slots: Mutex<Slots>,
}

/// References that are being taken ahead.
pub(crate) struct TakingAhead {
    bytes: Vec<u8>,
    wanted: Vec<Wanted>,
}

impl TakingAhead {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), wanted: Vec::new() }
    }

    /// Adds an entry with a reference; returns the length of its value.
    ///
    /// Errors: `Corruption` if it has no valid reference.
    pub(crate) fn push(&mut self, entry: &Entry<'_>) -> Result<u64> {
        let reference = ValueReference::of(entry.kind, entry.value).map_err(damaged_entry)?;
        let reference = reference.ok_or_else(stray_reference)?;
        let key_start = self.bytes.len();
        self.bytes.extend_from_slice(entry.key);
        let value_start = self.bytes.len();
        self.bytes.extend_from_slice(entry.value);
        let end = self.bytes.len();
        self.wanted.push(Wanted { kind: entry.kind, key_start, value_start, end, reference });
        Ok(u64::from(reference.length))
    }

    /// Returns all added references. `first_number`: number of values of the scan before them.
    pub(crate) fn finish(self, scan: &Arc<SeparatedScan>, first_number: u64) -> Arc<TakenAhead> {
        let Self { bytes, wanted } = self;
        let slots = wanted.iter().map(|_| Slot::Unread).collect();
        let slots = Mutex::new(Slots { slots, lease: None });
        Arc::new(TakenAhead { scan: Arc::clone(scan), first_number, bytes, wanted, slots })
    }
}

impl Drop for TakenAhead {
    fn drop(&mut self) {
        if self.scan.open.store.is_forked() {
            mem::forget(self.slots.get_mut().lease.take());
        }
    }
}

impl TakenAhead {
    /// Returns the value of entry number `index`. REQUIRES: called once per entry.
    pub(crate) fn value(self: &Arc<Self>, index: usize) -> SeparatedValue {
        debug_assert!(index < self.wanted.len(), "an entry taken ahead");
        SeparatedValue { taken: Arc::clone(self), index, told: OnceLock::new() }
    }

    /// Number of references.
    pub(crate) fn len(&self) -> usize {
        self.wanted.len()
    }

    pub(crate) fn key(&self, index: usize) -> &[u8] {
        let wanted = &self.wanted[index];
        &self.bytes[wanted.key_start..wanted.value_start]
    }

    /// Returns `true` if an access to the value with this number also reads the values after it; records the
    /// access.
    fn reads_ahead(&self, number: u64) -> bool {
        let looked = self.scan.looked.swap(number + 1, Relaxed);
        number < PASSED_MAX || (looked > 0 && looked <= number && number - looked < PASSED_MAX)
    }

    /// Returns value `index` on first access, and reads it if necessary.
    fn look_at(&self, index: usize) -> Result<Vec<u8>> {
        let reads_ahead = self.reads_ahead(self.first_number + u64_of(index));
        self.scan.looked_bytes.fetch_add(self.wanted[index].reference.length.into(), Relaxed);
        let mut slots = self.slots.lock();
        if let Slot::Read(_) = slots.slots[index] {
            return Ok(slots.take(index).expect("it was read"));
        }
        if reads_ahead {
            self.read_from(index, &mut slots)?;
            if let Some(value) = slots.take(index) {
                return Ok(value);
            }
        }
        let mut alone = self.scan.read(&[(self.key(index), self.wanted[index].reference)])?;
        slots.forget(index);
        Ok(alone.pop().expect("each reference has its value"))
    }

    /// Reads values from `index` on, up to the limits; ignores read errors.
    fn read_from(&self, index: usize, slots: &mut Slots) -> Result<()> {
        let data = self.scan.segments()?.iter().next().map(|segment| segment.run().data());
        if slots.lease.is_none() {
            slots.lease = data.and_then(|data| data.lease_stream(AHEAD_BYTES));
        }
        let bytes_max = if slots.lease.is_some() { AHEAD_BYTES } else { UNLEASED_BYTES };
        let length = u64::from(self.wanted[index].reference.length);
        let bytes_max = if length < LONG_VALUE_BYTES {
            bytes_max
        } else {
            bytes_max.min(length.max(self.scan.looked_bytes.load(Relaxed) / LOOKED_PARTS))
        };
        let (mut bytes, mut chosen, mut wanted) = (0, Vec::new(), Vec::new());
        for at in index..self.wanted.len() {
            let reference = self.wanted[at].reference;
            bytes += u64::from(reference.length);
            // A value beyond the limit is read on its own when it is accessed.
            if bytes > bytes_max {
                break;
            }
            if let Slot::Unread = slots.slots[at] {
                chosen.push(at);
                wanted.push((self.key(at), reference));
            }
        }
        debug_assert!(chosen.is_sorted_by(|a, b| a < b), "in the order of the entries");
        if let Ok(values) = self.scan.read(&wanted) {
            let shift = usize::from(planted!("values-ahead-shifted") && chosen.len() > 2);
            let places = chosen.iter().cycle().skip(shift);
            places.zip(values).for_each(|(at, value)| slots.slots[*at] = Slot::Read(value));
        }
        slots.give_back_lease();
        Ok(())
    }

    /// Returns the entry's final value, given the value that its reference points to.
    fn told(&self, index: usize, value: Vec<u8>) -> Result<Told> {
        let wanted = &self.wanted[index];
        if wanted.kind == Kind::Reference {
            return Ok(Ok(Slice::from(value)));
        }
        debug_assert_eq!(wanted.kind, Kind::UnmergedReference, "operands on a reference");
        let stored = &self.bytes[wanted.value_start..wanted.end];
        let stack = with_value_read(stored, &value).map_err(damaged_entry)?;
        let entry = Entry { key: self.key(index), kind: Kind::Unmerged, value: &stack };
        let merged = self.scan.full_merge.merge(&entry);
        Ok(merged.map(Slice::from).map_err(|why| Unmerged::new(Kind::Unmerged, stack, why)))
    }
}

impl Slots {
    /// Takes the value if it was read.
    fn take(&mut self, index: usize) -> Option<Vec<u8>> {
        match mem::replace(&mut self.slots[index], Slot::Gone) {
            Slot::Read(value) => {
                self.give_back_lease();
                Some(value)
            }
            other => {
                self.slots[index] = other;
                None
            }
        }
    }

    fn forget(&mut self, index: usize) {
        self.slots[index] = Slot::Gone;
        self.give_back_lease();
    }

    /// Releases the lease once it holds no value.
    fn give_back_lease(&mut self) {
        if self.lease.is_some() && !self.slots.iter().any(|slot| matches!(slot, Slot::Read(_))) {
            self.lease = None;
        }
    }
}

/// The separated value of an entry, read on first access.
pub(crate) struct SeparatedValue {
    taken: Arc<TakenAhead>,
    index: usize,
    told: OnceLock<Told>,
}

impl SeparatedValue {
    /// Returns the value, or why there is none.
    ///
    /// Errors: those of the read; the next call reads again.
    pub(crate) fn get(&self) -> Result<&Told> {
        if let Some(told) = self.told.get() {
            return Ok(told);
        }
        let told = self.taken.scan.open.store.read_of(&self.taken.scan.keyspace, || {
            let value = self.taken.look_at(self.index)?;
            self.taken.told(self.index, value)
        })?;
        Ok(self.told.get_or_init(|| told))
    }

    /// As [`SeparatedValue::get`], but only if it was read already.
    pub(crate) fn get_if_read(&self) -> Option<&Told> {
        self.told.get()
    }

    /// Returns the length of the value, if the reference states it.
    pub(crate) fn stated_len(&self) -> Option<u64> {
        let wanted = &self.taken.wanted[self.index];
        (wanted.kind == Kind::Reference).then(|| u64::from(wanted.reference.length))
    }

    /// Returns the value, without a copy if no other clone of the entry exists.
    pub(crate) fn into_value(this: Arc<Self>) -> Result<Slice> {
        this.get()?;
        match Arc::try_unwrap(this) {
            Ok(mut alone) => alone.told.take().expect("it was read").map_err(|unmerged| unmerged.why),
            Err(shared) => shared.get()?.clone().map_err(|unmerged| unmerged.why),
        }
    }
}

impl Drop for SeparatedValue {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread of the parent that no longer exists.
        if !self.taken.scan.open.store.is_forked() {
            self.taken.slots.lock().forget(self.index);
        }
    }
}
