//! The table of extents: which pages of the data file are live, held or free.
//!
//! Two counts keep an extent from being reused: the references of the *durable* state, which change only when
//! a manifest edit is durable, and [`Extent`] handles in memory (of runs that readers may still use). One
//! mechanism serves copy-on-write, shared runs, snapshots and aborted work: the pages are freed when both
//! counts reach zero.
//! **Invariants**
//! - Live spans are disjoint; every page below the end of the file is either live or free, never both.
//! - Reference counts change only in [`Extents::apply_durable`].

use std::collections::BTreeMap;

use testudo_base::{
    ExtentSpan, PAGE_BYTES, planted,
    sync::{Arc, Mutex, Weak},
};

use crate::space::{
    free_space::{FreeSpace, Spans},
    free_space_target::FreeSpaceTarget,
    place_users::{PlaceSet, PlaceUsers},
};

/// A handle that holds a span of pages; the span is not reused while any clone of the `Arc` exists.
#[derive(Debug)]
pub struct Extent {
    span: ExtentSpan,
    owner: Weak<Extents>,
    /// Users of the run's places, if this is the first extent of the run.
    place_users: PlaceUsers,
}

impl Extent {
    fn new(span: ExtentSpan, owner: &Arc<Extents>) -> Self {
        Self { span, owner: Arc::downgrade(owner), place_users: PlaceUsers::default() }
    }

    /// The span of pages.
    pub fn span(&self) -> ExtentSpan {
        self.span
    }

    /// Registers a version without replaced pages of the run that starts here.
    pub fn add_plain_user(&self) {
        self.place_users.add_plain();
    }

    /// Unregisters such a version.
    pub fn remove_plain_user(&self) {
        self.place_users.remove_plain();
    }

    /// Calls `choose` with the places of the run that are used by versions with replaced pages, and whether a
    /// version without them exists. The places that it returns are in use until that `Arc` is dropped.
    pub fn use_places<R>(
        &self,
        choose: impl FnOnce(&PlaceSet, bool) -> (Arc<PlaceSet>, R),
    ) -> (Arc<PlaceSet>, R) {
        self.place_users.use_places(choose)
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.upgrade() {
            owner.drop_handle(self.span);
        }
    }
}

#[derive(Debug)]
struct Live {
    page_count: u32,
    durable_references: u32,
    handle: Weak<Extent>,
    held: bool,
    /// Pending shortening, see [`Extents::shorten_later`].
    shortened: Option<(u32, Weak<Extent>)>,
}

#[derive(Debug)]
struct Table {
    free: FreeSpace,
    /// Reserved free pages, which are not allocated.
    kept_pages: u64,
    /// Whether pages are allocated in spans of any size.
    takes_fragments: bool,
    target: FreeSpaceTarget,
    live: BTreeMap<u64, Live>,
}

impl Table {
    /// Number of pages in use.
    fn used_pages(&self) -> u64 {
        self.free.end_page() - self.free.hole_pages() - self.free.free_pages()
    }

    /// Number of free pages missing for an allocation of `page_count`.
    fn lacking(&self, page_count: u32) -> u64 {
        if self.kept_pages == 0 {
            return 0;
        }
        (self.kept_pages + u64::from(page_count)).saturating_sub(self.free.free_pages())
    }
}

type FreedHook = Box<dyn Fn(ExtentSpan) + Send + Sync>;

/// All extents of one data file.
pub struct Extents {
    table: Mutex<Table>,
    on_free: FreedHook,
}

impl std::fmt::Debug for Extents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Extents({:?})", self.stats())
    }
}

/// Space of the data file by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStats {
    /// Bytes of extents that the durable state references.
    pub live_bytes: u64,
    /// Bytes of extents that are only held in memory.
    pub held_bytes: u64,
    /// Bytes that can be reused at once. After a restart this includes space released to the file system
    /// before it.
    pub free_bytes: u64,
    /// Bytes released to the file system since the start; they are allocated again before reuse.
    pub hole_bytes: u64,
    /// Length of the managed part of the file.
    pub file_bytes: u64,
}

impl Extents {
    /// Creates the table after recovery. `live` lists each span of the durable state with its reference
    /// count. `on_free` is called for every span before it can be reused.
    pub fn new(
        file_pages: u64,
        live: impl Iterator<Item = (ExtentSpan, u32)>,
        on_free: impl Fn(ExtentSpan) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let live: BTreeMap<u64, Live> = live
            .map(|(span, references)| {
                let entry = Live {
                    page_count: span.page_count,
                    durable_references: references,
                    handle: Weak::new(),
                    held: false,
                    shortened: None,
                };
                (span.first_page, entry)
            })
            .collect();
        let spans = live.iter().map(|(&first_page, l)| ExtentSpan { first_page, page_count: l.page_count });
        let end = live.iter().next_back().map_or(0, |(&first, l)| first + u64::from(l.page_count));
        let free = FreeSpace::from_live(0, file_pages.max(end), spans);
        let used = free.end_page() - free.free_pages();
        Arc::new(Self {
            table: Mutex::new(Table {
                free,
                kept_pages: 0,
                takes_fragments: false,
                target: FreeSpaceTarget::new(used),
                live,
            }),
            on_free: Box::new(on_free),
        })
    }

    /// Allocates `page_count` pages in as few spans as possible; `None` if the file must grow first.
    pub fn take(self: &Arc<Self>, page_count: u32) -> Option<Vec<Arc<Extent>>> {
        let mut table = self.table.lock();
        let takes_fragments = table.takes_fragments;
        if table.lacking(page_count) > 0 {
            return None;
        }
        let free = &mut table.free;
        let spans = if takes_fragments { free.take_fragments(page_count) } else { free.take(page_count) }?;
        debug_assert_eq!(
            spans.iter().map(|span| span.page_count).sum::<u32>(),
            page_count,
            "as many pages as requested"
        );
        let used = table.used_pages();
        table.target.note_used(used);
        Some(spans.into_iter().map(|span| self.hold_new(&mut table, span)).collect())
    }

    fn hold_new(self: &Arc<Self>, table: &mut Table, span: ExtentSpan) -> Arc<Extent> {
        let extent = Arc::new(Extent::new(span, self));
        let entry = Live {
            page_count: span.page_count,
            durable_references: 0,
            handle: Arc::downgrade(&extent),
            held: true,
            shortened: None,
        };
        let before = table.live.range(..span.first_page).next_back();
        debug_assert!(
            before.is_none_or(|(&first, live)| first + u64::from(live.page_count) <= span.first_page),
            "live spans must be disjoint"
        );
        table.live.insert(span.first_page, entry);
        extent
    }

    /// Reserves the last `pages` free pages, which are then not allocated.
    pub(crate) fn keep(&self, pages: u64) {
        let mut table = self.table.lock();
        (table.kept_pages, table.takes_fragments) = (pages, false);
    }

    /// Reserves the last `pages` free pages, and allocates the others in spans of any size.
    pub(crate) fn lower_kept_pages(&self, pages: u64) {
        let mut table = self.table.lock();
        (table.kept_pages, table.takes_fragments) = (pages, true);
    }

    /// Number of pages of the file that are not holes.
    pub(crate) fn space_pages(&self) -> u64 {
        let table = self.table.lock();
        debug_assert!(table.free.hole_pages() <= table.free.end_page(), "holes are in the file");
        table.free.end_page() - table.free.hole_pages()
    }

    /// Number of reserved pages.
    pub(crate) fn kept_pages(&self) -> u64 {
        self.table.lock().kept_pages
    }

    /// Number of pages by which the file must grow to allocate `page_count`, including the reserve.
    pub(crate) fn lacking(&self, page_count: u32) -> u64 {
        self.table.lock().lacking(page_count).max(u64::from(page_count))
    }

    /// Number of free pages with device space.
    pub(crate) fn usable_pages(&self) -> u64 {
        self.table.lock().free.free_pages()
    }

    /// Removes all free pages, in spans of at most `pages`. The caller allocates device space for each and
    /// passes it to [`Extents::end_hole`].
    pub(crate) fn suspect(&self, pages: u64) -> Vec<(u64, u64)> {
        self.table.lock().free.suspect(pages)
    }

    /// Adds `pages` at the end of the managed file.
    pub fn grow(&self, pages: u64) {
        self.table.lock().free.grow(pages);
    }

    /// Returns a handle to a live span; all holders of a span share one handle. `None` if the span is not
    /// live.
    pub fn hold(self: &Arc<Self>, span: ExtentSpan) -> Option<Arc<Extent>> {
        let mut table = self.table.lock();
        let entry = table.live.get_mut(&span.first_page)?;
        if entry.page_count != span.page_count {
            return None;
        }
        if let Some(extent) = entry.handle.upgrade() {
            return Some(extent);
        }
        let extent = Arc::new(Extent::new(span, self));
        entry.handle = Arc::downgrade(&extent);
        entry.held = true;
        Some(extent)
    }

    /// Shortens a newly allocated, unreferenced extent to its first `page_count` pages (at least one).
    pub fn shorten(self: &Arc<Self>, extent: Arc<Extent>, page_count: u32) -> Arc<Extent> {
        let span = extent.span;
        if page_count >= span.page_count {
            return extent;
        }
        assert!(page_count > 0, "an extent needs at least one page");
        let mut table = self.table.lock();
        debug_assert!(
            table.live.get(&span.first_page).is_some_and(|live| live.durable_references == 0),
            "the extent must be unreferenced"
        );
        let kept = ExtentSpan { page_count, ..span };
        // The new handle replaces the old one, whose drop then finds a span of another length and does
        // nothing.
        let shortened = self.hold_new(&mut table, kept);
        let rest = u64::from(span.page_count - page_count);
        table.free.release(kept.end_page(), rest);
        drop(table);
        drop(extent);
        shortened
    }

    /// Returns a handle to the first `page_count` pages (at least one) of a live extent, for later. The edit
    /// that drops the references to the extent and adds references to these pages shortens it. The extent
    /// must be held until then.
    pub fn shorten_later(self: &Arc<Self>, extent: &Extent, page_count: u32) -> Arc<Extent> {
        let shortened = Arc::new(Extent::new(ExtentSpan { page_count, ..extent.span }, self));
        let mut table = self.table.lock();
        let entry = table.live.get_mut(&extent.span.first_page).expect("a held extent must be live");
        debug_assert!((1..entry.page_count).contains(&page_count), "a proper part of the pages must stay");
        entry.shortened = Some((page_count, Arc::downgrade(&shortened)));
        shortened
    }

    /// Applies a pending shortening to `span`, if there is one.
    fn shorten_now(table: &mut Table, span: ExtentSpan) {
        let Some(entry) = table.live.get_mut(&span.first_page) else { return };
        if entry.page_count == span.page_count || entry.durable_references > 0 {
            return;
        }
        if let Some((page_count, handle)) = entry.shortened.take_if(|(pages, _)| *pages == span.page_count) {
            debug_assert!(page_count > 0 && page_count < entry.page_count, "a proper part stays");
            let rest = u64::from(entry.page_count - page_count);
            entry.page_count = page_count;
            entry.held = handle.strong_count() > 0;
            entry.handle = handle;
            table.free.release(span.end_page(), rest);
        }
    }

    /// Applies the reference changes of an edit that just became durable.
    pub fn apply_durable(&self, deltas: impl Iterator<Item = (ExtentSpan, i32)>) {
        let mut table = self.table.lock();
        for (span, delta) in deltas {
            Self::shorten_now(&mut table, span);
            let entry = table.live.get_mut(&span.first_page).expect("delta for an unknown extent");
            assert_eq!(entry.page_count, span.page_count, "delta for a span of another length");
            entry.durable_references =
                entry.durable_references.checked_add_signed(delta).expect("reference count underflows");
            let mut is_held = entry.held;
            if planted!("extent-freed-while-held") {
                is_held = false;
            }
            if planted!("extent-freed-before-edit") {
                is_held = false;
            }
            if entry.durable_references == 0 && !is_held {
                self.free(&mut table, span);
            }
        }
    }

    /// Returns by how many pages the live part would shrink after all of these changes; other holders may
    /// remain.
    pub fn freed_pages(&self, deltas: impl Iterator<Item = (ExtentSpan, i32)>) -> i64 {
        let mut by_span: BTreeMap<ExtentSpan, i64> = BTreeMap::new();
        for (span, delta) in deltas {
            *by_span.entry(span).or_default() += i64::from(delta);
        }
        let table = self.table.lock();
        let freed = |(span, delta): (ExtentSpan, i64)| {
            // A span that will be shortened is still live in its old length.
            let live = table.live.get(&span.first_page).filter(|live| live.page_count == span.page_count);
            let before = live.map_or(0, |live| i64::from(live.durable_references));
            (i64::from(before > 0) - i64::from(before + delta > 0)) * i64::from(span.page_count)
        };
        by_span.into_iter().map(freed).sum()
    }

    fn drop_handle(&self, span: ExtentSpan) {
        let mut table = self.table.lock();
        let Some(entry) = table.live.get_mut(&span.first_page) else { return };
        // A new handle for the span may have been created between the last drop and this call.
        let has_new_handle = entry.handle.strong_count() > 0 && !planted!("new-handle-overlooked");
        if entry.page_count != span.page_count || has_new_handle {
            return;
        }
        entry.held = false;
        if entry.durable_references == 0 {
            self.free(&mut table, span);
        }
    }

    fn free(&self, table: &mut Table, span: ExtentSpan) {
        (self.on_free)(span);
        let freed = table.live.remove(&span.first_page);
        debug_assert!(
            freed.is_some_and(|live| live.page_count == span.page_count && live.durable_references == 0),
            "a freed extent must be unreferenced"
        );
        table.free.release(span.first_page, u64::from(span.page_count));
    }

    /// Releases free pages until `kept_pages` are left: the end of the file, and `spans`. `act` gets the new
    /// end and the spans and releases them to the file system, last first. It runs under the lock, so that
    /// no thread allocates them meanwhile; spans that it leaves in the list are free again.
    pub(crate) fn give_up<R>(
        &self,
        kept_pages: u64,
        spans: Spans,
        act: impl FnOnce(u64, &mut Vec<(u64, u64)>) -> R,
    ) -> R {
        let mut table = self.table.lock();
        let mut spans = table.free.give_up(kept_pages, spans);
        let outcome = act(table.free.end_page(), &mut spans);
        spans.into_iter().for_each(|span| table.free.restore(span));
        outcome
    }

    /// Removes at most `pages` pages of a hole. The caller allocates device space for them and passes them to
    /// [`Extents::end_hole`].
    pub(crate) fn take_hole(&self, pages: u64) -> Option<(u64, u64)> {
        self.table.lock().free.take_hole(pages)
    }

    /// Frees the pages of a removed hole if they have device space; otherwise they are a hole again.
    pub(crate) fn end_hole(&self, (start, pages): (u64, u64), has_space: bool) {
        let mut table = self.table.lock();
        if has_space { table.free.release(start, pages) } else { table.free.put_hole((start, pages)) }
    }

    /// Records the end of a round. Returns how many free pages to keep, if there are far more.
    pub(crate) fn end_round(&self) -> Option<u64> {
        let mut table = self.table.lock();
        let used = table.used_pages();
        let Table { free, target, .. } = &mut *table;
        target.end_round(used);
        target.kept_pages(free.free_pages(), free.end_page() - free.hole_pages())
    }

    /// Bytes of the file, used or free.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.table.lock().free.end_page() * PAGE_BYTES
    }

    /// Returns space by use. Visits all live extents.
    pub fn stats(&self) -> SpaceStats {
        let table = self.table.lock();
        let mut stats = SpaceStats {
            free_bytes: table.free.free_pages() * PAGE_BYTES,
            hole_bytes: table.free.hole_pages() * PAGE_BYTES,
            file_bytes: table.free.end_page() * PAGE_BYTES,
            ..SpaceStats::default()
        };
        for entry in table.live.values() {
            let bytes = u64::from(entry.page_count) * PAGE_BYTES;
            if entry.durable_references > 0 {
                stats.live_bytes += bytes;
            } else {
                stats.held_bytes += bytes;
            }
        }
        stats
    }

    /// Returns every live span with its durable reference count, for recounting.
    pub fn references(&self) -> Vec<(ExtentSpan, u32)> {
        let table = self.table.lock();
        let entries = table.live.iter().filter(|(_, live)| live.durable_references > 0);
        entries
            .map(|(&first_page, l)| {
                (ExtentSpan { first_page, page_count: l.page_count }, l.durable_references)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
