//! Buffers whose address and length suit direct I/O.

use testudo_base::{PAGE_SIZE, num::usize_of};

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_SIZE]);

/// Bytes whose address and length are multiples of 4 KiB, as direct I/O asks. Dereferences to `[u8]`.
#[derive(Clone)]
pub struct AlignedBuffer(Vec<Page>);

impl AlignedBuffer {
    /// Zeroed pages; `bytes` is rounded up to a multiple of 4 KiB.
    pub fn zeroed(bytes: usize) -> Self {
        Self(bytemuck::zeroed_vec(bytes.div_ceil(PAGE_SIZE)))
    }

    /// As [`AlignedBuffer::zeroed`], for lengths that come as `u64`.
    pub fn for_bytes(bytes: u64) -> Self {
        Self::zeroed(usize_of(bytes))
    }

    /// Grows (with zeros) or shrinks to `bytes`, rounded up to a multiple of 4 KiB.
    pub fn resize(&mut self, bytes: usize) {
        self.0.resize(bytes.div_ceil(PAGE_SIZE), Page([0; PAGE_SIZE]));
    }
}

impl std::ops::Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl std::ops::DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len())
    }
}
