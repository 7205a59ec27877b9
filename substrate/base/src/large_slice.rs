//! Slices of zeroes for bulk memory, which goes back to the system when they are dropped.
//!
//! An allocator keeps large pieces that were freed between others that were not: GNU's raises the size from which it asks the system
//! each time such a piece is freed, and from then on takes everything below it from heaps that cannot shrink. A store whose
//! memory moves between write buffers, records and pages would hold it twice. So large slices are mappings of their own, nobody's
//! but the system's; small ones come from the allocator.
//!
//! **Invariants**
//! - A slice stays where it is until it is dropped, also when the [`LargeSlice`] itself is moved.
//! - From [`MAPPED_BYTES_MIN`] on it begins at a page, unless the system refuses the mapping.
#![expect(unsafe_code, reason = "anonymous mappings of the system as slices")]

use std::{fmt, mem, ops, ptr, ptr::NonNull, slice};

use bytemuck::Zeroable;

/// Bytes from which on a slice is a mapping.
pub const MAPPED_BYTES_MIN: usize = 128 << 10;

/// A slice of elements that began as zeroes; see the head of `large_slice.rs`.
pub struct LargeSlice<T> {
    start: NonNull<T>,
    len: usize,
    is_mapped: bool,
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
        let () = Self::IS_PLAIN;
        let bytes = len.checked_mul(size_of::<T>()).expect("a size that memory can have");
        if bytes >= MAPPED_BYTES_MIN
            && let Some(start) = map(bytes)
        {
            return Self { start: start.cast(), len, is_mapped: true };
        }
        let start = NonNull::from(Box::leak(bytemuck::zeroed_slice_box::<T>(len))).cast();
        Self { start, len, is_mapped: false }
    }

    /// The first element. Stays valid while the slice lives.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.start.as_ptr()
    }
}

impl<T> ops::Deref for LargeSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: so many elements are there, zeroed or written since, and ours until the drop.
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
        if self.is_mapped {
            unmap(self.start.cast(), self.len * size_of::<T>());
            return;
        }
        let elements = ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len);
        // SAFETY: `zeroed` took it out of a box of this length, and nobody uses it any more.
        drop(unsafe { Box::from_raw(elements) });
    }
}

impl<T> fmt::Debug for LargeSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LargeSlice({} bytes)", self.len * size_of::<T>())
    }
}

/// Fresh pages of zeroes; `None` if the system has none to give.
#[cfg(all(unix, not(miri)))]
fn map(bytes: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a private mapping where the system finds room touches nothing that exists.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
    NonNull::new(start.ok()?.cast())
}

#[cfg(all(unix, not(miri)))]
fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: `map` made exactly this mapping, and its owner is being dropped.
    let unmapped = unsafe { rustix::mm::munmap(start.as_ptr().cast(), bytes) };
    debug_assert!(unmapped.is_ok(), "a mapping of ours is there");
}

#[cfg(not(all(unix, not(miri))))]
fn map(_bytes: usize) -> Option<NonNull<u8>> {
    None
}

#[cfg(not(all(unix, not(miri))))]
fn unmap(_start: NonNull<u8>, _bytes: usize) {
    unreachable!("nothing is ever mapped here");
}

#[cfg(test)]
mod tests;
