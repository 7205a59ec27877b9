//! Slices for bulk memory, which returns to the system when they are dropped, except for a small cache for
//! the next ones.
//!
//! An allocator keeps large blocks that were freed between blocks in use. With each freed large block, GNU's
//! raises the size threshold for asking the system. From then on it takes everything below the threshold from
//! heaps that cannot shrink. A store whose memory moves between write buffers, records and pages would hold
//! it twice. Blocks of 32 to 128 KiB never leave those heaps, and long-lived ones among them retain
//! everything around them. So large slices are separate mappings, owned by the system alone; small ones come
//! from the allocator.
//!
//! A fresh mapping costs a page fault per 4 KiB, and unmapping it costs a TLB shootdown on the other cores.
//! Runs, log readers and stores that are opened and closed need such memory repeatedly, so it is cached for
//! the next user (`kept_mappings.rs`). A user that overwrites all of it takes it as it is
//! ([`LargeSlice::unfilled`]).
//!
//! **Invariants**
//! - A slice keeps its address until it is dropped or grows, even if the [`LargeSlice`] itself is moved.
//! - From [`MAPPED_BYTES_MIN`] on it is page-aligned, unless the system refuses the mapping.
//! - Whatever backs it, all of its bytes were initialized, by the system or by an earlier owner.
#![expect(unsafe_code, reason = "anonymous memory mappings as slices")]

use std::{fmt, mem, ops, ptr, ptr::NonNull, slice, sync::atomic::AtomicU64};

use bytemuck::{AnyBitPattern, Zeroable};

mod kept_mappings;

/// Size in bytes from which on a slice is a mapping.
pub const MAPPED_BYTES_MIN: usize = 32 << 10;

/// A slice of plain elements; see the head of `large_slice.rs`.
pub struct LargeSlice<T> {
    start: NonNull<T>,
    len: usize,
    /// The mapping that holds the elements; `None` if they are in a box.
    mapping: Option<Mapping>,
}

// SAFETY: it owns its elements, like a boxed slice.
unsafe impl<T: Send> Send for LargeSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for LargeSlice<T> {}

impl<T> LargeSlice<T> {
    /// Mapped elements need at most page alignment, and no drop.
    const IS_PLAIN: () = assert!(align_of::<T>() <= 4096 && !mem::needs_drop::<T>());

    /// A slice of `len` zero elements. Aborts if there is no memory, like an allocation.
    pub fn zeroed(len: usize) -> Self
    where
        T: Zeroable,
    {
        // SAFETY: a used mapping is zeroed before it is returned.
        let mut slice = unsafe { Self::take(len) };
        if slice.mapping.as_ref().is_some_and(|mapping| mapping.is_used) {
            // SAFETY: the mapping has `len` elements, exclusively ours, and zero is a valid value of each.
            unsafe { ptr::write_bytes(slice.as_mut_ptr(), 0, len) };
        }
        slice
    }

    /// A slice of `len` elements of the default value, which need not be zero. Aborts if there is no memory,
    /// like an allocation.
    pub fn of_default(len: usize) -> Self
    where
        T: Default,
    {
        let () = Self::IS_PLAIN;
        let Some(mapping) = Self::mapping_for(len) else {
            return Self::of_box((0..len).map(|_| T::default()).collect());
        };
        let start: NonNull<T> = mapping.start.cast();
        debug_assert!(mapping.bytes() >= len * size_of::<T>(), "the mapping has room for the elements");
        // SAFETY: the mapping has room for `len` elements, and this is its only owner.
        let places = unsafe { slice::from_raw_parts_mut(start.as_ptr().cast::<mem::MaybeUninit<T>>(), len) };
        for place in places {
            place.write(T::default());
        }
        Self { start, len, mapping: Some(mapping) }
    }

    /// A slice of `len` elements with leftovers of an earlier owner or zeros, for callers that write before
    /// they read. Aborts if there is no memory, like an allocation.
    pub fn unfilled(len: usize) -> Self
    where
        T: AnyBitPattern,
    {
        // SAFETY: any bit pattern is a valid value.
        unsafe { Self::take(len) }
    }

    /// Grows the slice to `len` elements. The existing elements stay; the new ones have arbitrary values, as
    /// in [`LargeSlice::unfilled`]. Aborts if there is no memory, like an allocation.
    pub fn grow(&mut self, len: usize)
    where
        T: AnyBitPattern,
    {
        assert!(len >= self.len, "it grows");
        let bytes = len.checked_mul(size_of::<T>()).and_then(kept_mappings::whole);
        if let Some((mapping, bytes)) = self.mapping.as_mut().zip(bytes)
            && mapping.grow(bytes)
        {
            debug_assert!(mapping.bytes() >= len * size_of::<T>(), "the mapping has grown enough");
            self.start = mapping.start.cast();
            self.len = len;
            return;
        }
        let mut larger = Self::unfilled(len);
        larger[..self.len].copy_from_slice(self);
        debug_assert_eq!(larger.len(), len, "the requested length");
        *self = larger;
    }

    /// Memory for `len` elements: zeros, unless the mapping was used before.
    ///
    /// # Safety
    ///
    /// Any bit pattern is a valid element, or the caller clears a used mapping.
    unsafe fn take(len: usize) -> Self
    where
        T: Zeroable,
    {
        let () = Self::IS_PLAIN;
        match Self::mapping_for(len) {
            Some(mapping) => {
                debug_assert!(
                    mapping.bytes() >= len * size_of::<T>(),
                    "the mapping has room for the elements"
                );
                Self { start: mapping.start.cast(), len, mapping: Some(mapping) }
            }
            None => Self::of_box(bytemuck::zeroed_slice_box(len)),
        }
    }

    /// A mapping for `len` elements if they are large enough for one and the system provides it.
    fn mapping_for(len: usize) -> Option<Mapping> {
        let bytes = len.checked_mul(size_of::<T>()).expect("a size that memory can have");
        (bytes >= MAPPED_BYTES_MIN).then(|| kept_mappings::take(bytes)).flatten()
    }

    fn of_box(elements: Box<[T]>) -> Self {
        let len = elements.len();
        Self { start: NonNull::from(Box::leak(elements)).cast(), len, mapping: None }
    }

    /// Pointer to the first element. Stays valid until the slice is dropped or grows.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.start.as_ptr()
    }
}

impl LargeSlice<AtomicU64> {
    /// Like [`LargeSlice::unfilled`], for words that threads share.
    pub fn unfilled_words(len: usize) -> Self {
        // SAFETY: any bit pattern is a valid word.
        unsafe { Self::take(len) }
    }
}

impl<T> ops::Deref for LargeSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialized plain elements are there, and they are ours until the drop.
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
        // SAFETY: `of_box` leaked a box of this length, and no other user exists.
        drop(unsafe { Box::from_raw(elements) });
    }
}

impl<T> fmt::Debug for LargeSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LargeSlice({} bytes)", self.len * size_of::<T>())
    }
}

/// Memory of the system with one owner, unmapped when it is dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// Whether it can hold anything but zeros.
    is_used: bool,
}

// SAFETY: memory is not bound to the thread that mapped it.
unsafe impl Send for Mapping {}

impl Mapping {
    fn bytes(&self) -> usize {
        self.bytes
    }

    /// Maps fresh zero pages; `None` if the system refuses.
    #[cfg(all(unix, not(miri)))]
    fn fresh(bytes: usize) -> Option<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a private mapping at an address chosen by the system touches nothing that exists.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        let start = NonNull::new(start.ok()?.cast())?;
        debug_assert!(start.addr().get().is_multiple_of(crate::PAGE_SIZE), "mappings are page-aligned");
        Some(Self { start, bytes, is_used: false })
    }

    /// Grows it to `bytes`, possibly at another address; `false` if the system cannot do that. REQUIRES: no
    /// pointers into it exist.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn grow(&mut self, bytes: usize) -> bool {
        use rustix::mm::{MremapFlags, mremap};

        if bytes <= self.bytes {
            return true;
        }
        // SAFETY: `fresh` made exactly this mapping, and no other user exists.
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
        // SAFETY: `fresh` made exactly this mapping, and its only owner is being dropped.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "the mapping exists");
    }
}

#[cfg(test)]
mod tests;
