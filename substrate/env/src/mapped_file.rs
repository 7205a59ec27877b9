//! Mapped files, as the tail of the log uses them.
#![expect(unsafe_code, reason = "users of a mapping access memory that its implementation promises")]

use std::{fmt, ptr::NonNull};

/// A file of fixed length that is mapped shared. Bytes stored in it are in the operating system at once: they
/// survive the end of the process and reach the device when the system writes them back.
///
/// # Safety
///
/// While the value lives, the memory from `start` on may be read and written for `len` bytes, is initialized
/// and page-aligned, and has no other user in this process, except one that reads it in atomic words. Neither
/// of the two ever changes.
pub unsafe trait MappedFile: Send + Sync + fmt::Debug {
    /// Address of the first byte.
    fn start(&self) -> NonNull<u8>;
    /// Length in bytes, a multiple of the page.
    fn len(&self) -> usize;
    /// Whether it is empty, which never happens.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
