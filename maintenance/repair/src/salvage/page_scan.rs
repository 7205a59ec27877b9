//! Scans the data file for runs if no manifest lists them.
//!
//! Every page identifies itself. Footers identify complete runs; data blocks of runs without a footer are
//! kept as fragments. A run with a page overwritten by a newer run had been freed and is ignored. Replaced
//! pages name their run and are joined with it; maps only tell which run uses their pages.
//!
//! **Invariants**
//! - Only pages that verify for this store and their location are trusted.
//! - In a run without a footer, a value includes its continuation pages only if they follow it.
//! - Memory: one footer per run, and the key bounds of each sequence of pages of one run.

use std::collections::{BTreeMap, BTreeSet};

use testudo_base::{
    KeyspaceId, PAGE_BYTES, PAGE_SIZE, Result, RunId, StoreId,
    num::{u32_of, u64_of, usize_of},
    planted,
};
use testudo_env::{AlignedBuffer, File};
use testudo_run::{
    FoundPage, MapPage, ReplacedPageRecord, RunRecord, Writing, block_keys, every_entry, read_leniently,
};
use testudo_storage::{PAGE_HEADER_BYTES, PageHeader, PageIdentity, PageKind, payload_of, verify_pages};
use testudo_store::long_work::Meter;
use testudo_values::is_under_its_number;

/// Pages per read.
const CHUNK_PAGES: usize = 256;

/// Consecutive pages of one run; data blocks in key order.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub(crate) first_page: u64,
    pub(crate) page_count: u32,
    pub(crate) run: RunId,
    pub(crate) keyspace: KeyspaceId,
    /// Lowest 32 bits of the incarnation that wrote the run.
    pub(crate) incarnation: u32,
    /// First and last key, for data blocks.
    pub(crate) keys: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether it is a replaced page.
    pub(crate) is_replaced: bool,
    /// Whether all its entries are numbered values.
    pub(crate) is_logged: bool,
}

/// Result of a scan.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Runs with a valid footer that had not been freed, by id.
    pub(crate) runs: BTreeMap<RunId, RunRecord>,
    /// The runs among them whose values are stored by number.
    pub(crate) logged: BTreeSet<RunId>,
    /// Data blocks of runs without a footer.
    pub(crate) orphans: Vec<Fragment>,
    /// Number of runs that had certainly been freed.
    pub(crate) dead_runs: u64,
}

/// The store named by the first valid footer in the file.
pub(crate) fn find_store(
    data: &dyn File,
    data_bytes: u64,
    meter: &mut Meter<'_, '_>,
) -> Result<Option<StoreId>> {
    let mut pages = Pages::new(data, data_bytes);
    while let Some((page, header)) = pages.next(meter)? {
        if header.kind != Some(PageKind::Footer) || header.page != page {
            continue;
        }
        let claimed = RunRecord::claimed_store(&pages.current()[PAGE_HEADER_BYTES..]);
        let Some(store) = claimed else { continue };
        if let Some(bytes) = pages.block(&header)
            && verify_pages(&bytes, &identity(store, &header)).is_ok()
        {
            return Ok(Some(store));
        }
    }
    Ok(None)
}

/// Scans every page. Of the runs in `newest`, replaced pages of later generations than these are ignored.
pub(crate) fn scan(
    (data, data_bytes): (&dyn File, u64),
    store: StoreId,
    newest: &BTreeMap<RunId, RunId>,
    meter: &mut Meter<'_, '_>,
) -> Result<Found> {
    let mut pages = Pages::new(data, data_bytes);
    let mut fragments: Vec<Fragment> = Vec::new();
    let (mut records, mut replaced, mut maps) = (Vec::new(), Vec::new(), Vec::new());
    let is_later = |run: RunId, generation: RunId| newest.get(&run).is_some_and(|last| generation > *last);
    while let Some((page, header)) = pages.next(meter)? {
        let Some(kind) = header.kind.filter(|_| header.page == page) else { continue };
        let Some(bytes) = pages.block(&header) else { continue };
        if verify_pages(&bytes, &identity(store, &header)).is_err() {
            continue;
        }
        let page_count = u32_of(bytes.len() / PAGE_SIZE);
        pages.skip(page_count - 1);
        let keys = match kind {
            PageKind::Data | PageKind::Replaced => block_keys(payload_of(&bytes)).ok(),
            _ => None,
        };
        if kind == PageKind::Footer
            && let Ok(record) = RunRecord::read(payload_of(&bytes))
            && is_at_home(&record, &header, store)
        {
            records.push(record);
        }
        let (run, keyspace, incarnation) = (header.generation, header.keyspace, header.incarnation);
        if kind == PageKind::Replaced {
            let record = ReplacedPageRecord::read(payload_of(&bytes)).ok();
            let record = record.filter(|record| !is_later(record.run, run));
            if let (Some(record), Some(keys)) = (record, keys) {
                let writing = Writing { generation: run, incarnation };
                replaced.push((keyspace, FoundPage { physical: page, writing, record, keys }));
            }
            continue;
        }
        if kind == PageKind::Map {
            let map = MapPage::read(payload_of(&bytes)).ok();
            maps.extend(map.map(|map| (page, run, map.run)));
            continue;
        }
        let is_logged = kind == PageKind::Data && every_entry(payload_of(&bytes), is_under_its_number);
        let goes_on = kind == PageKind::Data && keys.is_none();
        let (first_page, is_replaced) = (page, false);
        let next =
            Fragment { first_page, page_count, run, keyspace, incarnation, keys, is_replaced, is_logged };
        add(&mut fragments, next, goes_on);
    }
    Ok(sort_out(records, fragments, replaced, maps))
}

/// Whether a footer is at the location its run states, which excludes copies.
fn is_at_home(record: &RunRecord, header: &PageHeader, store: StoreId) -> bool {
    let reference = &record.reference;
    record.store == store
        && reference.id == header.generation
        && reference.keyspace == header.keyspace
        && reference.incarnation == header.incarnation
        && reference.locate(reference.footer_page).is_some_and(|(page, _)| page == header.page)
}

fn identity(store: StoreId, header: &PageHeader) -> PageIdentity {
    let kind = header.kind.unwrap_or(PageKind::Data);
    let PageHeader { page, generation, keyspace, incarnation, .. } = *header;
    PageIdentity { store, kind, page, generation, keyspace, incarnation }
}

/// Adds a block, merging it with the previous fragment if it continues that. `goes_on`: the block only
/// continues a value.
fn add(fragments: &mut Vec<Fragment>, next: Fragment, goes_on: bool) {
    debug_assert!(
        fragments.last().is_none_or(|last| last.first_page + u64::from(last.page_count) <= next.first_page),
        "pages are found in the order of the file"
    );
    if let Some(last) = fragments.last_mut()
        && last.first_page + u64::from(last.page_count) == next.first_page
        && (last.run, last.keyspace, last.incarnation) == (next.run, next.keyspace, next.incarnation)
    {
        let joined = match (&mut last.keys, &next.keys) {
            (None, None) => true,
            (Some(_), None) => goes_on,
            (Some((_, end)), Some((first, last_key))) if *end < *first => {
                end.clone_from(last_key);
                true
            }
            _ => false,
        };
        if let Some(page_count) = last.page_count.checked_add(next.page_count).filter(|_| joined) {
            last.page_count = page_count;
            last.is_logged &= next.is_logged || goes_on;
            return;
        }
    }
    fragments.push(next);
}

fn sort_out(
    records: Vec<RunRecord>,
    fragments: Vec<Fragment>,
    replaced: Vec<(KeyspaceId, FoundPage)>,
    maps: Vec<(u64, RunId, RunId)>,
) -> Found {
    debug_assert!(
        replaced.is_sorted_by(|(_, a), (_, b)| a.physical < b.physical),
        "in the order of the file"
    );
    let mut found = Found::default();
    let mut with_footer: BTreeMap<RunId, bool> = BTreeMap::new();
    let mut places: Vec<(u64, RunId, RunId)> =
        replaced.iter().map(|(_, page)| (page.physical, page.writing.generation, page.record.run)).collect();
    places.extend(maps);
    places.sort_unstable();
    let mut pages: BTreeMap<RunId, Vec<(KeyspaceId, FoundPage)>> = BTreeMap::new();
    for page in replaced {
        pages.entry(page.1.record.run).or_default().push(page);
    }
    for mut record in records {
        let is_dead = was_given_back(&record, &fragments, &places);
        let id = record.reference.id;
        with_footer.insert(id, is_dead);
        if is_dead {
            found.dead_runs += 1;
        } else {
            let pages = pages.remove(&id).unwrap_or_default();
            let own = record.reference.keyspace;
            let pages = pages.into_iter().filter(|(keyspace, _)| *keyspace == own);
            record.reference = record.reference.with_found_pages(pages.map(|(_, page)| page).collect());
            found.runs.insert(id, record);
        }
    }
    // A run without a readable page may be misclassified; then its losses are reported per reference.
    found.logged =
        found.runs.iter().filter(|(_, record)| record.is_value_segment).map(|(id, _)| *id).collect();
    for fragment in fragments.iter().filter(|fragment| fragment.keys.is_some() && !fragment.is_logged) {
        let of = found.runs.get(&fragment.run).map(|record| record.reference.incarnation);
        if of == Some(fragment.incarnation) {
            found.logged.remove(&fragment.run);
        }
    }
    found.orphans = fragments;
    found.orphans.retain(|fragment| fragment.keys.is_some() && !with_footer.contains_key(&fragment.run));
    let lone =
        pages.into_iter().filter(|(run, _)| !with_footer.contains_key(run)).flat_map(|(_, pages)| pages);
    found.orphans.extend(lone.map(|(keyspace, page)| Fragment {
        first_page: page.physical,
        page_count: 1,
        run: page.writing.generation,
        keyspace,
        incarnation: page.writing.incarnation,
        keys: Some(page.keys),
        is_replaced: true,
        is_logged: false,
    }));
    // Pages without a keyspace were spilled for readers of a former process; they only prove that
    // other pages were overwritten.
    let is_kept = |keyspace| keyspace != KeyspaceId::SPILLED || planted!("spilled-pages-salvaged");
    found.runs.retain(|_, record| is_kept(record.reference.keyspace));
    found.orphans.retain(|fragment| is_kept(fragment.keyspace));
    found
}

/// Whether a run had been freed: its space is reused only after the manifest released it. `replaced`:
/// locations of replaced pages and maps, with their generations and runs.
fn was_given_back(record: &RunRecord, fragments: &[Fragment], replaced: &[(u64, RunId, RunId)]) -> bool {
    let own = record.reference.id;
    record.reference.spans.iter().any(|span| {
        let from = fragments.partition_point(|fragment| {
            fragment.first_page + u64::from(fragment.page_count) <= span.first_page
        });
        let inside = fragments[from..].iter().take_while(|fragment| fragment.first_page < span.end_page());
        let from = replaced.partition_point(|(page, ..)| *page < span.first_page);
        let pages = replaced[from..].iter().take_while(|(page, ..)| *page < span.end_page());
        inside.into_iter().any(|fragment| fragment.run > own)
            || pages.into_iter().any(|(_, generation, run)| *generation > own && *run != own)
    })
}

/// An iterator over the pages of a file.
struct Pages<'f> {
    data: &'f dyn File,
    page_count: u64,
    next_page: u64,
    window: AlignedBuffer,
    window_first: u64,
    window_pages: u64,
}

impl<'f> Pages<'f> {
    fn new(data: &'f dyn File, data_bytes: u64) -> Self {
        let window = AlignedBuffer::zeroed(CHUNK_PAGES * PAGE_SIZE);
        Self {
            data,
            page_count: data_bytes / PAGE_BYTES,
            next_page: 0,
            window,
            window_first: 0,
            window_pages: 0,
        }
    }

    /// The next page with a header of a known kind, and its number.
    fn next(&mut self, meter: &mut Meter<'_, '_>) -> Result<Option<(u64, PageHeader)>> {
        while self.next_page < self.page_count {
            if self.next_page >= self.window_first + self.window_pages {
                let first = self.next_page;
                self.next_page = first.max(self.data.next_data(first * PAGE_BYTES) / PAGE_BYTES);
                if self.next_page >= self.page_count {
                    break;
                }
                self.fill();
                meter.advance((self.next_page - first + self.window_pages) * PAGE_BYTES)?;
            }
            self.next_page += 1;
            if let Some(header) = PageHeader::read(self.current())
                && header.kind.is_some()
            {
                return Ok(Some((self.next_page - 1, header)));
            }
        }
        Ok(None)
    }

    fn fill(&mut self) {
        self.window_first = self.next_page;
        debug_assert!(self.next_page < self.page_count, "there is a page to read");
        self.window_pages = u64_of(CHUNK_PAGES).min(self.page_count - self.next_page);
        let bytes = usize_of(self.window_pages * PAGE_BYTES);
        // Unreadable pages become zeros, which no run owns.
        read_leniently(self.data, self.window_first, &mut self.window[..bytes]);
    }

    /// The page returned last.
    fn current(&self) -> &[u8] {
        debug_assert!(self.next_page > self.window_first, "a page was returned");
        let start = usize_of((self.next_page - 1 - self.window_first) * PAGE_BYTES);
        &self.window[start..start + PAGE_SIZE]
    }

    /// The whole block that begins with the page returned last, if the file is long enough.
    fn block(&self, header: &PageHeader) -> Option<Vec<u8>> {
        let bytes = u64_of(PAGE_HEADER_BYTES) + u64::from(header.payload_bytes);
        let pages = bytes.div_ceil(PAGE_BYTES);
        if pages == 1 {
            return Some(self.current().to_vec());
        }
        let first = self.next_page - 1;
        // A page that claims to be long must fit into the file before memory is allocated for it.
        if pages > self.page_count - first {
            return None;
        }
        let mut block = vec![0u8; usize_of(pages * PAGE_BYTES)];
        read_leniently(self.data, first, &mut block);
        Some(block)
    }

    fn skip(&mut self, pages: u32) {
        self.next_page += u64::from(pages);
    }
}
