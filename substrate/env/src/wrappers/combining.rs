//! Combines small writes of a file: those that need not outlive the process before the next sync
//! ([`CombiningFile::write_soon`]) are collected, and written together before it.
//!
//! A flush of thousands of small keyspaces writes a run of a few pages for each. Most of them are adjacent in
//! the file, so a few large writes replace thousands of small ones.
//!
//! **Invariants**
//! - Only `write_soon` collects: every other write is with the operating system when the call returns.
//! - Reads see all earlier writes: a read of collected pages writes them first.
//! - Collected pages are written without `held`: only operations on these pages wait for the device.
//! - Writes of the same page take effect in the order in which they were made: a later write, or a hole,
//!   replaces a collected page.
//! - A failed write leaves its pages collected. Another attempt is made before the next sync, which fails if
//!   that does.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
};

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

use crate::{
    AlignedBuffer, File, PendingRead, PendingWrite, ReadRequest, WriteRequest, pending_read::FinishedRead,
};

/// Writes up to this length are collected.
const SMALL_BYTES: usize = 64 << 10;
/// Pages are written once they are one part in this many of the page cache.
const COLLECTED_PARTS: u64 = 16;
/// Maximum length of a combined write.
const COMBINED_BYTES: usize = 1 << 20;

type Pages = BTreeMap<u64, Box<[u8]>>;

/// Pages in memory. A page may be in both: the collected one is newer.
#[derive(Debug, Default)]
struct Held {
    collected: Pages,
    /// Numbers of the pages of a write in progress.
    writing: BTreeSet<u64>,
}

impl Held {
    fn has(&self, pages: Range<u64>) -> bool {
        self.collected.range(pages.clone()).next().is_some() || self.writing.range(pages).next().is_some()
    }

    /// End of the last page.
    fn end_page(&self) -> u64 {
        let collected = self.collected.last_key_value().map(|(page, _)| page);
        collected.max(self.writing.last()).map_or(0, |page| page + 1)
    }
}

/// A file with writes that are combined.
#[derive(Debug)]
pub struct CombiningFile {
    inner: Arc<dyn File>,
    /// Number of collected pages from which on they are written.
    pages_max: usize,
    held: Mutex<Held>,
    /// Number of pages in memory: a read looks no further if there are none.
    count: AtomicUsize,
    /// Held while pages are written; taken before `held`.
    write_lock: Mutex<()>,
}

/// Numbers of the pages of a range of bytes.
fn pages_of(offset: u64, bytes: u64) -> Range<u64> {
    offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES)
}

impl CombiningFile {
    /// Wraps `inner`, and collects about `bytes_max`, at most twice as much.
    pub fn new(inner: Arc<dyn File>, bytes_max: usize) -> Arc<Self> {
        let pages_max = bytes_max / PAGE_SIZE;
        let (held, write_lock) = (Mutex::default(), Mutex::default());
        Arc::new(Self { inner, pages_max, held, count: 0.into(), write_lock })
    }

    fn recount(&self, held: &Held) {
        self.count.store(held.collected.len() + held.writing.len(), Release);
    }

    /// Writes the collected pages if a read of this range would miss one, or waits until they are written.
    fn prepare_read(&self, offset: u64, bytes: usize) -> io::Result<()> {
        if self.count.load(Acquire) == 0 {
            return Ok(());
        }
        let held = self.held.lock();
        let range = pages_of(offset, u64_of(bytes));
        let is_held = held.has(range);
        drop(held);
        if is_held { self.write_all() } else { Ok(()) }
    }

    /// Drops the collected pages of a range that is about to be overwritten, once none of its pages is being
    /// written.
    fn replace(&self, offset: u64, bytes: u64) {
        if self.count.load(Acquire) == 0 {
            return;
        }
        let range = pages_of(offset, bytes);
        let mut held = self.held.lock();
        if held.writing.range(range.clone()).next().is_some() {
            drop(held);
            let written = self.write_lock.lock();
            held = self.held.lock();
            drop(written);
        }
        let present: Vec<u64> = held.collected.range(range).map(|(page, _)| *page).collect();
        for page in present {
            held.collected.remove(&page);
        }
        self.recount(&held);
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
        let mut held = self.held.lock();
        for (page, part) in (offset / PAGE_BYTES..).zip(bytes.chunks_exact(PAGE_SIZE)) {
            held.collected.insert(page, part.into());
        }
        self.recount(&held);
        let is_full = held.collected.len() >= self.pages_max;
        // Another thread writes the previous ones: there is room for these.
        let has_room = !held.writing.is_empty() && held.collected.len() < 2 * self.pages_max;
        drop(held);
        if is_full && !has_room { self.write_all() } else { Ok(()) }
    }

    /// Writes the collected pages, adjacent ones together.
    fn write_all(&self) -> io::Result<()> {
        let _writing = self.write_lock.lock();
        let mut pages = {
            let mut held = self.held.lock();
            debug_assert!(held.writing.is_empty(), "one write at a time");
            held.writing = held.collected.keys().copied().collect();
            std::mem::take(&mut held.collected)
        };
        let mut written = Ok(());
        while written.is_ok()
            && let Some((&first, _)) = pages.first_key_value()
        {
            let adjacent = pages.iter().zip(first..).take_while(|((page, _), expected)| *page == expected);
            let count = adjacent.count().min(COMBINED_BYTES / PAGE_SIZE);
            let mut buffer = AlignedBuffer::unfilled(count * PAGE_SIZE);
            for (part, page) in buffer.chunks_exact_mut(PAGE_SIZE).zip(pages.values()) {
                part.copy_from_slice(page);
            }
            written = self.inner.write_at(first * PAGE_BYTES, &buffer);
            if written.is_ok() {
                pages = pages.split_off(&(first + u64_of(count)));
            }
        }
        let mut held = self.held.lock();
        held.writing.clear();
        // Pages that could not be written stay collected, unless they were written again.
        for (page, bytes) in pages {
            held.collected.entry(page).or_insert(bytes);
        }
        self.recount(&held);
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

    fn write_batch(&self, requests: &mut [WriteRequest<'_>]) {
        for request in &*requests {
            self.replace(request.offset, u64_of(request.bytes.len()));
        }
        self.inner.write_batch(requests);
    }

    fn start_write(&self, offset: u64, buffer: AlignedBuffer, length: usize) -> Box<dyn PendingWrite> {
        self.replace(offset, u64_of(length));
        self.inner.start_write(offset, buffer, length)
    }

    fn sync(&self) -> io::Result<()> {
        self.write_all()?;
        self.inner.sync()
    }

    fn len(&self) -> io::Result<u64> {
        let inner = self.inner.len()?;
        Ok(inner.max(self.held.lock().end_page() * PAGE_BYTES))
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
    usize_of(cache_bytes / COLLECTED_PARTS).clamp(0, COMBINED_BYTES)
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
                match random.below(7) {
                    6 => {
                        let mut buffer = AlignedBuffer::zeroed(bytes);
                        buffer.fill(step);
                        let pages = (first..).zip(buffer.chunks(PAGE_SIZE));
                        let mut requests: Vec<WriteRequest<'_>> =
                            pages.map(|(page, bytes)| WriteRequest::new(page * PAGE_BYTES, bytes)).collect();
                        file.write_batch(&mut requests);
                        assert!(requests.iter().all(|request| request.result.is_ok()));
                        model[range].fill(step);
                    }
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

    /// A file in which writes take a while.
    #[derive(Debug)]
    struct SlowFile(Arc<dyn File>);

    impl File for SlowFile {
        fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            (0..20).for_each(|_| std::thread::yield_now());
            self.0.write_at(offset, bytes)
        }

        fn set_len(&self, length: u64) -> io::Result<()> {
            self.0.set_len(length)
        }

        fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
            self.0.allocate(offset, length)
        }

        crate::forward!(0: read_at, read_batch, sync, len, punch_hole, allocated_bytes);
    }

    #[test]
    fn threads_see_their_own_writes_while_others_write() {
        let env = MemEnv::new(1);
        let inner =
            env.open(Path::new("/file"), OpenOptions { mode: OpenMode::CreateNew, direct: true }).unwrap();
        inner.set_len(4 * PAGES * PAGE_BYTES).unwrap();
        let file = CombiningFile::new(Arc::new(SlowFile(Arc::clone(&inner))), 8 * PAGE_SIZE);
        let outer = Arc::clone(&file) as Arc<dyn File>;
        // Threads own every fourth page, so that the pages of all are adjacent.
        let own = |thread: u64, index: u64| (index * 4 + thread) * PAGE_BYTES;
        let work = |thread: u64| {
            let mut random = SplitMix::new(thread);
            let mut model = vec![0u8; usize_of(PAGES)];
            for step in (1..=u8::MAX).cycle().take(2_000) {
                let index = random.below(PAGES);
                let mut page = AlignedBuffer::zeroed(PAGE_SIZE);
                page.fill(step);
                let written = match random.below(8) {
                    0..4 => file.write_soon(own(thread, index), &page),
                    4 => file.write_at(own(thread, index), &page),
                    way => {
                        let read = if way == 5 { file.sync().and(Ok(&inner)) } else { Ok(&outer) };
                        read.unwrap().read_at(own(thread, index), &mut page).unwrap();
                        let expected = model[usize_of(index)];
                        assert!(page.iter().all(|byte| *byte == expected), "page {index} of {thread}");
                        continue;
                    }
                };
                written.unwrap();
                model[usize_of(index)] = step;
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|thread| drop(scope.spawn(move || work(thread)))));
    }
}
