//! Simulates a mapped file in memory.
//!
//! **Invariants**
//! - The disk copies the memory when an image is taken, when the file is opened and when the mapping ends;
//!   otherwise only its user accesses it.
#![expect(unsafe_code, reason = "promises that the memory stays where it is")]

use std::{
    fmt,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use testudo_base::{
    LargeSlice, PAGE_SIZE,
    num::u64_of,
    sync::{Arc, Weak},
};

use super::{Machine, dir_node::Inode, file_node::FileNode};
use crate::MappedFile;

const WORD_BYTES: usize = 8;

/// Page-aligned, as direct I/O from it requires.
#[derive(bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct Page([AtomicU64; PAGE_SIZE / WORD_BYTES]);

/// Memory that behaves like a mapped file without a disk.
pub struct MappedMemory {
    pages: LargeSlice<Page>,
}

impl MappedMemory {
    /// `bytes` zeros, rounded up to whole pages.
    pub fn zeroed(bytes: usize) -> Self {
        Self { pages: LargeSlice::zeroed(bytes.div_ceil(PAGE_SIZE).max(1)) }
    }

    /// Writes the changed pages to the file.
    pub(super) fn store_in(&self, file: &mut FileNode) {
        let (mut page, mut stored) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
        for (index, words) in self.pages.iter().enumerate() {
            for (bytes, word) in page.chunks_exact_mut(WORD_BYTES).zip(&words.0) {
                bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            let offset = u64_of(index * PAGE_SIZE);
            file.read(offset, &mut stored);
            if page != stored {
                file.write(offset, &page);
            }
        }
    }
}

impl fmt::Debug for MappedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedMemory({} bytes)", self.len())
    }
}

// SAFETY: the slice owns its pages, never grows, and consists of atomics, which may be written through a
// shared reference; this file reads them in atomic words.
unsafe impl MappedFile for MappedMemory {
    fn start(&self) -> NonNull<u8> {
        NonNull::new(self.pages.as_ptr().cast_mut().cast()).expect("a slice has an address")
    }

    fn len(&self) -> usize {
        self.pages.len() * PAGE_SIZE
    }
}

/// A mapping of a file of the machine; keeps the file like a handle.
#[derive(Debug)]
pub(super) struct MemMapping {
    machine: Arc<Machine>,
    inode: Inode,
    memory: Arc<MappedMemory>,
}

impl MemMapping {
    /// Takes over a handle that the disk has already counted.
    pub(super) fn new(machine: Arc<Machine>, inode: Inode, memory: Arc<MappedMemory>) -> Self {
        Self { machine, inode, memory }
    }
}

// SAFETY: as above; the memory is shared with the disk, which only reads it, and kept by the reference.
unsafe impl MappedFile for MemMapping {
    fn start(&self) -> NonNull<u8> {
        self.memory.start()
    }

    fn len(&self) -> usize {
        self.memory.len()
    }
}

impl Drop for MemMapping {
    fn drop(&mut self) {
        let mut disk = self.machine.disk.write();
        disk.end_mapping(self.inode);
        disk.close(self.inode);
    }
}

/// The disk's reference to a mapping.
pub(super) type Mapped = Weak<MappedMemory>;
