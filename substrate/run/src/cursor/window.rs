//! Pages of a run that were read together, or are on their way, and where each is in what was read.
//!
//! Data pages follow each other in the data file, so most of the time a window is one piece of it. Of a run
//! with replaced pages (decision 0049) some lie elsewhere, and some have overflow pages: a [`PagePlan`] says
//! what to read for a stretch of such a run, all of it in one round.
//!
//! **Invariants**
//! - The bytes are as they came from the device: whoever takes a block out verifies it.
//! - What a window says that it holds it has the present bytes of, never those of a place that was left.

use testudo_base::{
    PAGE_SIZE, Result,
    num::{low32, u32_of, u64_of, usize_of},
};
use testudo_env::AlignedBuffer;
use testudo_storage::{StreamLease, StreamRead};

use crate::{Run, format::footer::BlockPosition, spans::locate};

/// Pages that nobody wants are read along if they are no more than so many between two that are wanted.
const GAP_PAGES: u64 = 2;

/// What is read for a stretch of a run that has replaced pages in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PagePlan {
    /// Pieces of the data file: first page, and how many.
    pieces: Vec<(u64, u32)>,
    /// The pages that are wanted, ascending, and which page of all that is read each is.
    pages: Vec<(u32, u32)>,
}

impl PagePlan {
    /// For page `first`, which may be an overflow page, and the data pages behind it, so many in all, with
    /// their overflow pages. `None` if they are all beside each other and have none.
    pub(crate) fn of(run: &Run, first: u32, count: u32) -> Option<Self> {
        let reference = run.reference();
        let replaced = reference.replaced.as_ref()?;
        let (mut wanted, next) = match reference.owner_of(first) {
            Some(owner) => (vec![first], owner + 1),
            None => (Vec::new(), first),
        };
        let end = next.saturating_add(count - u32_of(wanted.len())).min(reference.data_pages);
        let is_plain = replaced.next_from(next).is_none_or(|replaced| replaced >= end);
        if is_plain && wanted.is_empty() {
            return None;
        }
        for page in next..end {
            wanted.push(page);
            wanted.extend(reference.overflow_of(page).map(|(overflow, _)| overflow));
        }
        let place = |page: u32| locate(run.spans(), reference.place_of(page).at).map(|(at, _)| (at, page));
        let mut places: Vec<(u64, u32)> = wanted.into_iter().map(place).collect::<Option<_>>()?;
        places.sort_unstable();
        let (mut pieces, mut pages) = (Vec::<(u64, u32)>::new(), Vec::with_capacity(places.len()));
        // Pages of all pieces but the last.
        let mut before = 0;
        for (at, page) in places {
            match pieces.last_mut() {
                Some((start, length)) if at - (*start + u64::from(*length)) <= GAP_PAGES => {
                    *length = low32(at - *start) + 1;
                }
                last => {
                    before += last.map_or(0, |(_, length)| *length);
                    pieces.push((at, 1));
                }
            }
            let (start, _) = pieces[pieces.len() - 1];
            pages.push((page, before + low32(at - start)));
        }
        pages.sort_unstable();
        Some(Self { pieces, pages })
    }

    /// Pieces of the data file: first page, and how many.
    pub(crate) fn pieces(&self) -> &[(u64, u32)] {
        &self.pieces
    }

    /// How many pages are read.
    pub(crate) fn total(&self) -> u32 {
        self.pieces.iter().map(|(_, length)| length).sum()
    }

    /// Which page of all that is read a page is.
    pub(crate) fn find(&self, page: u32) -> Option<u32> {
        let at = self.pages.binary_search_by_key(&page, |(page, _)| *page).ok()?;
        Some(self.pages[at].1)
    }

    /// The same for a block, whose pages lie beside each other.
    fn find_block(&self, position: BlockPosition) -> Option<u32> {
        let first = self.find(position.page)?;
        let is_there = |number: u32| self.find(position.page + number) == Some(first + number);
        (1..position.pages).all(is_there).then_some(first)
    }

    /// Reads all of it, and waits.
    fn read(&self, run: &Run, bytes: &mut AlignedBuffer) -> Result<()> {
        bytes.resize_unfilled(page_bytes(self.total()));
        let mut rest: &mut [u8] = bytes;
        let mut reads = Vec::with_capacity(self.pieces.len());
        for (at, length) in &self.pieces {
            let (piece, behind) = rest.split_at_mut(page_bytes(*length));
            reads.push((*at, piece));
            rest = behind;
        }
        run.data().read_many(&mut reads).into_iter().collect()
    }
}

/// Data pages that are to be read together.
#[derive(Debug)]
pub(crate) struct Stretch {
    first_page: u32,
    /// How many there are, without overflow pages.
    pub(crate) pages: u32,
    /// Where they are, if not one behind the other.
    pub(crate) plan: Option<PagePlan>,
}

impl Stretch {
    /// So many data pages from `first_page` on.
    pub(crate) fn of(run: &Run, first_page: u32, pages: u32) -> Self {
        Self { first_page, pages, plan: PagePlan::of(run, first_page, pages) }
    }

    /// The pages of one block alone. REQUIRES: it was not replaced.
    pub(crate) fn block(position: BlockPosition) -> Self {
        Self { first_page: position.page, pages: position.pages, plan: None }
    }

    /// Whether pages of a block would not come one behind the other: it lies in two extents.
    pub(crate) fn divides(&self, position: BlockPosition) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.find_block(position).is_none())
    }

    /// How many pages are read for them.
    pub(crate) fn total(&self) -> u32 {
        self.plan.as_ref().map_or(self.pages, PagePlan::total)
    }
}

/// Pages of a run in memory.
#[derive(Debug)]
pub(crate) struct Window {
    /// It has this data page and those behind it, so many.
    pub(crate) first_page: u32,
    pub(crate) pages: u32,
    bytes: AlignedBuffer,
    /// Where they are, if not one behind the other.
    plan: Option<PagePlan>,
    /// For bytes that were read ahead of use.
    _lease: Option<StreamLease>,
}

impl Window {
    /// Pages that lie one behind the other in `bytes`.
    pub(crate) fn beside(first_page: u32, bytes: AlignedBuffer, lease: Option<StreamLease>) -> Self {
        let pages = u32_of(bytes.len() / PAGE_SIZE);
        Self { first_page, pages, bytes, plan: None, _lease: lease }
    }

    /// A copy of what was read for others as well: whole pages from `first_page` on.
    pub(crate) fn copy_of(first_page: u32, read: &[u8], lease: Option<StreamLease>) -> Self {
        Self::beside(first_page, copied(read), lease)
    }

    /// A copy of what was read by a plan.
    pub(crate) fn copy_by_plan(plan: PagePlan, run: &Run, read: &[u8], lease: Option<StreamLease>) -> Self {
        Self::planned(plan, run, copied(read), lease)
    }

    fn planned(plan: PagePlan, run: &Run, bytes: AlignedBuffer, lease: Option<StreamLease>) -> Self {
        let data_pages = run.reference().data_pages;
        let ends = plan.pages.partition_point(|(page, _)| *page < data_pages);
        let first_page = plan.pages.first().map_or(0, |(page, _)| *page);
        Self { first_page, pages: u32_of(ends), bytes, plan: Some(plan), _lease: lease }
    }

    /// Reads pages and waits for them, into `buffer` if there is one.
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

    /// The block and what `parts` have behind it, which are pages of the run one behind the other, the first
    /// pages of the block among them. The rest of the block is read.
    pub(crate) fn joined(run: &Run, position: BlockPosition, parts: Vec<Self>) -> Result<Self> {
        let held = parts.iter().map(Self::end_page).max().unwrap_or(position.page);
        let end = held.max(position.page + position.pages);
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

    /// The page behind those that it has.
    pub(crate) fn end_page(&self) -> u32 {
        self.first_page + self.pages
    }

    /// Whether it has the first pages of a block.
    pub(crate) fn begins(&self, position: BlockPosition) -> bool {
        self.plan.is_none() && (self.first_page..self.end_page()).contains(&position.page)
    }

    pub(crate) fn holds(&self, position: BlockPosition) -> bool {
        match &self.plan {
            None => holds(self.first_page, self.pages, position),
            Some(plan) => plan.find_block(position).is_some(),
        }
    }

    /// The bytes of a block. REQUIRES: the window holds it.
    pub(crate) fn block(&self, position: BlockPosition) -> &[u8] {
        debug_assert!(self.holds(position), "the window holds the block");
        let at = match &self.plan {
            None => position.page - self.first_page,
            Some(plan) => plan.find(position.page).unwrap_or_default(),
        };
        let start = page_bytes(at);
        &self.bytes[start..start + page_bytes(position.pages)]
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Its memory, to be used again.
    pub(crate) fn into_bytes(self) -> AlignedBuffer {
        self.bytes
    }
}

/// Pages that follow a window and are on their way.
#[derive(Debug)]
pub(crate) struct Ahead {
    first_page: u32,
    pages: u32,
    reads: Vec<StreamRead>,
    plan: Option<PagePlan>,
    lease: StreamLease,
}

impl Ahead {
    /// Lets data pages come, if there is memory for them: `pages` of them from `first_page` on at most.
    pub(crate) fn start(
        run: &Run,
        first_page: u32,
        pages: u32,
        spare: &mut Option<AlignedBuffer>,
    ) -> Option<Self> {
        let pages = pages.min(run.reference().data_pages.saturating_sub(first_page));
        if pages == 0 {
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
            // What comes in several pieces is put together in another buffer.
            let copies = if plan.pieces.len() > 1 { 2 } else { 1 };
            let lease = data.lease_stream(u64_of(page_bytes(plan.total())) * copies)?;
            let reads = plan.pieces.iter().map(|(at, length)| start(*at, *length)).collect();
            return Some(Self { first_page, pages, reads, plan: Some(plan), lease });
        }
        let (at, room) = locate(run.spans(), first_page)?;
        let pages = pages.min(room);
        let lease = data.lease_stream(u64_of(page_bytes(pages)))?;
        Some(Self { first_page, pages, reads: vec![start(at, pages)], plan: None, lease })
    }

    /// Whether a page is among those that come one behind the other.
    pub(crate) fn has_in_line(&self, page: u32) -> bool {
        self.plan.is_none() && (self.first_page..self.first_page + self.pages).contains(&page)
    }

    pub(crate) fn holds(&self, position: BlockPosition) -> bool {
        match &self.plan {
            None => holds(self.first_page, self.pages, position),
            Some(plan) => plan.find_block(position).is_some(),
        }
    }

    /// Bytes of memory that what comes takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        page_bytes(self.plan.as_ref().map_or(self.pages, PagePlan::total))
    }

    /// Waits for the pages.
    pub(crate) fn arrive(mut self, run: &Run) -> Result<Window> {
        let bytes = match self.reads.pop() {
            Some(read) if self.reads.is_empty() => read.wait()?,
            last => {
                let pieces = self.reads.into_iter().chain(last).map(StreamRead::wait);
                let pieces: Vec<AlignedBuffer> = pieces.collect::<Result<_>>()?;
                let mut bytes = AlignedBuffer::unfilled(pieces.iter().map(|piece| piece.len()).sum());
                let mut rest: &mut [u8] = &mut bytes;
                for piece in &pieces {
                    let (part, behind) = rest.split_at_mut(piece.len());
                    part.copy_from_slice(piece);
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
