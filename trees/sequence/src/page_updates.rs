//! Updates of single pages of a run, each page written once for all of its entries (TreeLine §4.1; T1).
//!
//! **Invariants**
//! - The run is at the bottom: nothing older is below, and tombstones are dropped.
//! - No value is separated for page updates, which may be abandoned: it would be uncounted garbage.
//! - An abandoned update reports no drop and writes no page in use.

use testudo_base::{
    Cursor, DropSink, Entry, Kind, MergeDrops, PAGE_BYTES, Result, Seqno, num::u64_of, sync::Arc,
};
use testudo_contract::Work;
use testudo_run::{EntryList, MergeCursor, PageUpdate, PreparedVersion, Run, RunRef, UpdateCounts};

use crate::{Bounds, resolver::Resolver};

/// Cost limits up to which pages are rewritten instead of the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageUpdateLimits {
    /// At most one in `parts` pages of the run may be written; one always may.
    pub parts: u64,
    /// A run may have at most one overflow page for `overflow_parts` data pages …
    pub overflow_parts: u64,
    /// … and at most one page beyond the originally written ones for `extra_parts` of these, which includes
    /// those that only older versions use.
    pub extra_parts: u64,
}

/// Incoming bytes for each page that may be written, in pages: more of them are a merge.
const PAGES_OF_A_PAGE: u64 = 2;
/// A run is rewritten if its entries fill less than one in this many of its pages, which may have been left
/// half empty …
const FILLED_PARTS: u64 = 3;
/// … unless it has at most this many pages.
const SMALL_RUN_PAGES: u64 = 8;
/// Approximate bytes of an entry on a page beyond its key and value.
const ENTRY_OVERHEAD_BYTES: u64 = 8;

/// Entries that come into a run.
#[derive(Debug)]
pub struct IncomingEntries<C> {
    /// The run.
    pub run: Arc<Run>,
    /// Their sources, newest first.
    pub sources: Vec<C>,
    /// Upper bound on the seqno of the newest one.
    pub newest_seqno: Seqno,
    /// Keys for which the run has all entries of its age or older; tombstones of others must not be dropped.
    pub cover: Option<Bounds>,
}

/// A run after an update of its pages.
#[derive(Debug)]
pub struct UpdatedRun {
    /// Its new version.
    pub run: Arc<Run>,
    /// Work of the update, in pages.
    pub counts: UpdateCounts,
    /// Its new keys.
    pub inserts: PageInserts,
}

/// Keys that page updates added.
#[derive(Debug, Default)]
pub struct PageInserts {
    /// The keys, without values.
    pub keys: EntryList,
    /// Number of those on pages that needed no overflow page.
    pub hits: u64,
}

/// The entries of a run after the update of its pages.
struct Merged {
    version: PreparedVersion,
    drops: MergeDrops,
    inserts: PageInserts,
}

/// Incoming entries of a run by page.
struct PageShares {
    update: PageUpdate,
    newest_seqno: Seqno,
    entries: EntryList,
    drops: MergeDrops,
    /// Sections with incoming entries.
    changed: Vec<usize>,
    /// Index of the first entry of each.
    firsts: Vec<usize>,
}

/// Applies incoming entries to pages of their runs. All runs are read in one batch, and written in one.
/// Returns the new version of each run, or `None` if the cost exceeds `limits`, or it is impossible.
pub fn update_pages<C: Cursor>(
    work: &Work,
    incoming: Vec<IncomingEntries<C>>,
    limits: PageUpdateLimits,
) -> Result<Vec<Option<UpdatedRun>>> {
    let runs: Vec<Arc<Run>> = incoming.iter().map(|incoming| Arc::clone(&incoming.run)).collect();
    Run::load_indexes(&runs)?;
    let shares: Vec<Option<PageShares>> =
        incoming.into_iter().map(|incoming| PageShares::of(incoming, limits)).collect::<Result<_>>()?;
    let reads: Vec<(&PageUpdate, &[usize])> =
        shares.iter().flatten().map(|shares| (&shares.update, &shares.changed[..])).collect();
    let mut contents = PageUpdate::read(&reads)?.into_iter();
    let (mut numbers, mut prepared, mut drops, mut inserts) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (number, shares) in shares.into_iter().enumerate() {
        let Some((shares, old)) = shares.and_then(|shares| Some((shares, contents.next()?))) else {
            continue;
        };
        if let Some(merged) = shares.merge(work, &old)? {
            numbers.push(number);
            prepared.push(merged.version);
            drops.push(merged.drops);
            inserts.push(merged.inserts);
        }
    }
    let mut versions: Vec<Option<UpdatedRun>> = runs.iter().map(|_| None).collect();
    let counts: Vec<UpdateCounts> = prepared.iter().map(PreparedVersion::counts).collect();
    let written = PreparedVersion::write(prepared)?.into_iter().zip(counts).zip(inserts);
    for (number, ((run, counts), inserts)) in numbers.into_iter().zip(written) {
        versions[number] = Some(UpdatedRun { run, counts, inserts });
    }
    drops.into_iter().for_each(|dropped| work.progress.record_drops(dropped));
    Ok(versions)
}

impl PageShares {
    /// Collects incoming entries by page; `None` if they are too many, or their pages cannot be replaced.
    fn of<C: Cursor>(incoming: IncomingEntries<C>, limits: PageUpdateLimits) -> Result<Option<Self>> {
        let IncomingEntries { run, sources, newest_seqno, cover } = incoming;
        let Some(update) = PageUpdate::begin(&run)? else { return Ok(None) };
        let written_pages = u64::from(run.reference().data_pages - run.reference().spare_pages());
        let overflow = u64::from(run.reference().section_count()) - written_pages;
        if overflow * limits.overflow_parts > written_pages
            || u64::from(update.extra_pages()) * limits.extra_parts > written_pages
            || is_sparse(&run)
        {
            return Ok(None);
        }
        let most = (u64_of(update.sections()) / limits.parts.max(1)).max(1);
        let may_end = |key: &[u8]| cover.as_ref().is_some_and(|cover| cover.contains(key));
        let mut merge = MergeCursor::with_sink(sources, 0, MergeDrops::default());
        let mut entries = EntryList::default();
        let (mut changed, mut firsts): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut room = most * PAGES_OF_A_PAGE * PAGE_BYTES;
        merge.seek_first()?;
        while let Some(entry) = merge.entry() {
            let is_in = |section: &usize| update.end_of(*section).is_none_or(|end| entry.key < end);
            if !changed.last().is_some_and(is_in) {
                changed.push(update.section_of(entry.key));
                firsts.push(entries.len());
            }
            if u64_of(changed.len()) > most || (entry.kind == Kind::Tombstone && !may_end(entry.key)) {
                return Ok(None);
            }
            if entry.kind == Kind::Value {
                let Some(rest) = room.checked_sub(u64_of(entry.user_bytes())) else { return Ok(None) };
                room = rest;
            }
            entries.push(&entry);
            merge.next()?;
        }
        if changed.is_empty() || !update.can_replace(&changed) {
            return Ok(None);
        }
        debug_assert!(changed.is_sorted_by(|a, b| a < b), "each page is written once, in key order");
        let newest_seqno = newest_seqno.max(run.reference().newest_seqno);
        Ok(Some(Self { update, newest_seqno, entries, drops: merge.into_sink(), changed, firsts }))
    }

    /// Merges the entries with the contents `old` of their pages; `None` if an entry is too long for a page,
    /// or the run has too many pieces.
    fn merge(self, work: &Work, old: &[EntryList]) -> Result<Option<Merged>> {
        let Self { mut update, newest_seqno, entries, mut drops, changed, firsts } = self;
        debug_assert_eq!(old.len(), changed.len(), "the contents of each changed page");
        let mut resolver = Resolver::in_pages(work, newest_seqno);
        let mut inserts = PageInserts::default();
        // Number of new keys up to the end of each section.
        let mut inserted = Vec::with_capacity(changed.len());
        for (number, section) in changed.iter().enumerate() {
            let (from, to) = (firsts[number], firsts.get(number + 1).copied().unwrap_or(entries.len()));
            let old = &old[number];
            // Most incoming entries are newer versions, or few.
            let mut new = EntryList::with_room_for(old, (to - from).min(4));
            let sources = vec![entries.cursor(from..to), old.cursor(0..old.len())];
            merge_page(sources, &mut resolver, &mut new, &mut inserts.keys)?;
            inserted.push(inserts.keys.len());
            let incoming = entries.get(from).map_or(&[][..], |first| first.key);
            update.replace(*section, old, incoming, new);
        }
        drops += resolver.drops;
        let Some(version) = update.prepare(work.run_ids.take(), newest_seqno)? else { return Ok(None) };
        for key in version.tombstones() {
            drops.made(&Entry { key, kind: Kind::Tombstone, value: &[] });
        }
        let mut before = 0;
        for (section, inserted) in changed.into_iter().zip(inserted) {
            if !version.has_split(section) {
                inserts.hits += u64_of(inserted - before);
            }
            before = inserted;
        }
        Ok(Some(Merged { version, drops, inserts }))
    }
}

/// Whether the entries of a run would fit into a third of its pages, after most were removed.
fn is_sparse(run: &Run) -> bool {
    let RunRef { entries, user_bytes, .. } = *run.reference();
    let pages = u64::from(run.reference().section_count());
    pages > SMALL_RUN_PAGES
        && (user_bytes + entries * ENTRY_OVERHEAD_BYTES) * FILLED_PARTS < pages * PAGE_BYTES
}

/// Merges the incoming entries of a page with its contents, newest first, into `new`. The contents are the
/// last source; keys that are not there are added to `inserts`.
fn merge_page<C: Cursor>(
    sources: Vec<C>,
    resolver: &mut Resolver<'_>,
    new: &mut EntryList,
    inserts: &mut EntryList,
) -> Result<()> {
    let mut merge = MergeCursor::with_sink(sources, 0, MergeDrops::default());
    merge.seek_first()?;
    while let Some(entry) = merge.entry() {
        let resolved = resolver.resolve_operands(&entry)?;
        let entry = match &resolved {
            None => entry,
            Some((kind, value)) => Entry { kind: *kind, value, ..entry },
        };
        if entry.kind == Kind::Tombstone {
            resolver.drops.dropped(&entry);
        } else {
            if !merge.stands_on_oldest() && !merge.hides_oldest() {
                inserts.push(&Entry { value: &[], ..entry });
            }
            resolver.write(&entry, |entry| {
                new.push(entry);
                Ok(())
            })?;
        }
        merge.next()?;
    }
    resolver.drops += merge.into_sink();
    Ok(())
}
