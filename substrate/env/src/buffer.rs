//! Buffers with the address and length alignment that direct I/O requires.

use testudo_base::{LargeSlice, PAGE_SIZE, num::usize_of};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_SIZE]);

/// Bytes whose address and length are multiples of 4 KiB, as required by direct I/O. Dereferences to `[u8]`.
pub struct AlignedBuffer {
    pages: LargeSlice<Page>,
    /// Pages of the buffer; the remaining ones are spare.
    count: usize,
}

impl AlignedBuffer {
    /// A buffer of zeros; `bytes` is rounded up to a multiple of 4 KiB.
    pub fn zeroed(bytes: usize) -> Self {
        let count = bytes.div_ceil(PAGE_SIZE);
        Self { pages: LargeSlice::zeroed(count), count }
    }

    /// A buffer with arbitrary contents, for callers that overwrite all of it before reading; `bytes` is
    /// rounded up to a multiple of 4 KiB.
    pub fn unfilled(bytes: usize) -> Self {
        let count = bytes.div_ceil(PAGE_SIZE);
        Self { pages: LargeSlice::unfilled(count), count }
    }

    /// Like [`AlignedBuffer::zeroed`], for lengths of type `u64`.
    pub fn for_bytes(bytes: u64) -> Self {
        Self::zeroed(usize_of(bytes))
    }

    /// Grows (with zeros) or shrinks to `bytes`, rounded up to a multiple of 4 KiB.
    pub fn resize(&mut self, bytes: usize) {
        let count = bytes.div_ceil(PAGE_SIZE);
        if count > self.pages.len() {
            let mut pages = LargeSlice::zeroed(count);
            pages[..self.count].copy_from_slice(&self.pages[..self.count]);
            self.pages = pages;
        } else if count > self.count {
            self.pages[self.count..count].fill(Page([0; PAGE_SIZE]));
        }
        debug_assert!(count <= self.pages.len(), "enough pages exist");
        self.count = count;
    }

    /// Like [`AlignedBuffer::resize`], but leaves arbitrary contents. If more than half of the memory would
    /// be spare, it is released: a buffer must not hold more than its caller has leased.
    pub fn resize_unfilled(&mut self, bytes: usize) {
        let count = bytes.div_ceil(PAGE_SIZE);
        if count > self.pages.len() || count * 2 <= self.pages.len() {
            self.pages = LargeSlice::unfilled(count);
        }
        debug_assert!(count <= self.pages.len(), "enough pages exist");
        self.count = count;
    }
}

impl Clone for AlignedBuffer {
    fn clone(&self) -> Self {
        let mut copy = Self::zeroed(self.len());
        copy.copy_from_slice(self);
        copy
    }
}

impl std::ops::Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.pages[..self.count])
    }
}

impl std::ops::DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.pages[..self.count])
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrunk_buffer_releases_spare_memory() {
        let mut buffer = AlignedBuffer::zeroed(64 * PAGE_SIZE);
        buffer.resize_unfilled(33 * PAGE_SIZE);
        assert_eq!((buffer.len(), buffer.pages.len()), (33 * PAGE_SIZE, 64), "most of it is used");
        buffer.resize_unfilled(4 * PAGE_SIZE);
        assert_eq!((buffer.len(), buffer.pages.len()), (4 * PAGE_SIZE, 4));
        buffer.resize_unfilled(16 * PAGE_SIZE);
        assert_eq!((buffer.len(), buffer.pages.len()), (16 * PAGE_SIZE, 16));
    }
}
