#![expect(unsafe_code, reason = "a mapping is a raw address and a length")]
//! A preallocated file that is mapped shared, and the boot id of the machine.
//!
//! A failing store into a mapping raises a signal that ends the process, so it must not be able to fail. The
//! space is therefore allocated before, and only on file systems that overwrite allocated space in place.
//! File systems that write elsewhere (btrfs, ZFS), over a network, or through another file system (overlayfs,
//! FUSE) are refused.
//!
//! **Invariants**
//! - The whole length has space on the device before it is mapped.
//! - A mapping exists until its value is dropped; child processes do not have it.
//! - There is no guarantee if another program truncates the file.

use std::{io, ptr::NonNull};

use rustix::{
    fs::{AtFlags, FallocateFlags, OFlags},
    io::{Errno, retry_on_intr},
    mm::{Advice, MapFlags, ProtFlags},
};
use testudo_base::{PAGE_SIZE, num::u64_of};

use crate::{MappedFile, real::file::open_regular, wrappers::anchor::Place};

/// `f_type` of the file systems that overwrite allocated space in place: ext2 to ext4, XFS, tmpfs.
const IN_PLACE: [u64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];
/// Identifies a boot of Linux; hexadecimal digits and hyphens.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A shared mapping of a file.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its range of addresses; only its one user accesses the contents.
unsafe impl Send for SharedMapping {}
// SAFETY: as above; the value itself only exposes an address and a length.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    pub(crate) fn create(place: Place<'_>, bytes: usize) -> io::Result<Self> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::INVAL.into());
        }
        let (directory, name) = (place.directory, place.name);
        let descriptor = open_regular(place, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        let mapped = (|| {
            let kind = rustix::fs::fstatfs(&descriptor)?.f_type;
            if !u64::try_from(kind).is_ok_and(|kind| IN_PLACE.contains(&kind)) {
                return Err(io::Error::from(io::ErrorKind::Unsupported));
            }
            let allocate = || rustix::fs::fallocate(&descriptor, FallocateFlags::empty(), 0, u64_of(bytes));
            retry_on_intr(allocate)?;
            // SAFETY: a fresh range of addresses, chosen by the system, with no references to it.
            let start = unsafe {
                rustix::mm::mmap(
                    std::ptr::null_mut(),
                    bytes,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED,
                    &descriptor,
                    0,
                )
            }?;
            let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
            let mapping = Self { start, bytes };
            // SAFETY: the range was just mapped, and the advice changes no bytes.
            unsafe { rustix::mm::madvise(mapping.start.as_ptr().cast(), bytes, Advice::LinuxDontFork) }?;
            Ok(mapping)
        })();
        if mapped.is_err() {
            let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        }
        mapped
    }
}

// SAFETY: `create` mapped the range, from a new file; it is unmapped when the value is dropped.
unsafe impl MappedFile for SharedMapping {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `create`, and its user's access ends with this value.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Reads the boot id of this machine.
pub(crate) fn read_boot_id() -> Option<u128> {
    let text = std::fs::read_to_string(BOOT_ID).ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).ok()
}
