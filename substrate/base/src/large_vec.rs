//! Vectors of plain elements in large slices.
//!
//! Freeing a block of 128 KiB or more makes GNU's allocator keep blocks of that size from then on, in the
//! heaps of all threads (`large_slice.rs`). So vectors of plain elements that may grow that long and are
//! short-lived use this type.

use std::{fmt, ops};

use bytemuck::AnyBitPattern;

use crate::LargeSlice;

/// Initial capacity in bytes.
const FIRST_BYTES: usize = 256;

/// A growing vector; see the head of `large_vec.rs`.
pub struct LargeVec<T> {
    /// Elements beyond `len` are arbitrary.
    room: LargeSlice<T>,
    len: usize,
}

impl<T: AnyBitPattern> LargeVec<T> {
    /// An empty vector without memory.
    pub fn new() -> Self {
        Self { room: LargeSlice::unfilled(0), len: 0 }
    }

    /// Appends an element.
    #[inline]
    pub fn push(&mut self, element: T) {
        match self.room.get_mut(self.len) {
            Some(place) => *place = element,
            None => self.push_beyond(element),
        }
        self.len += 1;
        debug_assert!(self.len <= self.room.len(), "elements are within the room");
    }

    #[cold]
    fn push_beyond(&mut self, element: T) {
        self.grow(1);
        self.room[self.len] = element;
    }

    /// Appends copies of elements.
    #[inline]
    pub fn extend_from_slice(&mut self, more: &[T]) {
        if more.len() > self.room.len() - self.len {
            self.grow(more.len());
        }
        self.room[self.len..self.len + more.len()].copy_from_slice(more);
        self.len += more.len();
    }

    /// Removes all elements and keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Capacity in bytes.
    pub fn room_bytes(&self) -> usize {
        size_of_val(&*self.room)
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        let first = (FIRST_BYTES / size_of::<T>().max(1)).max(1);
        self.room.grow((self.len + more).max(self.len * 2).max(first));
        debug_assert!(self.room.len() >= self.len + more, "there is room for more");
    }
}

impl<T: AnyBitPattern> Default for LargeVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> ops::Deref for LargeVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.room[..self.len]
    }
}

impl<T> ops::DerefMut for LargeVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.room[..self.len]
    }
}

impl<T: AnyBitPattern> FromIterator<T> for LargeVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut all = Self::new();
        elements.into_iter().for_each(|element| all.push(element));
        all
    }
}

impl<T: fmt::Debug> fmt::Debug for LargeVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&**self).finish()
    }
}

#[cfg(test)]
mod tests;
