//! Pages of a run that were or are being read together, and their positions in the buffer.
//!
//! Data pages are usually contiguous in the data file, so that a window is one chunk of it. In a run with
//! replaced pages (decision 0049) some are elsewhere, and some have overflow pages: a [`PagePlan`] lists the
//! reads for a stretch of such a run, which are issued in one batch.
//!
//! **Invariants**
//! - The bytes are unverified: the reader of a block verifies it.
//! - A window holds the current bytes of its pages, never those of a replaced place.

use std::ops::Range;

use testudo_base::{
    PAGE_SIZE, Result,
    num::{low32, u32_of, u64_of, usize_of},
};
use testudo_env::AlignedBuffer;
use testudo_storage::{StreamLease, StreamRead};

use crate::{Run, format::footer::BlockPosition, spans::locate};

/// Up to this many unwanted pages between two wanted ones are read along: that takes a device less time than
/// another read.
const GAP_PAGES: u64 = 4;

/// Reads for a stretch of a run that has replaced pages in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PagePlan {
    /// Chunks of the data file: first page and count.
    chunks: Vec<(u64, u32)>,
    /// Wanted pages, ascending, each with its index among all pages read.
    pages: Vec<(u32, u32)>,
    /// Whether some overflow pages of the last data page are not wanted.
    is_cut: bool,
}

impl PagePlan {
    /// Plans the read of page `first`, which may be an overflow page, and the data and overflow pages after
    /// it, about `count` in total, up to the end of a slot group: the last data page is read with all of its
    /// overflow pages, unless these are more than `count`. `None` if they are contiguous data pages without
    /// overflow pages.
    pub(crate) fn of(run: &Run, first: u32, count: u32) -> Option<Self> {
        let reference = run.reference();
        let replaced = reference.replaced.as_ref()?;
        let owner = reference.owner_of(first);
        let mut next = owner.map_or(first, |owner| owner + 1);
        let end = next.saturating_add(reference.stretch_with(next, count)).min(reference.data_pages);
        let is_plain = replaced.next_from(next).is_none_or(|replaced| replaced >= end)
            && replaced.overflow_from(next) == replaced.overflow_from(end);
        if is_plain && owner.is_none() {
            return None;
        }
        // Spare pages count, and pages of a group are in its places.
        let most = usize_of(u64::from(count.max(1)));
        let (mut wanted, mut is_cut) = (Vec::with_capacity(most), false);
        let mut want = |wanted: &mut Vec<u32>, pages: Range<u32>| {
            let length = pages.len();
            is_cut = length > most;
            wanted.extend(pages.take(if is_cut { most.saturating_sub(wanted.len()) } else { length }));
        };
        if let Some(owner) = owner {
            want(&mut wanted, first..reference.overflow_of(owner).end);
        }
        while next < reference.data_pages && (wanted.len() < most || !reference.begins_group(next)) {
            if reference.is_spare(next) {
                next += 1;
                continue;
            }
            wanted.push(next);
            want(&mut wanted, reference.overflow_of(next));
            next += 1;
        }
        let place = |page: u32| locate(run.spans(), reference.place_of(page).at).map(|(at, _)| (at, page));
        let mut places: Vec<(u64, u32)> = wanted.into_iter().map(place).collect::<Option<_>>()?;
        places.sort_unstable();
        let (mut chunks, mut pages) = (Vec::<(u64, u32)>::new(), Vec::with_capacity(places.len()));
        // Number of pages of all chunks but the last.
        let mut before = 0;
        for (at, page) in places {
            match chunks.last_mut() {
                Some((start, length)) if at - (*start + u64::from(*length)) <= GAP_PAGES => {
                    *length = low32(at - *start) + 1;
                }
                last => {
                    before += last.map_or(0, |(_, length)| *length);
                    chunks.push((at, 1));
                }
            }
            let (start, _) = chunks[chunks.len() - 1];
            pages.push((page, before + low32(at - start)));
        }
        pages.sort_unstable();
        debug_assert!(
            chunks.is_sorted_by(|a, b| a.0 + u64::from(a.1) <= b.0),
            "the chunks are disjoint, in device order"
        );
        Some(Self { chunks, pages, is_cut })
    }

    /// Chunks of the data file: first page and count.
    pub(crate) fn chunks(&self) -> &[(u64, u32)] {
        &self.chunks
    }

    /// Number of reads beyond the first.
    pub(crate) fn further_reads(&self) -> usize {
        self.chunks.len().saturating_sub(1)
    }

    /// Total number of pages to read.
    pub(crate) fn total(&self) -> u32 {
        self.chunks.iter().map(|(_, length)| length).sum()
    }

    /// Index of a page among all pages read.
    pub(crate) fn find(&self, page: u32) -> Option<u32> {
        let at = self.pages.binary_search_by_key(&page, |(page, _)| *page).ok()?;
        Some(self.pages[at].1)
    }

    /// Index of a block, if its pages are contiguous.
    fn find_block(&self, position: BlockPosition) -> Option<u32> {
        let first = self.find(position.page)?;
        let is_there = |number: u32| self.find(position.page + number) == Some(first + number);
        (1..position.pages).all(is_there).then_some(first)
    }

    /// Reads all chunks and waits.
    fn read(&self, run: &Run, bytes: &mut AlignedBuffer) -> Result<()> {
        bytes.resize_unfilled(page_bytes(self.total()));
        let mut rest: &mut [u8] = bytes;
        let mut reads = Vec::with_capacity(self.chunks.len());
        for (at, length) in &self.chunks {
            let (chunk, behind) = rest.split_at_mut(page_bytes(*length));
            reads.push((*at, chunk));
            rest = behind;
        }
        debug_assert!(rest.is_empty(), "the pieces fill the buffer");
        run.data().read_many(&mut reads).into_iter().collect()
    }
}

/// Data pages to be read together.
#[derive(Debug)]
pub(crate) struct Stretch {
    first_page: u32,
    /// Number of pages; approximate if there is a plan.
    pub(crate) pages: u32,
    /// Reads for them, if they are not contiguous.
    pub(crate) plan: Option<PagePlan>,
}

impl Stretch {
    /// About `pages` data and overflow pages from `first_page` on.
    pub(crate) fn of(run: &Run, first_page: u32, pages: u32) -> Self {
        let plan = PagePlan::of(run, first_page, pages);
        let reference = run.reference();
        let pages = match &plan {
            None => {
                reference.stretch_with(first_page, pages).min(reference.data_pages.saturating_sub(first_page))
            }
            Some(_) => pages,
        };
        Self { first_page, pages, plan }
    }

    /// The pages of a single block. REQUIRES: it was not replaced.
    pub(crate) fn block(position: BlockPosition) -> Self {
        Self { first_page: position.page, pages: position.pages, plan: None }
    }

    /// Whether the pages of a block would not be contiguous in the buffer: it spans two extents.
    pub(crate) fn divides(&self, position: BlockPosition) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.find_block(position).is_none())
    }

    /// Total number of pages to read.
    pub(crate) fn total(&self) -> u32 {
        self.plan.as_ref().map_or(self.pages, PagePlan::total)
    }
}

/// Pages of a run in memory.
#[derive(Debug)]
pub(crate) struct Window {
    /// First of its `pages` consecutive data pages.
    pub(crate) first_page: u32,
    pub(crate) pages: u32,
    bytes: AlignedBuffer,
    /// Layout of the bytes, if they are not contiguous.
    plan: Option<PagePlan>,
    /// Lease of read-ahead memory.
    _lease: Option<StreamLease>,
}

impl Window {
    /// Creates a window of contiguous pages.
    pub(crate) fn beside(first_page: u32, bytes: AlignedBuffer, lease: Option<StreamLease>) -> Self {
        debug_assert!(bytes.len().is_multiple_of(PAGE_SIZE), "a window has whole pages");
        let pages = u32_of(bytes.len() / PAGE_SIZE);
        Self { first_page, pages, bytes, plan: None, _lease: lease }
    }

    /// Copies contiguous pages from `first_page` on out of a shared buffer.
    pub(crate) fn copy_of(first_page: u32, read: &[u8], lease: Option<StreamLease>) -> Self {
        Self::beside(first_page, copied(read), lease)
    }

    /// Copies pages that were read by a plan out of a shared buffer.
    pub(crate) fn copy_by_plan(plan: PagePlan, run: &Run, read: &[u8], lease: Option<StreamLease>) -> Self {
        Self::planned(plan, run, copied(read), lease)
    }

    fn planned(plan: PagePlan, run: &Run, bytes: AlignedBuffer, lease: Option<StreamLease>) -> Self {
        let data_pages = run.reference().data_pages;
        let of_data = &plan.pages[..plan.pages.partition_point(|(page, _)| *page < data_pages)];
        let first_page = plan.pages.first().map_or(0, |(page, _)| *page);
        let pages = of_data.last().map_or(0, |(last, _)| *last + 1 - first_page);
        Self { first_page, pages, bytes, plan: Some(plan), _lease: lease }
    }

    /// Reads pages and waits for them, reusing `buffer` if given.
    pub(crate) fn read(
        run: &Run,
        stretch: Stretch,
        buffer: Option<AlignedBuffer>,
        lease: Option<StreamLease>,
    ) -> Result<Self> {
        let mut bytes = buffer.unwrap_or_else(|| AlignedBuffer::zeroed(0));
        let Stretch { first_page, pages, plan } = stretch;
        if let Some(plan) = plan {
            plan.read(run, &mut bytes)?;
            return Ok(Self::planned(plan, run, bytes, lease));
        }
        bytes.resize_unfilled(page_bytes(pages));
        run.read_pages(first_page, &mut bytes)?;
        Ok(Self::beside(first_page, bytes, lease))
    }

    /// Joins `parts`, contiguous pages of the run that include the first pages of the block, and reads the
    /// rest of the block.
    pub(crate) fn joined(run: &Run, position: BlockPosition, parts: Vec<Self>) -> Result<Self> {
        let held = parts.iter().map(Self::end_page).max().unwrap_or(position.page);
        let end = held.max(position.page + position.pages);
        debug_assert!(parts.iter().all(|part| part.plan.is_none()), "parts are in page order");
        let mut bytes = AlignedBuffer::unfilled(page_bytes(end - position.page));
        let mut lease = None;
        for part in parts {
            let first = part.first_page.max(position.page);
            let held = &part.bytes[page_bytes(first - part.first_page)..page_bytes(part.pages)];
            bytes[page_bytes(first - position.page)..][..held.len()].copy_from_slice(held);
            lease = part._lease;
        }
        run.read_pages(held, &mut bytes[page_bytes(held - position.page)..])?;
        Ok(Self::beside(position.page, bytes, lease))
    }

    /// Number of reads beyond the first that it took.
    pub(crate) fn further_reads(&self) -> usize {
        self.plan.as_ref().map_or(0, PagePlan::further_reads)
    }

    /// Exclusive end of its data pages.
    pub(crate) fn end_page(&self) -> u32 {
        self.first_page + self.pages
    }

    /// Whether it lacks overflow pages of its last data page.
    pub(crate) fn is_cut(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.is_cut)
    }

    /// Whether it holds the first pages of a block.
    pub(crate) fn begins(&self, position: BlockPosition) -> bool {
        self.plan.is_none() && (self.first_page..self.end_page()).contains(&position.page)
    }

    pub(crate) fn holds(&self, position: BlockPosition) -> bool {
        match &self.plan {
            None => holds(self.first_page, self.pages, position),
            Some(plan) => plan.find_block(position).is_some(),
        }
    }

    /// Returns the bytes of a block. REQUIRES: the window holds it.
    pub(crate) fn block(&self, position: BlockPosition) -> &[u8] {
        debug_assert!(self.holds(position), "the window must hold the block");
        let at = match &self.plan {
            None => position.page - self.first_page,
            Some(plan) => plan.find(position.page).unwrap_or_default(),
        };
        let start = page_bytes(at);
        &self.bytes[start..start + page_bytes(position.pages)]
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns its buffer for reuse.
    pub(crate) fn into_bytes(self) -> AlignedBuffer {
        self.bytes
    }
}

/// Pages after a window that are being read.
#[derive(Debug)]
pub(crate) struct Ahead {
    first_page: u32,
    pages: u32,
    reads: Vec<StreamRead>,
    plan: Option<PagePlan>,
    lease: StreamLease,
}

impl Ahead {
    /// Starts reading about `pages` data and overflow pages from `first_page` on, if there is memory for
    /// them.
    pub(crate) fn start(
        run: &Run,
        first_page: u32,
        pages: u32,
        spare: &mut Option<AlignedBuffer>,
    ) -> Option<Self> {
        let data_pages = run.reference().data_pages.saturating_sub(first_page);
        if pages == 0 || data_pages == 0 {
            return None;
        }
        let data = run.data();
        let mut start = |at: u64, length: u32| {
            let bytes = page_bytes(length);
            let mut buffer = spare.take().unwrap_or_else(|| AlignedBuffer::unfilled(bytes));
            buffer.resize_unfilled(bytes);
            data.start_stream(at, buffer)
        };
        if let Some(plan) = PagePlan::of(run, first_page, pages) {
            // Several chunks are copied into one more buffer.
            let copies = if plan.chunks.len() > 1 { 2 } else { 1 };
            let lease = data.lease_stream(u64_of(page_bytes(plan.total())) * copies)?;
            let reads = plan.chunks.iter().map(|(at, length)| start(*at, *length)).collect();
            return Some(Self { first_page, pages, reads, plan: Some(plan), lease });
        }
        let (at, room) = locate(run.spans(), first_page)?;
        let pages = run.reference().stretch_with(first_page, pages).min(room).min(data_pages);
        let lease = data.lease_stream(u64_of(page_bytes(pages)))?;
        Some(Self { first_page, pages, reads: vec![start(at, pages)], plan: None, lease })
    }

    /// Whether a page is among these pages, and they are contiguous.
    pub(crate) fn has_in_line(&self, page: u32) -> bool {
        self.plan.is_none() && (self.first_page..self.first_page + self.pages).contains(&page)
    }

    pub(crate) fn holds(&self, position: BlockPosition) -> bool {
        match &self.plan {
            None => holds(self.first_page, self.pages, position),
            Some(plan) => plan.find_block(position).is_some(),
        }
    }

    /// Bytes of memory of the read.
    pub(crate) fn memory_bytes(&self) -> usize {
        page_bytes(self.plan.as_ref().map_or(self.pages, PagePlan::total))
    }

    /// Waits for the pages.
    pub(crate) fn arrive(mut self, run: &Run) -> Result<Window> {
        let bytes = match self.reads.pop() {
            Some(read) if self.reads.is_empty() => read.wait()?,
            last => {
                let chunks = self.reads.into_iter().chain(last).map(StreamRead::wait);
                let chunks: Vec<AlignedBuffer> = chunks.collect::<Result<_>>()?;
                let mut bytes = AlignedBuffer::unfilled(chunks.iter().map(|chunk| chunk.len()).sum());
                let mut rest: &mut [u8] = &mut bytes;
                for chunk in &chunks {
                    let (part, behind) = rest.split_at_mut(chunk.len());
                    part.copy_from_slice(chunk);
                    rest = behind;
                }
                bytes
            }
        };
        Ok(match self.plan {
            Some(plan) => Window::planned(plan, run, bytes, Some(self.lease)),
            None => Window::beside(self.first_page, bytes, Some(self.lease)),
        })
    }
}

fn copied(read: &[u8]) -> AlignedBuffer {
    let mut bytes = AlignedBuffer::unfilled(read.len());
    bytes.copy_from_slice(read);
    bytes
}

fn holds(first_page: u32, pages: u32, position: BlockPosition) -> bool {
    position.page >= first_page && position.page + position.pages <= first_page + pages
}

/// Bytes of this many pages.
pub(crate) fn page_bytes(pages: u32) -> usize {
    usize_of(u64::from(pages)) * PAGE_SIZE
}
