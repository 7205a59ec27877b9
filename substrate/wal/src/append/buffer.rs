#![expect(unsafe_code, reason = "many writers fill disjoint ranges of one buffer at the same time")]
//! A buffer of log bytes that several writers fill concurrently, each its own range.
//!
//! A buffer passes through a cycle of owners, each with its own type: [`EmptyBuffer`] → [`ActiveBuffer`]
//! (hands out ranges) → [`SealedBuffer`] (waits until they are filled, yields the bytes) → empty again.
//!
//! **Invariants**
//! - At any moment a buffer's memory has one owner of these types, in addition to the [`Claim`]s on it.
//! - The ranges of the claims of one turn are disjoint, because one `ActiveBuffer` hands them out in order.
//! - The sum over `filled` is the total length of the claims dropped in this turn. Adding to it is a claim's
//!   last access to the memory, so once it equals the length handed out, only the owner can reach the memory.
//!   Only then is the memory freed or reused; memory whose claims were leaked is leaked.
//! - In a buffer kept in a file, length and seqnos of a claim are stored before the claim is handed out.
//!   After the end of the process, the records behind an unfilled one can therefore be found.
//! - Concurrent writers share no cache lines except at the ends of their ranges.

use std::{
    cell::{Cell, UnsafeCell},
    fmt,
    ptr::{self, NonNull},
    slice,
    sync::atomic::AtomicU64,
};

use crossbeam_utils::CachePadded;
use testudo_base::{
    LargeSlice, PAGE_SIZE, Seqno,
    prefetch::prefetch_to_write,
    sync::{
        Arc, Backoff, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
        scaled,
    },
};

use testudo_env::MappedFile;

use crate::segment::{
    tail_format::{
        TAIL_HEADER_BYTES, TURN_WORD, TailHeader, begin_turn, entry_bytes, stamp_entry, state_used,
    },
    wal_format::stamp_record,
};

/// Counters of filled bytes per buffer; threads are spread evenly over them.
const COUNTER_COUNT: usize = scaled(8, 2);

/// Where threads sleep until a buffer is filled. Shared by all buffers of the process, because a claim must
/// not touch its buffer after it has counted itself as filled. Rarely used: a copy takes less than a
/// microsecond.
static GATE: Mutex<()> = Mutex::new(());
static SOME_FILLED: Condvar = Condvar::new();
static SLEEPER_COUNT: AtomicUsize = AtomicUsize::new(0);

static THREAD_COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
thread_local! {
    static COUNTER: Cell<usize> =
        Cell::new(THREAD_COUNT.fetch_add(1, Ordering::Relaxed) % COUNTER_COUNT);
}

#[derive(bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct Page(UnsafeCell<[u8; PAGE_SIZE]>);

/// A mapped file for one buffer.
pub(crate) struct TailFile {
    pub(crate) mapping: Arc<dyn MappedFile>,
    pub(crate) number: u64,
}

/// The backing memory of a buffer.
enum Place {
    Heap(#[expect(dead_code, reason = "owns the memory")] LargeSlice<Page>),
    /// A file of the store, after its header.
    Kept(TailFile),
}

struct Memory {
    place: Place,
    /// The first byte.
    base: *mut u8,
    capacity: usize,
    filled: [CachePadded<AtomicUsize>; COUNTER_COUNT],
}

// SAFETY: the memory at `base` belongs to `place`, which moves between threads like any owner.
unsafe impl Send for Memory {}
// SAFETY: the memory at `base` is reached only through the disjoint ranges of live claims, or through the one
// owner after all claims of the turn were dropped. The acquiring loads of `filled` order these accesses.
unsafe impl Sync for Memory {}

impl Memory {
    fn heap(bytes: usize) -> Box<Self> {
        let pages: LargeSlice<Page> = LargeSlice::zeroed(bytes.div_ceil(PAGE_SIZE));
        let (base, capacity) = (pages.as_ptr().cast_mut().cast(), pages.len() * PAGE_SIZE);
        Box::new(Self { place: Place::Heap(pages), base, capacity, filled: Default::default() })
    }

    fn kept(file: TailFile) -> Box<Self> {
        let base = file.mapping.start().as_ptr().wrapping_add(TAIL_HEADER_BYTES);
        let capacity = file.mapping.len() - TAIL_HEADER_BYTES;
        debug_assert!(capacity.is_multiple_of(PAGE_SIZE), "buffers have whole pages");
        Box::new(Self { place: Place::Kept(file), base, capacity, filled: Default::default() })
    }

    /// Address of the byte at `offset`. REQUIRES: it is within the buffer or at its end.
    #[inline]
    fn address(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.capacity, "within the buffer");
        self.base.wrapping_add(offset)
    }

    /// The words of the buffer's file that state its use.
    #[inline]
    fn turn_words(&self) -> Option<&[AtomicU64; 4]> {
        let Place::Kept(file) = &self.place else { return None };
        let words: *mut AtomicU64 = file.mapping.start().as_ptr().cast();
        // SAFETY: the words lie within the header page of the mapping, which lives as long as `self`. They
        // are aligned, and only atomics refer to them.
        Some(unsafe { &*words.wrapping_add(TURN_WORD).cast() })
    }

    fn filled_bytes(&self) -> usize {
        self.filled.iter().map(|counter| counter.load(Ordering::SeqCst)).sum()
    }
}

/// The owner's handle to a buffer; claims have a different one.
struct OwnedMemory {
    memory: NonNull<Memory>,
    /// Its commits are acknowledged only once they are written.
    must_write: bool,
    /// It was created for one long record.
    is_for_one: bool,
    /// Bytes handed out in this turn to records, from the start onwards …
    used: usize,
    /// … and to values, from the end backwards.
    value_bytes: usize,
}

// SAFETY: `Memory` may be shared and sent between threads; the pointer is that of its owner.
unsafe impl Send for OwnedMemory {}

impl OwnedMemory {
    fn new(memory: Box<Memory>, must_write: bool) -> Self {
        let memory = NonNull::from(Box::leak(memory));
        Self { memory, must_write, is_for_one: false, used: 0, value_bytes: 0 }
    }

    fn get(&self) -> &Memory {
        // SAFETY: the memory lives until its owner is dropped, and no `&mut` to it exists.
        unsafe { self.memory.as_ref() }
    }

    fn capacity(&self) -> usize {
        self.get().capacity
    }

    fn is_filled(&self) -> bool {
        let filled_bytes = self.get().filled_bytes();
        let handed_out = self.used + self.value_bytes;
        debug_assert!(filled_bytes <= handed_out, "filled bytes never exceed those handed out");
        filled_bytes == handed_out
    }

    fn wait_until_filled(&self) {
        let backoff = Backoff::new();
        while !backoff.is_completed() {
            if self.is_filled() {
                return;
            }
            backoff.snooze();
        }
        let mut gate = GATE.lock();
        // In the single total order of these accesses and those of `Claim::drop`, either the claim sees the
        // sleeper or the sleeper sees its bytes.
        SLEEPER_COUNT.fetch_add(1, Ordering::SeqCst);
        while !self.is_filled() {
            SOME_FILLED.wait(&mut gate);
        }
        let before = SLEEPER_COUNT.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "this thread was counted");
    }
}

impl Drop for OwnedMemory {
    fn drop(&mut self) {
        // Waiting here could deadlock: the claim may be held further up on this very stack.
        if self.is_filled() {
            // SAFETY: it came from a box, all claims of the turn were dropped, and this is the only owner.
            drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
        }
    }
}

/// A buffer that is not in use.
pub(crate) struct EmptyBuffer(OwnedMemory);

impl EmptyBuffer {
    /// A buffer of zeroed memory of `bytes`, rounded up to whole pages and page-aligned. With `must_write`,
    /// its commits are acknowledged once they are written.
    pub(crate) fn new(bytes: usize, must_write: bool) -> Self {
        Self(OwnedMemory::new(Memory::heap(bytes), must_write))
    }

    /// A buffer for one record of `bytes` that fits into no other buffer; it is acknowledged once it is
    /// written.
    pub(crate) fn for_one(bytes: usize) -> Self {
        let mut buffer = Self::new(bytes, true);
        buffer.0.is_for_one = true;
        buffer
    }

    /// Whether it was created for one long record.
    pub(crate) fn is_for_one(&self) -> bool {
        self.0.is_for_one
    }

    /// A buffer in a file, whose header this writes. Panics if the mapping has another user.
    pub(crate) fn kept(mut file: TailFile, header: &TailHeader) -> Self {
        assert!(Arc::get_mut(&mut file.mapping).is_some(), "a mapping has one user");
        assert!(file.mapping.len() > TAIL_HEADER_BYTES, "a header, and a buffer behind it");
        let fixed = header.encode();
        assert!(fixed.len() <= TAIL_HEADER_BYTES, "the header fits before the buffer");
        let start = file.mapping.start().as_ptr();
        // SAFETY: the mapping is longer than a header, and the buffer made of it is its only user.
        unsafe { ptr::copy_nonoverlapping(fixed.as_ptr(), start, fixed.len()) };
        Self(OwnedMemory::new(Memory::kept(file), false))
    }

    /// Number of its file, if it has one.
    pub(crate) fn file_number(&self) -> Option<u64> {
        match &self.0.get().place {
            Place::Kept(file) => Some(file.number),
            Place::Heap(_) => None,
        }
    }

    /// Size in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Starts a new turn, the `turn`-th of the log, whose first record has this seqno.
    pub(crate) fn activate(mut self, turn: u64, first_seqno: Seqno) -> ActiveBuffer {
        debug_assert!(self.0.is_filled(), "no claim of the previous turn is left");
        for counter in &self.0.get().filled {
            counter.store(0, Ordering::Relaxed);
        }
        (self.0.used, self.0.value_bytes) = (0, 0);
        if let Some(words) = self.0.get().turn_words() {
            begin_turn(words, turn, first_seqno);
        }
        let is_kept = self.file_number().is_some();
        ActiveBuffer { capacity: self.0.capacity(), is_kept, owned: self.0 }
    }
}

/// Space that a commit needs in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimSize {
    /// Bytes of the record.
    pub(crate) record_bytes: usize,
    /// Bytes of its values in value logs; 0 if it has none.
    pub(crate) value_bytes: usize,
}

impl ClaimSize {
    /// A record without values in value logs.
    pub(crate) fn of_record(record_bytes: usize) -> Self {
        Self { record_bytes, value_bytes: 0 }
    }

    fn entry_bytes(&self) -> usize {
        if self.value_bytes == 0 { 0 } else { entry_bytes(self.value_bytes) }
    }

    /// Bytes that its records and entries need in a kept buffer.
    pub(crate) fn kept_bytes(&self) -> usize {
        kept_bytes(self.record_bytes, self.entry_bytes())
    }
}

/// Records are zero-padded to whole pages when they are written, so no value may be in their last page.
#[inline]
fn kept_bytes(record_bytes: usize, value_bytes: usize) -> usize {
    if value_bytes == 0 { record_bytes } else { record_bytes.next_multiple_of(PAGE_SIZE) + value_bytes }
}

/// Properties of a commit at the time it gets its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) payload_bytes: usize,
    pub(crate) first_seqno: Seqno,
    pub(crate) seqno_count: u32,
}

/// A buffer that hands out ranges.
pub(crate) struct ActiveBuffer {
    owned: OwnedMemory,
    capacity: usize,
    is_kept: bool,
}

impl ActiveBuffer {
    /// Whether [`ActiveBuffer::claim`] has room for `size`.
    #[inline]
    pub(crate) fn has_room(&self, size: ClaimSize) -> bool {
        let OwnedMemory { used, value_bytes, .. } = self.owned;
        if !self.is_kept {
            return size.record_bytes <= self.capacity - used;
        }
        kept_bytes(used + size.record_bytes, value_bytes + size.entry_bytes()) <= self.capacity
    }

    /// Whether its commits are acknowledged only once they are written.
    #[inline]
    pub(crate) fn must_write(&self) -> bool {
        self.owned.must_write
    }

    /// Hands out the next bytes. REQUIRES: there is room.
    #[inline]
    pub(crate) fn claim(&mut self, size: ClaimSize, stamp: Stamp) -> Claim {
        assert!(self.has_room(size), "the buffer has room");
        let entry_bytes = if self.is_kept { size.entry_bytes() } else { 0 };
        let owned = &mut self.owned;
        let (start, bytes) = (owned.used, size.record_bytes);
        owned.used += bytes;
        owned.value_bytes += entry_bytes;
        debug_assert!(owned.used + owned.value_bytes <= self.capacity, "ranges are within the buffer");
        let values = self.capacity - owned.value_bytes;
        let mut claim = Claim { memory: owned.memory, start, bytes, values, entry_bytes };
        if self.is_kept {
            claim.stamp(size, stamp);
            let used = (owned.used, owned.value_bytes);
            if let Some(words) = owned.get().turn_words() {
                state_used(words, used.0, used.1);
            }
            // The next record is stamped under the lock, which would otherwise wait for its cache line.
            prefetch_to_write::<2>(owned.get().address(used.0));
        }
        claim
    }

    /// Ends the handing out of ranges.
    pub(crate) fn seal(self) -> SealedBuffer {
        SealedBuffer(self.owned)
    }
}

/// One writer's range of a buffer; dropping it marks the range as filled.
pub(crate) struct Claim {
    memory: NonNull<Memory>,
    start: usize,
    bytes: usize,
    /// Start of the entry of its values, and its length.
    values: usize,
    entry_bytes: usize,
}

// SAFETY: the claim alone owns its range, whichever thread holds it; `Memory` may be shared.
unsafe impl Send for Claim {}
// SAFETY: a shared claim gives access to nothing.
unsafe impl Sync for Claim {}

impl Claim {
    /// The range. Before it is filled, it holds arbitrary bytes of an earlier turn.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let address = self.memory().address(self.start);
        // SAFETY: the range lies within the buffer (checked when it was claimed), belongs to this claim
        // alone for as long as it lives, and is borrowed mutably from the claim.
        unsafe { slice::from_raw_parts_mut(address, self.bytes) }
    }

    /// The entry of its values, if the buffer keeps them.
    #[inline]
    pub(crate) fn entry_mut(&mut self) -> Option<&mut [u8]> {
        if self.entry_bytes == 0 {
            return None;
        }
        let address = self.memory().address(self.values);
        // SAFETY: as above; entries are handed out from the end backwards and never reach the last record.
        Some(unsafe { slice::from_raw_parts_mut(address, self.entry_bytes) })
    }

    /// Stores length and seqnos of the range before it is filled.
    #[inline]
    fn stamp(&mut self, size: ClaimSize, stamp: Stamp) {
        let Stamp { payload_bytes, first_seqno, seqno_count } = stamp;
        stamp_record(self.bytes_mut(), payload_bytes, first_seqno, seqno_count);
        if let Some(entry) = self.entry_mut() {
            stamp_entry(entry, first_seqno, size.value_bytes);
        }
    }

    /// Bytes of the range.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    #[inline]
    fn memory(&self) -> &Memory {
        // SAFETY: the owner does not free the memory before this claim has counted itself as filled, which
        // happens when it is dropped.
        unsafe { self.memory.as_ref() }
    }
}

impl Drop for Claim {
    #[inline]
    fn drop(&mut self) {
        let index = COUNTER.with(Cell::get);
        let counter: *const AtomicUsize = &raw const *self.memory().filled[index];
        // SAFETY: the counter lives until the addition is made. The reference made for the call of
        // `fetch_add` allows the memory to be freed before the call returns, because it has interior
        // mutability.
        unsafe { (*counter).fetch_add(self.bytes + self.entry_bytes, Ordering::SeqCst) };
        // From here on the buffer may have been freed.
        if SLEEPER_COUNT.load(Ordering::SeqCst) > 0 {
            drop(GATE.lock());
            SOME_FILLED.notify_all();
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({}..{})", self.start, self.start + self.bytes)
    }
}

/// A buffer waiting to be written.
pub(crate) struct SealedBuffer(OwnedMemory);

impl SealedBuffer {
    /// Waits until all claims are filled and returns the bytes, zero-padded to whole pages.
    pub(crate) fn bytes(&mut self) -> &[u8] {
        self.0.wait_until_filled();
        let padded = self.0.used.next_multiple_of(PAGE_SIZE);
        debug_assert!(padded + self.0.value_bytes <= self.0.capacity(), "no value is in the last page");
        let address = self.0.get().address(0);
        // SAFETY: the pages lie within the buffer, whose size is a multiple of the page. All claims of the
        // turn were dropped and no new ones can be made, so this mutably borrowed owner has exclusive access.
        let bytes = unsafe { slice::from_raw_parts_mut(address, padded) };
        bytes[self.0.used..].fill(0);
        bytes
    }

    /// Ends the turn.
    pub(crate) fn recycle(self) -> EmptyBuffer {
        self.0.wait_until_filled();
        EmptyBuffer(self.0)
    }
}

#[cfg(test)]
mod tests;
