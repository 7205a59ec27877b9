//! Open files as the store uses them: positional reads and writes, batches, syncs.
//!
//! **Invariants**
//! - No call moves a shared file position; all may be made from many threads concurrently.
//! - A file opened for direct I/O rejects misaligned reads and writes in every environment. This includes
//!   file systems without direct I/O, so that mistakes show up on any machine.

use std::{fmt, io};

use testudo_base::{PAGE_BYTES, PAGE_SIZE};

use crate::{
    AlignedBuffer, PendingRead, PendingWrite, pending_read::FinishedRead, pending_write::FinishedWrite,
};

/// Mode of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Existing file, read-only.
    Read,
    /// Existing file, for reading and writing.
    Write,
    /// The file must not exist; it is created with mode 0600.
    CreateNew,
}

/// Options of [`Env::open`](crate::Env::open).
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Existing or new, read or write.
    pub mode: OpenMode,
    /// Bypasses the operating system's page cache. Offsets, lengths and buffer addresses of every read and
    /// write must then be multiples of 4 KiB (see [`AlignedBuffer`](crate::AlignedBuffer)). A file system
    /// without direct I/O uses ordinary I/O instead, without an error.
    pub direct: bool,
}

/// One read in a batch.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Offset in bytes from the start of the file.
    pub offset: u64,
    /// Filled completely on success.
    pub buffer: &'a mut [u8],
    /// The result; `Ok` before the call.
    pub result: io::Result<()>,
}

impl<'a> ReadRequest<'a> {
    /// A request to fill `buffer` from `offset`.
    pub fn new(offset: u64, buffer: &'a mut [u8]) -> Self {
        Self { offset, buffer, result: Ok(()) }
    }
}

/// One write in a batch.
#[derive(Debug)]
pub struct WriteRequest<'a> {
    /// Offset in bytes from the start of the file.
    pub offset: u64,
    /// Written completely on success.
    pub bytes: &'a [u8],
    /// The result; `Ok` before the call.
    pub result: io::Result<()>,
}

impl<'a> WriteRequest<'a> {
    /// A request to write `bytes` at `offset`.
    pub fn new(offset: u64, bytes: &'a [u8]) -> Self {
        Self { offset, bytes, result: Ok(()) }
    }
}

/// An open file. All calls are positional and may be made from many threads concurrently.
pub trait File: Send + Sync + fmt::Debug {
    /// Fills `buffer` from `offset`; `UnexpectedEof` if the file is shorter.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Performs many reads concurrently, as many in flight as the device accepts. Each request carries its
    /// own result.
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]);
    /// Starts to fill all of `buffer` from `offset` in the background. Where that is not supported, the read
    /// has ended when the call returns.
    fn start_read(&self, offset: u64, buffer: AlignedBuffer) -> Box<dyn PendingRead> {
        let mut buffer = buffer;
        let result = self.read_at(offset, &mut buffer);
        Box::new(FinishedRead { buffer, result })
    }
    /// Writes all of `bytes` at `offset`, extending the file if needed. Not durable before [`File::sync`].
    /// After an error any part of the range may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Performs many writes within the file concurrently, as many in flight as the device accepts. Each
    /// request carries its own result, as [`File::write_at`] returns it. Their ranges must not overlap.
    fn write_batch(&self, requests: &mut [WriteRequest<'_>]) {
        for request in requests {
            request.result = self.write_at(request.offset, request.bytes);
        }
    }
    /// Starts to write the first `length` bytes of `buffer` at `offset`, within the file, in the background.
    /// Where that is not supported, the write has ended when the call returns. No other write may touch the
    /// range meanwhile, and [`File::sync`] covers it only after it was waited for.
    fn start_write(&self, offset: u64, buffer: AlignedBuffer, length: usize) -> Box<dyn PendingWrite> {
        let result = self.write_at(offset, &buffer[..length]);
        Box::new(FinishedWrite { buffer, result })
    }
    /// Makes all earlier writes and the length durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the length is zero.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Truncates or extends (with zeros) to `length` bytes.
    fn set_len(&self, length: u64) -> io::Result<()>;
    /// Reserves space on the device for the range and extends the length to its end if the file is shorter;
    /// contents are unchanged. A file system that cannot reserve space only extends the length. Must not run
    /// concurrently with a call that changes the length.
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Releases the range to the file system; it reads as zeros. The length is unchanged. A file system
    /// without support leaves the range as it is.
    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Returns the first offset at or after `offset` from which on data other than zeros may follow;
    /// `u64::MAX` if only a hole follows. Returns `offset` where the file system does not report holes.
    fn next_data(&self, offset: u64) -> u64 {
        offset
    }
    /// Bytes that the file occupies on the device.
    fn allocated_bytes(&self) -> io::Result<u64>;
}

/// `InvalidInput` unless offset, length and address are multiples of 4 KiB.
pub(crate) fn require_direct_alignment(offset: u64, bytes: &[u8]) -> io::Result<()> {
    let address = bytes.as_ptr().addr();
    if offset.is_multiple_of(PAGE_BYTES)
        && bytes.len().is_multiple_of(PAGE_SIZE)
        && address.is_multiple_of(PAGE_SIZE)
    {
        return Ok(());
    }
    let message = format!("direct I/O at offset {offset}, {} bytes, is not aligned to 4 KiB", bytes.len());
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Returns the end of a range, or `InvalidInput` beyond the largest file offset (signed 64 bits).
pub(crate) fn range_end(offset: u64, length: u64) -> io::Result<u64> {
    match offset.checked_add(length) {
        Some(end) if i64::try_from(end).is_ok() => Ok(end),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "range beyond the largest file offset")),
    }
}
