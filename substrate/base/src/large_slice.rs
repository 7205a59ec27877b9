//! Slices for bulk memory, which goes back to the system when they are dropped, except for a little that the
//! next ones get.
//!
//! An allocator keeps large pieces that were freed between others that were not: GNU's raises the size from
//! which it asks the system each time such a piece is freed, and from then on takes everything below it from
//! heaps that cannot shrink. A store whose memory moves between write buffers, records and pages would hold
//! it twice. Pieces of 32 to 128 KiB never leave those heaps, and what lives long among them keeps all that
//! is around it. So large slices are mappings of their own, nobody's but the system's; small ones come from
//! the allocator.
//!
//! A fresh mapping costs a page fault for each 4 KiB, and its end makes the other cores forget addresses.
//! What runs, readers of logs and stores that are opened and closed need again and again is therefore kept
//! for the next one (`kept_mappings.rs`). Who overwrites all of it anyway takes it as it is
//! ([`LargeSlice::unfilled`]).
//!
//! **Invariants**
//! - A slice stays where it is until it is dropped or grows, also when the [`LargeSlice`] itself is moved.
//! - From [`MAPPED_BYTES_MIN`] on it begins at a page, unless the system refuses the mapping.
//! - Whatever it is made of, all of its bytes were written once, by the system or by an earlier owner.
#![expect(unsafe_code, reason = "anonymous mappings of the system as slices")]

use std::{fmt, mem, ops, ptr, ptr::NonNull, slice, sync::atomic::AtomicU64};

use bytemuck::{AnyBitPattern, Zeroable};

mod kept_mappings;

/// Bytes from which on a slice is a mapping.
pub const MAPPED_BYTES_MIN: usize = 32 << 10;

/// A slice of plain elements; see the head of `large_slice.rs`.
pub struct LargeSlice<T> {
    start: NonNull<T>,
    len: usize,
    /// What the elements lie in, unless they are in a box.
    mapping: Option<Mapping>,
}

// SAFETY: it owns its elements, as a boxed slice does.
unsafe impl<T: Send> Send for LargeSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for LargeSlice<T> {}

impl<T> LargeSlice<T> {
    /// What is mapped is aligned to a page at least, and nothing of it is dropped.
    const IS_PLAIN: () = assert!(align_of::<T>() <= 4096 && !mem::needs_drop::<T>());

    /// `len` elements of zeroes. Aborts if there is no memory, as an allocation does.
    pub fn zeroed(len: usize) -> Self
    where
        T: Zeroable,
    {
        // SAFETY: what is not zero becomes zero before anybody sees it.
        let mut slice = unsafe { Self::take(len) };
        if slice.mapping.as_ref().is_some_and(|mapping| mapping.is_used) {
            // SAFETY: so many elements are there, ours alone, and zeroes are a value of each.
            unsafe { ptr::write_bytes(slice.as_mut_ptr(), 0, len) };
        }
        slice
    }

    /// `len` elements of the default value, which need not be zeroes. Aborts if there is no memory, as an
    /// allocation does.
    pub fn of_default(len: usize) -> Self
    where
        T: Default,
    {
        let () = Self::IS_PLAIN;
        let Some(mapping) = Self::mapping_for(len) else {
            return Self::of_box((0..len).map(|_| T::default()).collect());
        };
        let start: NonNull<T> = mapping.start.cast();
        // SAFETY: the mapping has room for `len` elements, and nobody else has it.
        let places = unsafe { slice::from_raw_parts_mut(start.as_ptr().cast::<mem::MaybeUninit<T>>(), len) };
        for place in places {
            place.write(T::default());
        }
        Self { start, len, mapping: Some(mapping) }
    }

    /// `len` elements that hold what an earlier owner left or zeroes, for who writes before it reads. Aborts
    /// if there is no memory, as an allocation does.
    pub fn unfilled(len: usize) -> Self
    where
        T: AnyBitPattern,
    {
        // SAFETY: whatever is there is a value.
        unsafe { Self::take(len) }
    }

    /// Has `len` elements from now on, the first of which are those that it had; the others hold anything, as
    /// those of [`LargeSlice::unfilled`]. Aborts if there is no memory, as an allocation does.
    pub fn grow(&mut self, len: usize)
    where
        T: AnyBitPattern,
    {
        assert!(len >= self.len, "it grows");
        let bytes = len.checked_mul(size_of::<T>()).and_then(kept_mappings::whole);
        if let Some((mapping, bytes)) = self.mapping.as_mut().zip(bytes)
            && mapping.grow(bytes)
        {
            self.start = mapping.start.cast();
            self.len = len;
            return;
        }
        let mut larger = Self::unfilled(len);
        larger[..self.len].copy_from_slice(self);
        *self = larger;
    }

    /// Memory for `len` elements: zeroes, unless the mapping is a used one.
    ///
    /// # Safety
    ///
    /// Any bits make an element, or the caller clears a used mapping.
    unsafe fn take(len: usize) -> Self
    where
        T: Zeroable,
    {
        let () = Self::IS_PLAIN;
        match Self::mapping_for(len) {
            Some(mapping) => Self { start: mapping.start.cast(), len, mapping: Some(mapping) },
            None => Self::of_box(bytemuck::zeroed_slice_box(len)),
        }
    }

    /// A mapping for so many elements, if they are to lie in one and the system has it.
    fn mapping_for(len: usize) -> Option<Mapping> {
        let bytes = len.checked_mul(size_of::<T>()).expect("a size that memory can have");
        (bytes >= MAPPED_BYTES_MIN).then(|| kept_mappings::take(bytes)).flatten()
    }

    fn of_box(elements: Box<[T]>) -> Self {
        let len = elements.len();
        Self { start: NonNull::from(Box::leak(elements)).cast(), len, mapping: None }
    }

    /// The first element. Stays valid while the slice lives.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.start.as_ptr()
    }
}

impl LargeSlice<AtomicU64> {
    /// As [`LargeSlice::unfilled`], for words that threads share.
    pub fn unfilled_words(len: usize) -> Self {
        // SAFETY: every pattern of bits is such a word.
        unsafe { Self::take(len) }
    }
}

impl<T> ops::Deref for LargeSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: so many elements are there, plain ones that were all written, and ours until the drop.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> ops::DerefMut for LargeSlice<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`; `&mut self` makes us the only user.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for LargeSlice<T> {
    fn drop(&mut self) {
        if let Some(mapping) = self.mapping.take() {
            kept_mappings::give_back(mapping);
            return;
        }
        let elements = ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len);
        // SAFETY: `take` took it out of a box of this length, and nobody uses it any more.
        drop(unsafe { Box::from_raw(elements) });
    }
}

impl<T> fmt::Debug for LargeSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LargeSlice({} bytes)", self.len * size_of::<T>())
    }
}

/// Memory of the system with one owner, which it leaves when it is dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// Whether it can hold anything but zeroes.
    is_used: bool,
}

// SAFETY: nothing about memory is bound to the thread that asked for it.
unsafe impl Send for Mapping {}

impl Mapping {
    fn bytes(&self) -> usize {
        self.bytes
    }

    /// Fresh pages of zeroes; `None` if the system has none to give.
    #[cfg(all(unix, not(miri)))]
    fn fresh(bytes: usize) -> Option<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a private mapping where the system finds room touches nothing that exists.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        let start = NonNull::new(start.ok()?.cast())?;
        Some(Self { start, bytes, is_used: false })
    }

    /// Makes it so large, wherever it is then; `false` if the system cannot do that. REQUIRES: nobody has an
    /// address of it.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn grow(&mut self, bytes: usize) -> bool {
        use rustix::mm::{MremapFlags, mremap};

        if bytes <= self.bytes {
            return true;
        }
        // SAFETY: `fresh` made exactly this mapping, and nobody uses it meanwhile.
        let moved = unsafe { mremap(self.start.as_ptr().cast(), self.bytes, bytes, MremapFlags::MAYMOVE) };
        let Some(start) = moved.ok().and_then(|start| NonNull::new(start.cast())) else { return false };
        (self.start, self.bytes) = (start, bytes);
        true
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn grow(&mut self, _bytes: usize) -> bool {
        false
    }

    #[cfg(not(all(unix, not(miri))))]
    fn fresh(_bytes: usize) -> Option<Self> {
        None
    }
}

#[cfg(all(unix, not(miri)))]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `fresh` made exactly this mapping, and its only owner is gone.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours is there");
    }
}

#[cfg(test)]
mod tests;
