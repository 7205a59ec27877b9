//! The data file: verified reads through the page cache, large reads and writes that bypass it, and its
//! space.
//!
//! **Invariants**
//! - Bytes are returned only after [`verify_pages`] has accepted them for the requested identity.
//! - All I/O is in whole pages from aligned buffers.
//! - The page cache never holds a page of a freed extent.

mod batches;
mod device_space;
pub(crate) mod load_pages;
pub(crate) mod long_read;
pub(crate) mod page_format;
pub(crate) mod page_write;
pub(crate) mod restore_pages;
pub(crate) mod stream_read;
pub(crate) mod warm_pages;

use testudo_base::{
    Error, ErrorKind, ExtentSpan, Incarnation, KeyspaceId, PAGE_BYTES, PAGE_SIZE, Result, RunId, StoreId,
    chunks::ChunkPool,
    num::{u64_of, usize_of},
    planted,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
        is_held,
    },
};
use testudo_env::{AlignedBuffer, CombiningFile, File, collected_bytes};

use crate::{
    DATA_FILE, Extent, Extents, PageCache, PageRef,
    cache::{Arrival, CacheStats, Priority},
    data_file::{
        page_format::{PageIdentity, PageKind, page_count_of, span_offset, verify_pages},
        page_write::{PageWrite, outcome},
        stream_read::{StreamLease, StreamMemory, StreamRead},
    },
    space::extents::SpaceStats,
};

/// The file grows by this part of its length, so that allocations of the file system are few and long, and
/// little space is unused; within bounds.
const GROWTH_PARTS: u64 = 32;
const GROWTH_BYTES_MIN: u64 = 256 << 10;
const GROWTH_BYTES_MAX: u64 = 32 << 20;

/// Location of a page and its expected identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAddress {
    /// Number of the page in the data file.
    pub page: u64,
    /// The run that it belongs to.
    pub generation: RunId,
    /// The keyspace that wrote it.
    pub keyspace: KeyspaceId,
    /// Lowest 32 bits of the incarnation that wrote it.
    pub incarnation: u32,
    /// Kind of its contents.
    pub kind: PageKind,
}

/// Device I/O since the file was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoStats {
    /// Reads of single pages (and of blocks of several pages) on behalf of queries.
    pub page_reads: u64,
    /// Bytes of `page_reads`.
    pub page_read_bytes: u64,
    /// Number of times that a query waited for reads of pages, single or batched.
    pub read_rounds: u64,
    /// Large sequential reads.
    pub stream_reads: u64,
    /// Bytes of `stream_reads`.
    pub stream_read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Number of syncs.
    pub syncs: u64,
}

/// Pages per allocation (256 KiB) on a device that is nearly full.
const SPACE_CHUNK_PAGES: u64 = 64;

#[derive(Debug, Default)]
struct IoCounters {
    page_reads: AtomicU64,
    page_read_bytes: AtomicU64,
    read_rounds: AtomicU64,
    stream_reads: AtomicU64,
    stream_read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
}

/// The data file of one store.
#[derive(Debug)]
pub struct DataFile {
    file: Arc<CombiningFile>,
    store: StoreId,
    extents: Arc<Extents>,
    cache: Arc<PageCache>,
    io: IoCounters,
    streams: Arc<StreamMemory>,
    growing: Mutex<()>,
    /// Held during a sync; the error of a failed sync.
    sync_failure: Mutex<Option<Error>>,
    /// Bytes by which the file may still grow.
    growth: AtomicU64,
    writer: Option<Incarnation>,
    /// Bytes of memory of open runs, without their pages.
    run_memory_bytes: AtomicU64,
    warms_merges: AtomicBool,
    retained_percent: AtomicU32,
    small_runs_apart: AtomicBool,
    record_bytes_max: AtomicU64,
}

impl DataFile {
    /// Wraps an open file. `live` lists the spans of the durable state with their reference counts; `writer`
    /// is the incarnation that writes new runs, `None` if the store is read-only.
    pub fn new(
        file: Arc<dyn File>,
        store: StoreId,
        cache_bytes: u64,
        live: impl Iterator<Item = (ExtentSpan, u32)>,
        writer: Option<Incarnation>,
    ) -> Result<Arc<Self>> {
        let file = CombiningFile::new(file, collected_bytes(cache_bytes));
        let file_pages = file.len().map_err(|e| Error::io(DATA_FILE, e))? / PAGE_BYTES;
        let cache = Arc::new(PageCache::new(cache_bytes));
        let forget = Arc::clone(&cache);
        let extents = Extents::new(file_pages, live, move |span| {
            for page in span.first_page..span.end_page() {
                forget.forget(page);
            }
        });
        if extents.file_bytes() > file_pages * PAGE_BYTES {
            let end = file_pages * PAGE_BYTES;
            return Err(Error::corruption(DATA_FILE, end, "the file ends before its last live extent"));
        }
        let io = IoCounters::default();
        let streams = StreamMemory::beside_cache(cache_bytes);
        Ok(Arc::new(Self {
            file,
            store,
            extents,
            cache,
            io,
            streams,
            growing: Mutex::new(()),
            sync_failure: Mutex::new(None),
            growth: u64::MAX.into(),
            writer,
            run_memory_bytes: 0.into(),
            warms_merges: false.into(),
            retained_percent: 0.into(),
            small_runs_apart: false.into(),
            record_bytes_max: 0.into(),
        }))
    }

    /// The store that the file belongs to.
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// The incarnation that writes new runs; `None` if the file is open for reading only.
    pub fn writer(&self) -> Option<Incarnation> {
        self.writer
    }

    /// The table of extents.
    pub fn extents(&self) -> &Arc<Extents> {
        &self.extents
    }

    /// Returns the identity that a page of this store must have.
    pub fn identity(&self, address: &PageAddress) -> PageIdentity {
        PageIdentity {
            store: self.store,
            kind: address.kind,
            page: address.page,
            generation: address.generation,
            keyspace: address.keyspace,
            incarnation: address.incarnation,
        }
    }

    /// Returns the page if it is cached; never reads from the device.
    #[inline]
    pub fn cached_page(&self, address: &PageAddress) -> Option<PageRef<'_>> {
        self.cache.get(address.page, address.generation)
    }

    /// Like [`DataFile::cached_page`], but counts as a use of the page only if `is_use` returns `true`.
    #[inline]
    pub fn cached_page_if(
        &self,
        address: &PageAddress,
        is_use: impl FnOnce(&PageRef<'_>) -> bool,
    ) -> Option<PageRef<'_>> {
        self.cache.get_if(address.page, address.generation, is_use)
    }

    /// Reads one page from the device into the cache, unless another thread does or just did. `act` gets its
    /// 4 KiB, and the cached page if a frame was available.
    ///
    /// Errors: `Io`; `Corruption` with the offset if the bytes are not the expected page.
    pub fn load_page<R>(
        &self,
        address: &PageAddress,
        act: impl FnOnce(&[u8], Option<&PageRef<'_>>) -> R,
    ) -> Result<R> {
        loop {
            match self.begin_load(address) {
                Arrival::Present(page) => return Ok(act(&page, Some(&page))),
                Arrival::Load(mut loading) => {
                    self.read_counted(address.page, loading.bytes())?;
                    self.check(loading.bytes(), address)?;
                    let page = loading.finish();
                    return Ok(act(&page, Some(&page)));
                }
                Arrival::Elsewhere(awaited) => awaited.wait(),
                Arrival::Refused => {
                    let mut buffer = AlignedBuffer::zeroed(PAGE_SIZE);
                    self.read_counted(address.page, &mut buffer)?;
                    self.check(&buffer, address)?;
                    return Ok(act(&buffer, None));
                }
            }
        }
    }

    fn begin_load(&self, address: &PageAddress) -> Arrival<'_> {
        self.cache.begin_load(address.page, address.generation, priority(address.kind))
    }

    /// Inserts a page that was just written, or read and verified, into the cache for its next reader.
    pub fn admit(&self, address: &PageAddress, bytes: &[u8]) {
        drop(self.cache.insert(address.page, address.generation, bytes, priority(address.kind)));
    }

    /// Reads a block of several pages, bypassing the cache; `spans` are its pages in order.
    pub fn read_block(&self, spans: &[ExtentSpan], address: &PageAddress) -> Result<AlignedBuffer> {
        let bytes = spans.iter().map(|span| usize_of(span.bytes())).sum();
        let mut buffer = AlignedBuffer::unfilled(bytes);
        let mut at = 0;
        for span in spans {
            let length = usize_of(span.bytes());
            self.read_counted(span.first_page, &mut buffer[at..at + length])?;
            at += length;
        }
        self.check(&buffer, address)?;
        Ok(buffer)
    }

    fn read_counted(&self, page: u64, buffer: &mut [u8]) -> Result<()> {
        self.io.read_rounds.fetch_add(1, Relaxed);
        self.io.page_reads.fetch_add(1, Relaxed);
        self.io.page_read_bytes.fetch_add(u64_of(buffer.len()), Relaxed);
        self.file.read_at(page * PAGE_BYTES, buffer).map_err(|e| self.read_error(page, e))
    }

    fn read_error(&self, page: u64, error: std::io::Error) -> Error {
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            return Error::corruption(DATA_FILE, page * PAGE_BYTES, "the file ends inside a page");
        }
        Error::io(format!("{DATA_FILE} at offset {}", page * PAGE_BYTES), error)
    }

    fn check(&self, bytes: &[u8], address: &PageAddress) -> Result<()> {
        verify_pages(bytes, &self.identity(address)).map_err(|why| {
            let what = format!("{why} ({:?} page of keyspace {})", address.kind, address.keyspace);
            Error::corruption(DATA_FILE, address.page * PAGE_BYTES, what)
        })
    }

    /// Fills `buffer` from consecutive pages, bypassing the cache and *unverified*: the caller verifies each
    /// block.
    pub fn read_stream(&self, first_page: u64, buffer: &mut [u8]) -> Result<()> {
        self.count_stream_reads(1, u64_of(buffer.len()));
        self.file.read_at(first_page * PAGE_BYTES, buffer).map_err(|e| self.read_error(first_page, e))
    }

    /// Leases memory for a read-ahead; `None` if the limit is reached.
    pub fn lease_stream(&self, bytes: u64) -> Option<StreamLease> {
        self.streams.lease(bytes)
    }

    /// Starts an asynchronous [`DataFile::read_stream`] into all of `buffer`.
    pub fn start_stream(self: &Arc<Self>, first_page: u64, buffer: AlignedBuffer) -> StreamRead {
        self.count_stream_reads(1, u64_of(buffer.len()));
        let pending = self.file.start_read(first_page * PAGE_BYTES, buffer);
        StreamRead { data: Arc::clone(self), first_page, pending }
    }

    pub(crate) fn count_stream_reads(&self, reads: u64, bytes: u64) {
        self.io.stream_reads.fetch_add(reads, Relaxed);
        self.io.stream_read_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn finish_stream(
        &self,
        first_page: u64,
        buffer: &mut [u8],
        result: std::io::Result<()>,
    ) -> Result<()> {
        let result = match result {
            // Some file systems refuse direct I/O only at the read itself; `read_at` handles that.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
                self.file.read_at(first_page * PAGE_BYTES, buffer)
            }
            result => result,
        };
        result.map_err(|e| self.read_error(first_page, e))
    }

    /// Verifies a block that [`DataFile::read_stream`] has read.
    pub fn verify(&self, bytes: &[u8], address: &PageAddress) -> Result<()> {
        self.check(bytes, address)
    }

    /// Writes whole pages at `first_page`, bypassing the cache. Durable after [`DataFile::sync`].
    pub fn write_pages(&self, first_page: u64, bytes: &[u8]) -> Result<()> {
        debug_assert!(page_count_of(bytes) > 0);
        self.io.written_bytes.fetch_add(u64_of(bytes.len()), Relaxed);
        outcome(self.file.write_at(first_page * PAGE_BYTES, bytes))
    }

    /// As [`DataFile::write_pages`], for pages that nothing refers to before the next [`DataFile::sync`]:
    /// until then they may be only in the memory of the process.
    pub fn write_pages_soon(&self, first_page: u64, bytes: &[u8]) -> Result<()> {
        debug_assert!(page_count_of(bytes) > 0);
        self.io.written_bytes.fetch_add(u64_of(bytes.len()), Relaxed);
        outcome(self.file.write_soon(first_page * PAGE_BYTES, bytes))
    }

    /// Drops a page from the cache that is about to be overwritten while its extent stays allocated.
    /// REQUIRES: no reader uses it any more.
    pub fn forget_page(&self, page: u64) {
        self.cache.forget(page);
    }

    pub(crate) fn file(&self) -> &dyn File {
        &*self.file
    }

    /// The underlying file, for readers of possibly damaged pages.
    pub fn shared_file(&self) -> Arc<dyn File> {
        Arc::clone(&self.file) as _
    }

    /// Starts an asynchronous [`DataFile::write_pages`] of the first `length` bytes of `buffer`.
    pub fn start_write(self: &Arc<Self>, first_page: u64, buffer: AlignedBuffer, length: usize) -> PageWrite {
        self.io.written_bytes.fetch_add(u64_of(length), Relaxed);
        let pending = self.file.start_write(first_page * PAGE_BYTES, buffer, length);
        PageWrite { data: Arc::clone(self), first_page, length, pending }
    }

    /// Makes all written pages durable. Every failure except `OutOfSpace` is permanent: the OS reports a
    /// failed write-back only once, and then treats the lost pages as clean.
    pub fn sync(&self) -> Result<()> {
        let mut failure = self.sync_failure.lock();
        if let Some(failure) = failure.as_ref().filter(|_| !planted!("failed-data-sync-forgotten")) {
            return Err(failure.clone());
        }
        self.io.syncs.fetch_add(1, Relaxed);
        let synced = self.file.sync().map_err(|e| Error::io(DATA_FILE, e));
        if let Err(error) = &synced
            && error.kind() != ErrorKind::OutOfSpace
        {
            *failure = Some(error.clone());
        }
        synced
    }

    /// Allocates `page_count` pages, growing the file if needed.
    ///
    /// Errors: `OutOfSpace`, `Io`; `Unsupported` if the file is open for reading only.
    pub fn allocate(&self, page_count: u32) -> Result<Vec<Arc<Extent>>> {
        if self.writer.is_none() {
            return Err(Error::new(ErrorKind::Unsupported, "the store is open for reading only"));
        }
        loop {
            if let Some(extents) = self.extents.take(page_count) {
                return Ok(extents);
            }
            let _growing = self.growing.lock();
            if let Some(extents) = self.extents.take(page_count) {
                return Ok(extents);
            }
            let file_bytes = self.extents.file_bytes();
            let step = (file_bytes / GROWTH_PARTS)
                .clamp(GROWTH_BYTES_MIN, GROWTH_BYTES_MAX)
                .max(u64::from(page_count) * PAGE_BYTES);
            let mut grown = self.grow(step.div_ceil(PAGE_BYTES));
            if grown.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace) {
                grown = self.grow(self.extents.lacking(page_count));
            }
            grown?;
        }
    }

    /// Allocates device space for at most `pages` pages, in a hole or at the end of the file. REQUIRES:
    /// `growing` is held.
    fn grow(&self, pages: u64) -> Result<()> {
        debug_assert!(is_held(&self.growing), "`growing` must be held");
        if self.growth.load(Relaxed) < pages * PAGE_BYTES && !planted!("full-disk-swallowed") {
            return Err(Error::new(
                ErrorKind::OutOfSpace,
                format!("{DATA_FILE}: no space is left on the device"),
            ));
        }
        let hole = self.extents.take_hole(pages);
        let (start, pages) = hole.unwrap_or((self.extents.file_bytes() / PAGE_BYTES, pages));
        let grown = self.file.allocate(start * PAGE_BYTES, pages * PAGE_BYTES);
        let has_space = grown.is_ok() || planted!("full-disk-swallowed");
        match hole {
            Some(hole) => self.extents.end_hole(hole, has_space),
            None if has_space => self.extents.grow(pages),
            None => {}
        }
        if has_space {
            // A bound that was set meanwhile may not include this allocation.
            let rest = |growth: u64| Some(growth.saturating_sub(pages * PAGE_BYTES));
            let is_bound = |growth: u64| (growth < u64::MAX).then(|| rest(growth)).flatten();
            let _ = self.growth.fetch_update(Relaxed, Relaxed, is_bound);
        }
        if has_space { Ok(()) } else { grown.map_err(|e| Error::io(DATA_FILE, e).context("cannot grow")) }
    }

    /// Reserves the last `kept_bytes` of free space, and lets the file grow by at most `growth_bytes`.
    pub fn set_bounds(&self, kept_bytes: u64, growth_bytes: u64) {
        self.extents.keep(kept_bytes.div_ceil(PAGE_BYTES));
        self.growth.store(growth_bytes, Relaxed);
    }

    /// Bytes by which the file may still grow; `u64::MAX` if they are not bounded.
    pub fn growth_bytes(&self) -> u64 {
        self.growth.load(Relaxed)
    }

    /// Lowers the reserve to `rest_bytes` and allows spans of any size, until the next
    /// [`DataFile::set_bounds`].
    pub fn lower_kept_bytes(&self, rest_bytes: u64) {
        self.extents.lower_kept_pages(rest_bytes.div_ceil(PAGE_BYTES));
    }

    /// Free space with device space allocated, in bytes.
    pub fn usable_bytes(&self) -> u64 {
        self.extents.usable_pages() * PAGE_BYTES
    }

    /// Approximate bytes of the file with device space allocated.
    pub fn space_bytes(&self) -> u64 {
        self.extents.space_pages() * PAGE_BYTES
    }

    /// Allocates device space until `usable_bytes` are free; `false` if the device is full.
    pub fn take_space(&self, usable_bytes: u64) -> Result<bool> {
        let _growing = self.growing.lock();
        loop {
            let missing = usable_bytes.div_ceil(PAGE_BYTES).saturating_sub(self.extents.usable_pages());
            if missing == 0 {
                return Ok(true);
            }
            match self.grow(missing.min(SPACE_CHUNK_PAGES)) {
                Err(error) if error.kind() == ErrorKind::OutOfSpace => return Ok(false),
                outcome => outcome?,
            }
        }
    }

    /// Ensures after a restart that free pages have device space; pages that get none become holes.
    pub fn find_holes(&self) -> Result<()> {
        let _growing = self.growing.lock();
        let mut outcome = Ok(());
        for (start, pages) in self.extents.suspect(SPACE_CHUNK_PAGES) {
            let taken = self.file.allocate(start * PAGE_BYTES, pages * PAGE_BYTES);
            self.extents.end_hole((start, pages), taken.is_ok());
            let error = taken.map_err(|error| Error::io(DATA_FILE, error));
            if error.as_ref().is_err_and(|error| error.kind() != ErrorKind::OutOfSpace) {
                outcome = error;
            }
        }
        outcome
    }

    /// Returns the bytes that the file occupies on the device.
    pub fn allocated_bytes(&self) -> Result<u64> {
        self.file.allocated_bytes().map_err(|e| Error::io(DATA_FILE, e))
    }

    /// Returns the I/O counters.
    pub fn io_stats(&self) -> IoStats {
        IoStats {
            page_reads: self.io.page_reads.load(Relaxed),
            page_read_bytes: self.io.page_read_bytes.load(Relaxed),
            read_rounds: self.io.read_rounds.load(Relaxed),
            stream_reads: self.io.stream_reads.load(Relaxed),
            stream_read_bytes: self.io.stream_read_bytes.load(Relaxed),
            written_bytes: self.io.written_bytes.load(Relaxed),
            syncs: self.io.syncs.load(Relaxed),
        }
    }

    /// Sets how many bytes of pages the cache may hold; see [`PageCache::set_capacity`].
    pub fn set_cache_bytes(&self, capacity_bytes: u64) {
        self.cache.set_capacity(capacity_bytes);
    }

    /// Adds the memory of an opened run, in bytes.
    pub fn add_run_memory(&self, bytes: u64) {
        self.run_memory_bytes.fetch_add(bytes, Relaxed);
    }

    /// Subtracts the memory of a dropped run.
    pub fn subtract_run_memory(&self, bytes: u64) {
        let before = self.run_memory_bytes.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "run memory underflows");
    }

    /// Bytes of memory of open runs, without their pages.
    pub fn run_memory_bytes(&self) -> u64 {
        self.run_memory_bytes.load(Relaxed)
    }

    /// Whether small runs written from now on have index and filter in separate pages.
    pub fn small_runs_apart(&self) -> &AtomicBool {
        &self.small_runs_apart
    }

    /// Lets the page cache borrow unused memory of this pool.
    pub fn borrow_cache_from(&self, pool: &Arc<ChunkPool>) {
        self.cache.borrow_from(pool);
    }

    /// Returns hits and misses of the page cache.
    pub fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Returns space by use.
    pub fn space_stats(&self) -> SpaceStats {
        self.extents.stats()
    }

    /// Offset of a span in the file, in bytes.
    pub fn offset_of(span: ExtentSpan) -> u64 {
        span_offset(span)
    }
}

/// Pages that every query needs are kept longer than pages that one query needed.
fn priority(kind: PageKind) -> Priority {
    match kind {
        PageKind::Data | PageKind::Replaced => Priority::Data,
        PageKind::Index | PageKind::Filter | PageKind::Footer | PageKind::Map => Priority::Structure,
    }
}

#[cfg(test)]
mod tests;
