//! All memory of one memtable in raw chunks: the bytes of all versions of all keys, and leaves and groups of
//! the index.
//!
//! A record is a [`Header`], the key and room for the value, aligned to eight bytes. It is addressed by 32
//! bits: the window of its chunk, and its offset in the window in units of eight bytes. Space is handed to
//! threads in slabs, which they fill in order of arrival, because sequentially written memory is in the cache
//! before it is needed. Larger records go directly into the chunk, very large ones into a dedicated chunk.
//! Nothing is freed before the arena is dropped. Parts of the index ([`Held`]) start at cache lines, in
//! separate spans, so that records do not shift them across lines.
//!
//! **Invariants**
//! - A [`Record`] cannot be copied: it is owned by one leaf entry or by the `prev` of one other record. So
//!   `&Record` means that the record is not being written, `&mut Record` that it has no other reader. The
//!   borrow checker, together with the leaf's lock, keeps readers off a value that is being replaced.
//! - A [`Record`] is used only with the arena that created it, and a [`Held`] is dropped before it: both
//!   carry the arena's *brand*, an invariant lifetime. A function that is generic over the brand can neither
//!   mix two arenas nor keep a part of one. Choosing a brand is unsafe ([`Arena::with_brand`]).
//! - Space handed out, to a slab or from a slab, is never handed out again; so records never overlap. No
//!   record crosses the end of a chunk.
//! - Header and key are written before the record becomes reachable; of the value, `value_bytes` bytes are.
#![expect(unsafe_code, reason = "records are raw bytes in chunks, named by 32 bits to keep the index small")]

use std::{marker::PhantomData, mem, num::NonZeroU32, ptr::NonNull, slice};

use testudo_base::{
    Entry, Kind, MAX_KEY_BYTES, Seqno,
    chunks::{CHUNK_BYTES, ChunkPool},
    num::{low32, u32_of, u64_of},
    planted,
    prefetch::{LINE_BYTES, prefetch},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use crate::windows::{WINDOWS_MAX, Windows};

mod held;
mod space;

pub(crate) use self::held::Held;
use self::space::{Space, Span, chunk_bytes_after};

const UNIT_BYTES: usize = 8;
const LINE_UNITS: usize = LINE_BYTES / UNIT_BYTES;
/// Cache lines of a record to prefetch.
const RECORD_LINES: usize = 3;
/// Log2 of the units per window; a window holds at most one full-size chunk.
const WINDOW_LOG: u32 = (CHUNK_BYTES / UNIT_BYTES).ilog2();
/// A record of at least this size that does not fit into the rest of the chunk gets a dedicated chunk, while
/// window ids are plentiful.
const DEDICATED_BYTES: usize = CHUNK_BYTES / 8;
/// A record of at least this size does not go through a slab.
const DIRECT_BYTES: usize = 1 << 10;
const SLABS: usize = 16;
const SLAB_BYTES: usize = 16 << 10;
const SMALL_SLAB_BYTES: usize = 4 << 10;
/// Space for parts of the index in a small arena: a leaf and two groups, or four groups.
const SMALL_INDEX_BYTES: usize = 768;
/// An arena smaller than this has one small slab for all threads.
const SMALL_ARENA_BYTES: u64 = 256 << 10;
/// Position of the kind in the key length word: the kind has the top byte.
const KIND_SHIFT: u32 = 24;
const KEY_BYTES_MASK: u32 = (1 << KIND_SHIFT) - 1;

const HEADER_BYTES: usize = size_of::<Header<'_>>();

/// Ties records and parts of an index to one arena: lifetimes of two arenas never unify.
type Brand<'id> = PhantomData<fn(&'id ()) -> &'id ()>;

/// Header before a record's key and value.
#[repr(C)]
struct Header<'id> {
    seqno: u64,
    prev: Option<Record<'id>>,
    /// Length of the key; the highest byte is the kind.
    key_bytes_and_kind: u32,
    value_bytes: u32,
    value_capacity: u32,
}

/// Owned address of a record in the arena with the brand `'id`.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Record<'id>(NonZeroU32, Brand<'id>);

/// A span from which records are cut: its start in the high half, the remaining units in the low half. On
/// separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slab(AtomicU64);

/// A version about to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version<'a> {
    pub(crate) seqno: Seqno,
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl Version<'_> {
    pub(crate) fn entry(&self) -> Entry<'_> {
        Entry { key: self.key, kind: self.kind, value: self.value }
    }
}

/// The memory of one memtable. The fields that every insert accesses come first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Arena<'id> {
    bytes: AtomicU64,
    /// The slab of all threads while the arena is small.
    small_slab: AtomicU64,
    slabs: OnceLock<Box<[Slab; SLABS]>>,
    windows: Windows,
    window_count: AtomicU32,
    pool: Arc<ChunkPool>,
    space: Mutex<Space>,
    brand: Brand<'id>,
}

thread_local! {
    /// Index of a thread's slab, assigned round-robin.
    static SLAB_OF_THREAD: usize = {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SLABS
    };
}

impl<'id> Arena<'id> {
    /// Bytes at its start that inserts access.
    pub(crate) const INSERT_BYTES: usize = mem::offset_of!(Arena<'id>, windows) + Windows::FIRST_BYTES;

    /// An arena with a brand that the caller chooses.
    ///
    /// # Safety
    ///
    /// Code that sees this arena or anything branded by it is generic over `'id` and gets no two arenas with
    /// the same brand; and what carries the brand is dropped before the arena.
    pub(crate) unsafe fn with_brand(pool: Arc<ChunkPool>) -> Self {
        Self {
            pool,
            windows: Windows::default(),
            // No record has address 0, so window 0 stays unused.
            window_count: AtomicU32::new(1),
            bytes: AtomicU64::new(0),
            small_slab: AtomicU64::new(0),
            slabs: OnceLock::new(),
            space: Mutex::default(),
            brand: PhantomData,
        }
    }

    /// Lends a new arena to `f`.
    #[cfg(test)]
    pub(crate) fn scope<R>(pool: Arc<ChunkPool>, f: impl for<'a> FnOnce(&Arena<'a>) -> R) -> R {
        // SAFETY: `f` is generic over the brand, so it gets no other arena with it; its result cannot carry
        // the brand.
        f(&unsafe { Arena::<'static>::with_brand(pool) })
    }

    pub(crate) fn pool(&self) -> &ChunkPool {
        &self.pool
    }

    /// Bytes taken from the pool, and of the tables that address them.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether half of the window ids are in use. The rest is enough for any batch: from here on chunks have
    /// the full size, and at least half of each is used.
    pub(crate) fn is_half_named(&self) -> bool {
        self.window_count.load(Ordering::Relaxed) >= WINDOWS_MAX / 2
    }

    /// For tests: acts as if `count` more window ids were in use.
    pub(crate) fn use_up_names(&self, count: u32) {
        self.window_count.fetch_add(count, Ordering::Relaxed);
    }

    /// Writes a record; returns it and the bytes by which the arena grew.
    pub(crate) fn write(&self, version: &Version<'_>, prev: Option<Record<'id>>) -> (Record<'id>, u64) {
        self.write_with_room(version, prev, 0)
    }

    /// Like [`Arena::write`], with room for `room` more bytes of the value.
    #[inline]
    pub(crate) fn write_with_room(
        &self,
        version: &Version<'_>,
        prev: Option<Record<'id>>,
        room: usize,
    ) -> (Record<'id>, u64) {
        let Version { seqno, kind, key, value } = *version;
        debug_assert!(
            prev.as_ref().is_none_or(|prev| self.view(prev).seqno() < seqno),
            "versions link to older ones"
        );
        let units = (HEADER_BYTES + key.len() + value.len() + room).div_ceil(UNIT_BYTES);
        let (at, grown) = self.place(units);
        let header = Header {
            seqno: seqno.0,
            prev,
            key_bytes_and_kind: u32_of(key.len()) | kind_bits(kind),
            value_bytes: u32_of(value.len()),
            value_capacity: u32::try_from(units * UNIT_BYTES - HEADER_BYTES - key.len()).unwrap_or(u32::MAX),
        };
        let start = self.start(at);
        // The next records most likely go into the lines after this one's.
        prefetch::<RECORD_LINES>(start.as_ptr().wrapping_add(units * UNIT_BYTES + 4 * LINE_BYTES));
        // SAFETY: `place` gave us exclusive space of `units`, at least the header, aligned to eight bytes.
        unsafe { start.cast::<Header<'id>>().write(header) };
        // SAFETY: the space continues for key and value after the header.
        let body = unsafe { start.add(HEADER_BYTES) };
        // SAFETY: as above; `key` is not in this arena, or in a record that is not this new one.
        unsafe { body.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len()) };
        // SAFETY: the space continues for the value after the key.
        let body = unsafe { body.add(key.len()) };
        // SAFETY: as for the key.
        unsafe { body.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len()) };
        (Record(NonZeroU32::new(at).expect("window 0 is unused"), PhantomData), grown)
    }

    /// Stores a part of the index at the start of a cache line; returns it and the bytes by which the arena
    /// grew.
    pub(crate) fn hold<T>(&self, value: T) -> (Held<'id, T>, u64) {
        const { assert!(align_of::<T>() <= LINE_BYTES) };
        let units = size_of::<T>().next_multiple_of(LINE_BYTES) / UNIT_BYTES;
        let mut space = self.space.lock();
        let mut grown = 0;
        if units > space.index.left as usize {
            (space.index, grown) = self.take_lines(&mut space, units);
        }
        let at = space.index.at;
        let units = u32_of(units);
        space.index = Span { at: at + units, left: space.index.left - units };
        drop(space);
        let place = self.start(at).cast::<T>();
        debug_assert!(place.addr().get().is_multiple_of(LINE_BYTES), "parts start at cache lines");
        // SAFETY: `units` units, starting at a cache line, were just handed to us exclusively.
        unsafe { place.write(value) };
        // SAFETY: the value was written there, and the brand keeps the arena until it is dropped.
        (unsafe { Held::of(place) }, grown)
    }

    /// Returns a view of a record.
    #[inline]
    pub(crate) fn view<'a>(&'a self, record: &'a Record<'id>) -> View<'a> {
        View { windows: &self.windows, start: self.start(record.0.get()), record: PhantomData }
    }

    /// Overwrites `record` with a newer version of the same key, if its value fits; older versions stay
    /// linked. Returns whether it did.
    pub(crate) fn overwrite(&self, record: &mut Record<'id>, version: &Version<'_>) -> bool {
        let start = self.start(record.0.get());
        let header = self.header_mut(record);
        if version.value.len() > header.value_capacity as usize {
            return false;
        }
        let key_bytes = header.key_bytes_and_kind & KEY_BYTES_MASK;
        debug_assert!(version.seqno.0 >= header.seqno, "newer versions replace older ones");
        debug_assert_eq!(version.key.len(), key_bytes as usize, "both have the same key");
        header.seqno = version.seqno.0;
        header.key_bytes_and_kind = key_bytes | kind_bits(version.kind);
        header.value_bytes = u32_of(version.value.len());
        // SAFETY: the value's space starts after header and key, within the record.
        let room = unsafe { start.add(HEADER_BYTES + key_bytes as usize) };
        // SAFETY: the space has `value_capacity` bytes; `&mut Record` keeps readers and writers off it, so
        // `version.value` is elsewhere.
        unsafe { room.copy_from_nonoverlapping(NonNull::from(version.value).cast(), version.value.len()) };
        true
    }

    /// Makes `record` the version at `seqno` by appending `more` to its value, if that fits; returns whether
    /// it did.
    pub(crate) fn extend(&self, record: &mut Record<'id>, seqno: Seqno, more: &[u8]) -> bool {
        let start = self.start(record.0.get());
        let header = self.header_mut(record);
        let value_bytes = header.value_bytes as usize;
        if more.len() > header.value_capacity as usize - value_bytes {
            return false;
        }
        let key_bytes = header.key_bytes_and_kind & KEY_BYTES_MASK;
        debug_assert!(seqno.0 > header.seqno, "operands arrive in seqno order");
        header.seqno = seqno.0;
        header.value_bytes = u32_of(value_bytes + more.len());
        // SAFETY: the value's space starts after header and key, within the record, and has `value_capacity`
        // bytes, which is at least `value_bytes`.
        let room = unsafe { start.add(HEADER_BYTES + key_bytes as usize + value_bytes) };
        // SAFETY: that many bytes are free there, as checked above; `&mut Record` keeps readers and writers
        // off them, so `more` is elsewhere.
        unsafe { room.copy_from_nonoverlapping(NonNull::from(more).cast(), more.len()) };
        true
    }

    /// Sets the next older version of a record and returns the previous one.
    pub(crate) fn set_prev(
        &self,
        record: &mut Record<'id>,
        prev: Option<Record<'id>>,
    ) -> Option<Record<'id>> {
        debug_assert!(
            prev.as_ref().is_none_or(|prev| self.view(prev).seqno() < self.view(record).seqno()),
            "versions link to older ones"
        );
        std::mem::replace(&mut self.header_mut(record).prev, prev)
    }

    /// Links `older` among the older versions of `newest`, in seqno order; it replaces a version with the
    /// same seqno. REQUIRES: `older` has a smaller seqno than `newest`.
    pub(crate) fn link_older(&self, newest: &mut Record<'id>, mut older: Record<'id>) {
        let seqno = self.view(&older).seqno();
        debug_assert!(seqno < self.view(newest).seqno(), "it is older than the newest");
        let mut newer = newest;
        while self.view(newer).prev().is_some_and(|prev| prev.seqno() > seqno) {
            newer = self.header_mut(newer).prev.as_mut().expect("there is a version between");
        }
        let mut rest = self.set_prev(newer, None);
        if let Some(record) = &mut rest
            && self.view(record).seqno() == seqno
        {
            rest = self.set_prev(record, None);
        }
        self.set_prev(&mut older, rest);
        self.set_prev(newer, Some(older));
    }

    #[inline]
    fn start(&self, at: u32) -> NonNull<u8> {
        // SAFETY: `take` created the address: of this arena, by the brand of its record.
        unsafe { start_in(&self.windows, at) }
    }

    #[inline]
    fn header_mut<'a>(&'a self, record: &'a mut Record<'id>) -> &'a mut Header<'id> {
        let mut header = self.start(record.0.get()).cast::<Header<'id>>();
        // SAFETY: the record was written by `write`, and `&mut Record` makes us its only user.
        unsafe { header.as_mut() }
    }

    /// Returns space for a record of `units`, and the bytes by which the arena grew.
    fn place(&self, units: usize) -> (u32, u64) {
        if units * UNIT_BYTES >= DIRECT_BYTES {
            let (direct, grown) = self.take(&mut self.space.lock(), units, units);
            return (direct.at, grown);
        }
        let is_small = self.bytes() < SMALL_ARENA_BYTES;
        let mut table_bytes = 0;
        let slab = if is_small {
            &self.small_slab
        } else {
            let slabs = self.slabs.get_or_init(|| {
                table_bytes = u64_of(size_of::<[Slab; SLABS]>());
                self.bytes.fetch_add(table_bytes, Ordering::Relaxed);
                Box::default()
            });
            &slabs[SLAB_OF_THREAD.with(|slab| *slab)].0
        };
        let cut = low32(u64_of(units));
        // Space is never handed out twice, so no value recurs (no ABA). A thread that sees a span must also
        // see its window.
        let cut_off = |span| {
            let Span { at, left } = Span::of(span);
            Some(Span { at: at + cut, left: left.checked_sub(cut)? }.packed())
        };
        let before = if planted!("slab-cut-in-two-steps") {
            let before = slab.load(Ordering::Acquire);
            cut_off(before).map(|after| slab.store(after, Ordering::Release)).map(|()| before).ok_or(before)
        } else {
            slab.fetch_update(Ordering::Acquire, Ordering::Acquire, cut_off)
        };
        if let Ok(span) = before {
            debug_assert!(Span::of(span).at > 0, "window 0 is unused");
            return (Span::of(span).at, table_bytes);
        }
        let wish = if is_small { SMALL_SLAB_BYTES } else { SLAB_BYTES };
        let (Span { at, left }, grown) = self.take(&mut self.space.lock(), units, wish / UNIT_BYTES);
        debug_assert!(left >= cut, "the slab has room for the record");
        slab.store(Span { at: at + cut, left: left - cut }.packed(), Ordering::Release);
        (at, grown + table_bytes)
    }

    /// Takes at least `units` of space for parts of the index, from the start of a cache line on.
    fn take_lines(&self, space: &mut Space, units: usize) -> (Span, u64) {
        let units_to_line = |at| {
            let start = self.start(at).addr().get();
            u32_of((start.next_multiple_of(LINE_BYTES) - start) / UNIT_BYTES)
        };
        if space.left > 0 {
            let skipped = units_to_line(space.at).min(space.left);
            space.at += skipped;
            space.left -= skipped;
        }
        let wish = if self.bytes() < SMALL_ARENA_BYTES { SMALL_INDEX_BYTES } else { SLAB_BYTES };
        let (mut span, mut grown) = self.take(space, units, wish / UNIT_BYTES);
        if units_to_line(span.at) > 0 {
            // Memory that the system refused to map starts anywhere.
            let (other, more) = self.take(space, units + LINE_UNITS - 1, wish / UNIT_BYTES);
            let skipped = units_to_line(other.at);
            span = Span { at: other.at + skipped, left: other.left - skipped };
            grown += more;
        }
        (span, grown)
    }

    /// Takes at least `units` of space, and up to `wish` if that is more.
    fn take(&self, space: &mut Space, units: usize, wish: usize) -> (Span, u64) {
        let mut grown = 0;
        if units > space.left as usize {
            let bytes = units * UNIT_BYTES;
            let is_scarce = self.is_half_named();
            if bytes >= DEDICATED_BYTES && !(is_scarce && bytes <= CHUNK_BYTES) {
                let (at, grown) = self.add_chunk(space, bytes);
                return (Span { at, left: 0 }, grown);
            }
            let chunk_bytes = chunk_bytes_after(space.chunk_bytes, bytes, is_scarce);
            space.chunk_bytes += chunk_bytes;
            (space.at, grown) = self.add_chunk(space, chunk_bytes);
            space.left = u32_of(chunk_bytes / UNIT_BYTES);
        }
        let given = u32_of(wish.max(units)).min(space.left);
        debug_assert!(given as usize >= units, "at least the requested space");
        let span = Span { at: space.at, left: given };
        space.at += given;
        space.left -= given;
        (span, grown)
    }

    /// Adds a chunk; returns the address of its first unit and the bytes by which the arena grew.
    fn add_chunk(&self, space: &mut Space, bytes: usize) -> (u32, u64) {
        let window = self.window_count.fetch_add(1, Ordering::Relaxed);
        assert!(window < WINDOWS_MAX, "a memtable outgrew its address space; it should have been sealed");
        let lists_before = space.list_bytes();
        let start = if let Some(fragment) = self.pool.take_fragment(bytes) {
            space.push_fragment(fragment).start()
        } else {
            let mut chunk = self.pool.take(bytes);
            let start = chunk.start();
            space.chunks.push(chunk);
            start
        };
        let grown = u64_of(bytes + space.list_bytes() - lists_before) + self.windows.set(window, start);
        self.bytes.fetch_add(grown, Ordering::Relaxed);
        (window << WINDOW_LOG, grown)
    }
}

impl Drop for Arena<'_> {
    fn drop(&mut self) {
        let space = self.space.get_mut();
        self.pool.give_back_fragments(mem::take(&mut space.fragments));
        self.pool.give_back(mem::take(&mut space.chunks));
    }
}

#[inline]
fn kind_bits(kind: Kind) -> u32 {
    u32::from(kind as u8) << KIND_SHIFT
}

/// Start of the space at an address.
///
/// # Safety
///
/// The arena with these windows has handed out the address.
#[inline]
unsafe fn start_in(windows: &Windows, at: u32) -> NonNull<u8> {
    let window = windows.start(at >> WINDOW_LOG);
    let units = at & ((1 << WINDOW_LOG) - 1);
    // SAFETY: addresses are created by `take`, which stays within the chunk whose start the window has.
    unsafe { window.add(units as usize * UNIT_BYTES) }
}

/// A record that does not change while it is borrowed.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    windows: &'a Windows,
    start: NonNull<u8>,
    record: PhantomData<&'a ()>,
}

impl<'a> View<'a> {
    /// Prefetches the record, so that key and value arrive together.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch::<RECORD_LINES>(self.start.as_ptr());
    }

    #[inline]
    fn header(&self) -> &'a Header<'a> {
        // SAFETY: a view is created from a record, whose header is written; `&Record` keeps writers off it.
        unsafe { self.start.cast::<Header<'a>>().as_ref() }
    }

    #[inline]
    fn key_bytes(&self) -> usize {
        (self.header().key_bytes_and_kind & KEY_BYTES_MASK) as usize
    }

    #[inline]
    pub(crate) fn seqno(&self) -> Seqno {
        Seqno(self.header().seqno)
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        let [.., number] = self.header().key_bytes_and_kind.to_le_bytes();
        Kind::from_u8(number).expect("the kind of a record is written with it")
    }

    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        // SAFETY: the key follows the header within the record.
        let start = unsafe { self.start.add(HEADER_BYTES) };
        // SAFETY: the key was written with the record and never changes.
        unsafe { slice::from_raw_parts(start.as_ptr(), self.key_bytes()) }
    }

    #[inline]
    pub(crate) fn value(&self) -> &'a [u8] {
        // SAFETY: the value follows header and key within the record.
        let start = unsafe { self.start.add(HEADER_BYTES + self.key_bytes()) };
        // SAFETY: `value_bytes` were written, and `&Record` keeps writers off them.
        unsafe { slice::from_raw_parts(start.as_ptr(), self.header().value_bytes as usize) }
    }

    /// Returns key, kind and value.
    #[inline]
    pub(crate) fn entry(&self) -> Entry<'a> {
        Entry { key: self.key(), kind: self.kind(), value: self.value() }
    }

    /// Bytes of the arena that the record occupies.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        u64_of(HEADER_BYTES + self.key_bytes()) + u64::from(self.header().value_capacity)
    }

    /// Returns the next older version.
    #[inline]
    pub(crate) fn prev(&self) -> Option<View<'a>> {
        let at = self.header().prev.as_ref()?.0.get();
        // SAFETY: the older version is in the same arena, and is borrowed with the newest one.
        let start = unsafe { start_in(self.windows, at) };
        Some(View { windows: self.windows, start, record: PhantomData })
    }

    /// Returns the newest version at or before `at`: this one or an older one.
    #[inline]
    pub(crate) fn visible_at(self, at: Seqno) -> Option<View<'a>> {
        let mut view = self;
        while view.seqno() > at {
            view = view.prev()?;
        }
        Some(view)
    }
}

const _: () = assert!(MAX_KEY_BYTES <= KEY_BYTES_MASK as usize);
const _: () = assert!(HEADER_BYTES == 24 && low32(u64_of(CHUNK_BYTES)) as usize == CHUNK_BYTES);

#[cfg(test)]
mod tests;
