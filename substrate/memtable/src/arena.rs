//! All memory of one memtable in raw chunks: the bytes of all versions of all keys, and leaves and groups of
//! the index.
//!
//! A record is a [`Header`], the key and room for the value, aligned to eight bytes and named by 32 bits: the
//! window of its chunk and its place therein in units of eight bytes. Space is handed to threads in slabs,
//! which they fill in the order of arrival, since memory that is written in sequence is in the cache before
//! it is needed; records of size go into the chunk directly, large ones into a chunk of their own. Nothing is
//! freed before the arena is dropped. Parts of the index ([`Held`]) begin at cache lines, in spans of their
//! own, so that records do not push them across lines.
//!
//! **Invariants**
//! - A [`Record`] cannot be copied: it is owned by one leaf entry or by the `prev` of one other record. So
//!   `&Record` means that nobody writes the record, `&mut Record` that nobody else reads it, and the borrow
//!   checker, with the leaf's lock, keeps readers off a value that is being replaced.
//! - A [`Record`] is used only with the arena that made it. Each memtable has one arena, and leaves never
//!   leave their memtable.
//! - A [`Held`] is dropped before the arena that made it: both are fields of one [`crate::table::Table`],
//!   whose order says so, and no part of the index leaves it.
//! - Space once given out, to a slab or from a slab, is not given out again; so records never overlap. None
//!   crosses the end of a chunk.
//! - Header and key are written before the record becomes known; of the value, `value_bytes` are.
#![expect(unsafe_code, reason = "records are raw bytes in chunks, named by 32 bits to keep the index small")]

use std::{marker::PhantomData, mem, num::NonZeroU32, ops, ptr::NonNull, slice};

use testudo_base::{
    Entry, Kind, MAX_KEY_BYTES, Seqno,
    chunks::{CHUNK_BYTES, Chunk, ChunkPool, PIECE_BYTES},
    num::{high32, low32, u32_of, u64_of},
    planted,
    prefetch::{LINE_BYTES, prefetch},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use crate::windows::{WINDOWS_MAX, Windows};

const UNIT_BYTES: usize = 8;
const LINE_UNITS: usize = LINE_BYTES / UNIT_BYTES;
/// Lines of a record that are loaded ahead.
const RECORD_LINES: usize = 3;
/// Units of a window, as a power of two; a window holds at most one chunk of the full size.
const WINDOW_LOG: u32 = (CHUNK_BYTES / UNIT_BYTES).ilog2();
const FIRST_CHUNK_BYTES: usize = PIECE_BYTES;
/// A record of this size that does not fit in what is left of the chunk gets a chunk of its own, as long as
/// there are plenty of names for chunks.
const DEDICATED_BYTES: usize = CHUNK_BYTES / 8;
/// A record of this size does not go through a slab.
const DIRECT_BYTES: usize = 1 << 10;
const SLABS: usize = 16;
const SLAB_BYTES: usize = 16 << 10;
const SMALL_SLAB_BYTES: usize = 1 << 10;
/// An arena smaller than this has one small slab for all threads.
const SMALL_ARENA_BYTES: u64 = 256 << 10;
/// Where the kind is in the length of the key: its number has the whole byte.
const KIND_SHIFT: u32 = 24;
const KEY_BYTES_MASK: u32 = (1 << KIND_SHIFT) - 1;

const HEADER_BYTES: usize = size_of::<Header>();

/// What comes before a record's key and value.
#[repr(C)]
struct Header {
    seqno: u64,
    prev: Option<Record>,
    /// Length of the key; the highest byte says the kind.
    key_bytes_and_kind: u32,
    value_bytes: u32,
    value_capacity: u32,
}

/// Names a record and owns it.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Record(NonZeroU32);

/// Space that was given out, in units.
#[derive(Clone, Copy, Debug)]
struct Span {
    at: u32,
    left: u32,
}

/// A span from which records are cut; the start in the high half, what is left in the low. On cache lines of
/// its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slab(AtomicU64);

/// A part of the index, in the memory of an arena. REQUIRES: it is dropped before the arena.
#[derive(Debug)]
pub(crate) struct Held<T>(NonNull<T>);

// SAFETY: it owns its value, as a box does.
unsafe impl<T: Send> Send for Held<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Held<T> {}

impl<T> ops::Deref for Held<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `hold` wrote the value into space of its own, and the arena is still there.
        unsafe { self.0.as_ref() }
    }
}

impl<T> ops::DerefMut for Held<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`; `&mut self` makes us the only user.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for Held<T> {
    #[inline]
    fn drop(&mut self) {
        if mem::needs_drop::<T>() {
            // SAFETY: as for `deref_mut`; nobody uses the value any more.
            unsafe { self.0.drop_in_place() };
        }
    }
}

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

#[derive(Debug)]
struct Space {
    chunks: Vec<Chunk>,
    /// The free end of the current chunk, in units.
    at: u32,
    left: u32,
    /// Free space for parts of the index; begins at a cache line.
    index: Span,
    /// Bytes of all chunks for small records so far.
    chunk_bytes: usize,
}

/// The memory of one memtable. Begins with what every insert looks at.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Arena {
    bytes: AtomicU64,
    /// The slab of all threads, as long as the arena is small.
    small_slab: AtomicU64,
    slabs: OnceLock<Box<[Slab; SLABS]>>,
    windows: Windows,
    window_count: AtomicU32,
    pool: Arc<ChunkPool>,
    space: Mutex<Space>,
}

thread_local! {
    /// Which slab a thread uses; threads are given different ones in turn.
    static SLAB_OF_THREAD: usize = {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SLABS
    };
}

impl Arena {
    /// Bytes at its begin that inserts look at.
    pub(crate) const INSERT_BYTES: usize = mem::offset_of!(Arena, windows) + Windows::FIRST_BYTES;

    pub(crate) fn new(pool: Arc<ChunkPool>) -> Self {
        let space =
            Space { chunks: Vec::new(), at: 0, left: 0, index: Span { at: 0, left: 0 }, chunk_bytes: 0 };
        Self {
            pool,
            windows: Windows::default(),
            // No record has the name 0, so window 0 stays unused.
            window_count: AtomicU32::new(1),
            bytes: AtomicU64::new(0),
            small_slab: AtomicU64::new(0),
            slabs: OnceLock::new(),
            space: Mutex::new(space),
        }
    }

    pub(crate) fn pool(&self) -> &ChunkPool {
        &self.pool
    }

    /// Bytes taken from the pool and for the tables that find them.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether half of the names for chunks are in use. The others are enough for any batch: from here on a
    /// chunk is of the full size, and at least half of it is used.
    pub(crate) fn is_half_named(&self) -> bool {
        self.window_count.load(Ordering::Relaxed) >= WINDOWS_MAX / 2
    }

    /// For tests: as if so many more names were in use.
    pub(crate) fn use_up_names(&self, count: u32) {
        self.window_count.fetch_add(count, Ordering::Relaxed);
    }

    /// Writes a record and returns it with the bytes by which the arena grew.
    pub(crate) fn write(&self, version: &Version<'_>, prev: Option<Record>) -> (Record, u64) {
        self.write_with_room(version, prev, 0)
    }

    /// As [`Arena::write`], with room for that many more bytes of the value.
    #[inline]
    pub(crate) fn write_with_room(
        &self,
        version: &Version<'_>,
        prev: Option<Record>,
        room: usize,
    ) -> (Record, u64) {
        let Version { seqno, kind, key, value } = *version;
        debug_assert!(
            prev.as_ref().is_none_or(|prev| self.view(prev).seqno() < seqno),
            "versions lead to older ones"
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
        // The next records go into the lines after this one's, most likely.
        prefetch::<RECORD_LINES>(start.as_ptr().wrapping_add(units * UNIT_BYTES + 4 * LINE_BYTES));
        // SAFETY: `place` gave `units` of space, at least the header, aligned to eight bytes, to us alone.
        unsafe { start.cast::<Header>().write(header) };
        // SAFETY: the space goes on for key and value after the header.
        let body = unsafe { start.add(HEADER_BYTES) };
        // SAFETY: as above; `key` is not in this arena, or in a record that is not this new one.
        unsafe { body.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len()) };
        // SAFETY: the space goes on for the value after the key.
        let body = unsafe { body.add(key.len()) };
        // SAFETY: as for the key.
        unsafe { body.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len()) };
        (Record(NonZeroU32::new(at).expect("window 0 is unused")), grown)
    }

    /// Puts a part of the index at the begin of a cache line; returns it with the bytes by which the arena
    /// grew. REQUIRES: it is dropped before the arena.
    pub(crate) fn hold<T>(&self, value: T) -> (Held<T>, u64) {
        const { assert!(align_of::<T>() <= LINE_BYTES) };
        let units = size_of::<T>().next_multiple_of(LINE_BYTES) / UNIT_BYTES;
        let mut space = self.space.lock();
        let mut grown = 0;
        if units > space.index.left as usize {
            let wish = if self.bytes() < SMALL_ARENA_BYTES { SMALL_SLAB_BYTES } else { SLAB_BYTES };
            let least = units + LINE_UNITS - 1;
            let (span, bytes) = self.take(&mut space, least, (wish / UNIT_BYTES).max(least));
            let start = self.start(span.at).addr().get();
            let before_line = u32_of((start.next_multiple_of(LINE_BYTES) - start) / UNIT_BYTES);
            space.index = Span { at: span.at + before_line, left: span.left - before_line };
            grown = bytes;
        }
        let at = space.index.at;
        let units = u32_of(units);
        space.index = Span { at: at + units, left: space.index.left - units };
        drop(space);
        let place = self.start(at).cast::<T>();
        // SAFETY: so many units, from the begin of a line on, were just given to us alone.
        unsafe { place.write(value) };
        (Held(place), grown)
    }

    /// Reads a record.
    #[inline]
    pub(crate) fn view<'a>(&'a self, record: &'a Record) -> View<'a> {
        View { arena: self, start: self.start(record.0.get()), record: PhantomData }
    }

    /// Puts a newer version of the same key in the place of `record`, if its value fits there; older versions
    /// stay linked. Returns whether it did.
    pub(crate) fn overwrite(&self, record: &mut Record, version: &Version<'_>) -> bool {
        let start = self.start(record.0.get());
        let header = self.header_mut(record);
        if version.value.len() > header.value_capacity as usize {
            return false;
        }
        let key_bytes = header.key_bytes_and_kind & KEY_BYTES_MASK;
        debug_assert!(version.seqno.0 >= header.seqno, "newer versions take the place of older ones");
        debug_assert_eq!(version.key.len(), key_bytes as usize, "both are of one key");
        header.seqno = version.seqno.0;
        header.key_bytes_and_kind = key_bytes | kind_bits(version.kind);
        header.value_bytes = u32_of(version.value.len());
        // SAFETY: the value's room starts behind header and key, within the record.
        let room = unsafe { start.add(HEADER_BYTES + key_bytes as usize) };
        // SAFETY: the room has `value_capacity` bytes; `&mut Record` keeps readers and writers off it, hence
        // `version.value` is elsewhere.
        unsafe { room.copy_from_nonoverlapping(NonNull::from(version.value).cast(), version.value.len()) };
        true
    }

    /// Makes `record` the version at `seqno`, whose value is longer by `more`, if that fits there; returns
    /// whether it did.
    pub(crate) fn extend(&self, record: &mut Record, seqno: Seqno, more: &[u8]) -> bool {
        let start = self.start(record.0.get());
        let header = self.header_mut(record);
        let value_bytes = header.value_bytes as usize;
        if more.len() > header.value_capacity as usize - value_bytes {
            return false;
        }
        let key_bytes = header.key_bytes_and_kind & KEY_BYTES_MASK;
        debug_assert!(seqno.0 > header.seqno, "operands come in the order of their seqnos");
        header.seqno = seqno.0;
        header.value_bytes = u32_of(value_bytes + more.len());
        // SAFETY: the value's room starts behind header and key, within the record, and has `value_capacity`
        // bytes, which are no less than `value_bytes`.
        let room = unsafe { start.add(HEADER_BYTES + key_bytes as usize + value_bytes) };
        // SAFETY: so many bytes were just found to be free there; `&mut Record` keeps readers and writers off
        // them, hence `more` is elsewhere.
        unsafe { room.copy_from_nonoverlapping(NonNull::from(more).cast(), more.len()) };
        true
    }

    /// Sets the next older version of a record and returns what it was.
    pub(crate) fn set_prev(&self, record: &mut Record, prev: Option<Record>) -> Option<Record> {
        debug_assert!(
            prev.as_ref().is_none_or(|prev| self.view(prev).seqno() < self.view(record).seqno()),
            "versions lead to older ones"
        );
        std::mem::replace(&mut self.header_mut(record).prev, prev)
    }

    /// Links `older` among the older versions of `newest`, in the order of seqnos; a version of the same
    /// seqno gives way to it. REQUIRES: `older` has a smaller seqno than `newest`.
    pub(crate) fn link_older(&self, newest: &mut Record, mut older: Record) {
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
        let window = self.windows.start(at >> WINDOW_LOG);
        let units = at & ((1 << WINDOW_LOG) - 1);
        // SAFETY: names are made by `take`, which stays within the chunk whose start the window has.
        unsafe { window.add(units as usize * UNIT_BYTES) }
    }

    #[inline]
    fn header_mut<'a>(&'a self, record: &'a mut Record) -> &'a mut Header {
        let mut header = self.start(record.0.get()).cast::<Header>();
        // SAFETY: the record was written by `write`, and `&mut Record` makes us its only user.
        unsafe { header.as_mut() }
    }

    /// Space for a record of `units`, with the bytes by which the arena grew.
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
        // As space is never given out twice, no value comes back. Who sees a span must see its window too.
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
            return (Span::of(span).at, table_bytes);
        }
        let wish = if is_small { SMALL_SLAB_BYTES } else { SLAB_BYTES };
        let (Span { at, left }, grown) = self.take(&mut self.space.lock(), units, wish / UNIT_BYTES);
        slab.store(Span { at: at + cut, left: left - cut }.packed(), Ordering::Release);
        (at, grown + table_bytes)
    }

    /// Takes at least `units` of space and at most `wish`, where that is more.
    fn take(&self, space: &mut Space, units: usize, wish: usize) -> (Span, u64) {
        let mut grown = 0;
        if units > space.left as usize {
            let bytes = units * UNIT_BYTES;
            let is_scarce = self.is_half_named();
            if bytes >= DEDICATED_BYTES && !(is_scarce && bytes <= CHUNK_BYTES) {
                let (at, grown) = self.add_chunk(space, bytes);
                return (Span { at, left: 0 }, grown);
            }
            // About an eighth more each time: many small memtables must not all reserve twice what they hold.
            let least = if is_scarce { CHUNK_BYTES } else { FIRST_CHUNK_BYTES };
            let wanted = (space.chunk_bytes / 8).next_power_of_two().clamp(least, CHUNK_BYTES);
            let chunk_bytes = wanted.max(bytes.next_power_of_two());
            space.chunk_bytes += chunk_bytes;
            (space.at, grown) = self.add_chunk(space, chunk_bytes);
            space.left = u32_of(chunk_bytes / UNIT_BYTES);
        }
        let given = u32_of(wish.max(units)).min(space.left);
        let span = Span { at: space.at, left: given };
        space.at += given;
        space.left -= given;
        (span, grown)
    }

    /// Adds a chunk; returns the name of its first unit and the bytes by which the arena grew.
    fn add_chunk(&self, space: &mut Space, bytes: usize) -> (u32, u64) {
        let window = self.window_count.fetch_add(1, Ordering::Relaxed);
        assert!(window < WINDOWS_MAX, "a memtable outgrew its address space; it should have been sealed");
        let mut chunk = self.pool.take(bytes);
        let mut grown = u64_of(bytes) + self.windows.set(window, chunk.start());
        let before = space.chunks.capacity();
        space.chunks.push(chunk);
        grown += u64_of((space.chunks.capacity() - before) * size_of::<Chunk>());
        self.bytes.fetch_add(grown, Ordering::Relaxed);
        (window << WINDOW_LOG, grown)
    }
}

impl Span {
    fn of(packed: u64) -> Self {
        Self { at: high32(packed), left: low32(packed) }
    }

    fn packed(self) -> u64 {
        u64::from(self.at) << 32 | u64::from(self.left)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.space.get_mut().chunks));
    }
}

#[inline]
fn kind_bits(kind: Kind) -> u32 {
    u32::from(kind as u8) << KIND_SHIFT
}

/// A record that nobody changes for as long as it is borrowed.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    arena: &'a Arena,
    start: NonNull<u8>,
    record: PhantomData<&'a Record>,
}

impl<'a> View<'a> {
    /// Starts loading the record, so that key and value arrive together.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch::<RECORD_LINES>(self.start.as_ptr());
    }

    #[inline]
    fn header(&self) -> &'a Header {
        // SAFETY: a view is made from a record, whose header is written; `&Record` keeps writers off it.
        unsafe { self.start.cast::<Header>().as_ref() }
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

    /// Its key, kind and value.
    #[inline]
    pub(crate) fn entry(&self) -> Entry<'a> {
        Entry { key: self.key(), kind: self.kind(), value: self.value() }
    }

    /// Bytes of the arena that the record takes.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        u64_of(HEADER_BYTES + self.key_bytes()) + u64::from(self.header().value_capacity)
    }

    /// The next older version.
    #[inline]
    pub(crate) fn prev(&self) -> Option<View<'a>> {
        self.header().prev.as_ref().map(|record| self.arena.view(record))
    }

    /// The newest version at or before `at`, this one or an older one.
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
