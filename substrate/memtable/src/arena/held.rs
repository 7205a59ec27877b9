//! Parts of an index in the memory of an arena.
//!
//! **Invariants**
//! - A [`Held`] owns its value like a box, and is dropped before its arena: it carries the arena's brand, so
//!   it cannot leave code that is generic over it.
#![expect(unsafe_code, reason = "values in raw memory that the arena owns")]

use std::{marker::PhantomData, mem, ops, ptr::NonNull};

use super::Brand;

/// A part of the index in the memory of the arena with the brand `'id`.
#[derive(Debug)]
pub(crate) struct Held<'id, T>(NonNull<T>, Brand<'id>);

// SAFETY: it owns its value, like a box.
unsafe impl<T: Send> Send for Held<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Held<'_, T> {}

impl<T> Held<'_, T> {
    /// Takes over the value at `place`.
    ///
    /// # Safety
    ///
    /// A value is there, in space that the arena with this brand handed out for it alone.
    #[inline]
    pub(super) unsafe fn of(place: NonNull<T>) -> Self {
        debug_assert!(place.is_aligned(), "parts start at cache lines");
        Self(place, PhantomData)
    }
}

impl<T> ops::Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value is in separate space, and the arena still exists.
        unsafe { self.0.as_ref() }
    }
}

impl<T> ops::DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`; `&mut self` makes us the only user.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if mem::needs_drop::<T>() {
            // SAFETY: as for `deref_mut`; the value has no other user.
            unsafe { self.0.drop_in_place() };
        }
    }
}
