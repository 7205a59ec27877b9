//! Combines small writes of a file: those that need not outlive the process before the next sync
//! ([`CombiningFile::write_soon`]) are collected, and written together before it.
//!
//! A flush of thousands of small keyspaces writes a run of a few pages for each. Most of them are adjacent in
//! the file, so a few large writes replace thousands of small ones.
//!
//! **Invariants**
//! - Only `write_soon` collects: every other write is with the operating system when the call returns.
//! - Reads see all earlier writes: a read of collected pages writes them first.
//! - Writes of the same page take effect in the order in which they were made: a later write, or a hole,
//!   replaces a collected page.
//! - A failed write leaves its pages collected. Another attempt is made before the next sync, which fails if
//!   that does.

use std::{collections::BTreeMap, io};

use testudo_base::{
    PAGE_BYTES, PAGE_SIZE,
    num::{u64_of, usize_of},
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Release},
        },
    },
};

use crate::{AlignedBuffer, File, PendingRead, PendingWrite, ReadRequest, pending_read::FinishedRead};

/// Writes up to this length are collected.
const SMALL_BYTES: usize = 64 << 10;
/// Maximum length of a combined write.
const COMBINED_BYTES: usize = 1 << 20;

type Pages = BTreeMap<u64, Box<[u8; PAGE_SIZE]>>;

/// A file with writes that are combined.
#[derive(Debug)]
pub struct CombiningFile {
    inner: Arc<dyn File>,
    /// Maximum number of collected pages.
    pages_max: usize,
    pages: Mutex<Pages>,
    /// Number of collected pages: a read looks no further if there are none.
    count: AtomicUsize,
}

/// Numbers of the pages of a range of bytes.
fn pages_of(offset: u64, bytes: u64) -> std::ops::Range<u64> {
    offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES)
}

impl CombiningFile {
    /// Wraps `inner`, and collects up to `bytes_max`.
    pub fn new(inner: Arc<dyn File>, bytes_max: usize) -> Arc<Self> {
        let pages_max = bytes_max / PAGE_SIZE;
        Arc::new(Self { inner, pages_max, pages: Mutex::default(), count: 0.into() })
    }

    /// Writes the collected pages if a read of this range would miss one.
    fn prepare_read(&self, offset: u64, bytes: usize) -> io::Result<()> {
        if self.count.load(Acquire) == 0 {
            return Ok(());
        }
        let mut pages = self.pages.lock();
        let is_collected = pages.range(pages_of(offset, u64_of(bytes))).next().is_some();
        if is_collected { self.write_all(&mut pages) } else { Ok(()) }
    }

    /// Drops the collected pages of a range that is about to be overwritten.
    fn replace(&self, offset: u64, bytes: u64) {
        if self.count.load(Acquire) == 0 {
            return;
        }
        let mut pages = self.pages.lock();
        let present: Vec<u64> = pages.range(pages_of(offset, bytes)).map(|(page, _)| *page).collect();
        for page in present {
            pages.remove(&page);
        }
        self.count.store(pages.len(), Release);
    }

    /// Writes whole pages, at the latest before the next sync: a small write is collected, and is lost if the
    /// process ends before that.
    pub fn write_soon(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(
            offset.is_multiple_of(PAGE_BYTES) && bytes.len().is_multiple_of(PAGE_SIZE),
            "whole pages are written"
        );
        if bytes.len() > SMALL_BYTES || self.pages_max == 0 {
            return self.write_at(offset, bytes);
        }
        let mut pages = self.pages.lock();
        for (page, part) in (offset / PAGE_BYTES..).zip(bytes.chunks_exact(PAGE_SIZE)) {
            let mut copy = Box::new([0; PAGE_SIZE]);
            copy.copy_from_slice(part);
            pages.insert(page, copy);
        }
        self.count.store(pages.len(), Release);
        if pages.len() >= self.pages_max { self.write_all(&mut pages) } else { Ok(()) }
    }

    /// Writes the collected pages, adjacent ones together.
    fn write_all(&self, pages: &mut Pages) -> io::Result<()> {
        let mut written = Ok(());
        while written.is_ok()
            && let Some((&first, _)) = pages.first_key_value()
        {
            let adjacent = pages.iter().zip(first..).take_while(|((page, _), expected)| *page == expected);
            let count = adjacent.count().min(COMBINED_BYTES / PAGE_SIZE);
            let mut buffer = AlignedBuffer::unfilled(count * PAGE_SIZE);
            for (part, page) in buffer.chunks_exact_mut(PAGE_SIZE).zip(pages.values()) {
                part.copy_from_slice(&**page);
            }
            written = self.inner.write_at(first * PAGE_BYTES, &buffer);
            if written.is_ok() {
                *pages = pages.split_off(&(first + u64_of(count)));
            }
        }
        self.count.store(pages.len(), Release);
        written
    }
}

impl File for CombiningFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.prepare_read(offset, buffer.len())?;
        self.inner.read_at(offset, buffer)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        for request in &mut *requests {
            request.result = self.prepare_read(request.offset, request.buffer.len());
        }
        if requests.iter().all(|request| request.result.is_ok()) {
            self.inner.read_batch(requests);
            return;
        }
        for request in requests.iter_mut().filter(|request| request.result.is_ok()) {
            request.result = self.inner.read_at(request.offset, request.buffer);
        }
    }

    fn start_read(&self, offset: u64, buffer: AlignedBuffer) -> Box<dyn PendingRead> {
        match self.prepare_read(offset, buffer.len()) {
            Ok(()) => self.inner.start_read(offset, buffer),
            Err(error) => Box::new(FinishedRead { buffer, result: Err(error) }),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.replace(offset, u64_of(bytes.len()));
        self.inner.write_at(offset, bytes)
    }

    fn start_write(&self, offset: u64, buffer: AlignedBuffer, length: usize) -> Box<dyn PendingWrite> {
        self.replace(offset, u64_of(length));
        self.inner.start_write(offset, buffer, length)
    }

    fn sync(&self) -> io::Result<()> {
        self.write_all(&mut self.pages.lock())?;
        self.inner.sync()
    }

    fn len(&self) -> io::Result<u64> {
        let inner = self.inner.len()?;
        let last = self.pages.lock().last_key_value().map_or(0, |(page, _)| (page + 1) * PAGE_BYTES);
        Ok(inner.max(last))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.replace(length, u64::MAX / 2 - length);
        self.inner.set_len(length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        self.replace(offset, length);
        self.inner.punch_hole(offset, length)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.allocate(offset, length)
    }

    crate::forward!(inner: next_data, allocated_bytes);
}

/// Bytes of small writes to collect in a store with a page cache of this size.
pub fn collected_bytes(cache_bytes: u64) -> usize {
    usize_of(cache_bytes / 32).clamp(0, COMBINED_BYTES)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Env, MemEnv, OpenMode, OpenOptions, SplitMix};

    const PAGES: u64 = 64;

    #[test]
    fn reads_and_durable_contents_are_those_of_plain_writes() {
        for seed in 0..40 {
            let env = MemEnv::new(seed);
            let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
            let inner = env.open(Path::new("/file"), options).unwrap();
            inner.set_len(PAGES * PAGE_BYTES).unwrap();
            let file = CombiningFile::new(Arc::clone(&inner), 16 * PAGE_SIZE);
            let mut model = vec![0u8; PAGE_SIZE * usize_of(PAGES)];
            let mut random = SplitMix::new(seed);
            for step in (0..=u8::MAX).chain(0..100) {
                let first = random.below(PAGES);
                let count = (1 + random.below(20)).min(PAGES - first);
                let bytes = usize_of(count) * PAGE_SIZE;
                let range = usize_of(first) * PAGE_SIZE..usize_of(first) * PAGE_SIZE + bytes;
                match random.below(6) {
                    way @ (0 | 1) => {
                        let mut buffer = AlignedBuffer::zeroed(bytes);
                        buffer.fill(step);
                        if way == 0 {
                            file.write_soon(first * PAGE_BYTES, &buffer).unwrap();
                        } else {
                            file.write_at(first * PAGE_BYTES, &buffer).unwrap();
                            let mut written = AlignedBuffer::zeroed(bytes);
                            inner.read_at(first * PAGE_BYTES, &mut written).unwrap();
                            assert!(written[..] == buffer[..], "not collected");
                        }
                        model[range].fill(step);
                    }
                    2 => {
                        let mut buffer = AlignedBuffer::zeroed(bytes);
                        buffer.fill(step);
                        file.start_write(first * PAGE_BYTES, buffer, bytes).wait().1.unwrap();
                        model[range].fill(step);
                    }
                    3 => {
                        file.punch_hole(first * PAGE_BYTES, count * PAGE_BYTES).unwrap();
                        model[range].fill(0);
                    }
                    4 => {
                        let mut buffer = AlignedBuffer::zeroed(bytes);
                        file.read_at(first * PAGE_BYTES, &mut buffer).unwrap();
                        assert_eq!(buffer[..], model[range]);
                    }
                    _ => {
                        file.sync().unwrap();
                        let mut buffer = AlignedBuffer::zeroed(model.len());
                        inner.read_at(0, &mut buffer).unwrap();
                        assert_eq!(buffer[..], model[..]);
                    }
                }
            }
        }
    }
}
