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
use testudo_run::{EntryList, MergeCursor, PageUpdate, PreparedVersion, Run};

use crate::{Bounds, resolver::Resolver};

/// Cost limits up to which pages are rewritten instead of the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageUpdateLimits {
    /// At most one in `parts` pages of the run may be written; one always may.
    pub parts: u64,
    /// At most one in `extra_parts` pages may be beyond the originally written ones.
    pub extra_parts: u64,
}

/// A replaced page and its overflow page: each page may get one (TreeLine §4.5).
const PAGES_OF_A_PAGE: u64 = 2;

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
    /// Number of pages that were replaced.
    pub replaced_pages: u64,
    /// Number of those that needed an overflow page.
    pub overflow_pages: u64,
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
    /// Blocks with incoming entries.
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
    let counts: Vec<(u64, u64)> =
        prepared.iter().map(|version| (version.replaced_pages(), version.overflow_pages())).collect();
    let written = PreparedVersion::write(prepared)?.into_iter().zip(counts).zip(inserts);
    for (number, ((run, counts), inserts)) in numbers.into_iter().zip(written) {
        let (replaced_pages, overflow_pages) = counts;
        versions[number] = Some(UpdatedRun { run, replaced_pages, overflow_pages, inserts });
    }
    drops.into_iter().for_each(|dropped| work.progress.record_drops(dropped));
    Ok(versions)
}

impl PageShares {
    /// Collects incoming entries by page; `None` if they are too many, or their pages cannot be replaced.
    fn of<C: Cursor>(incoming: IncomingEntries<C>, limits: PageUpdateLimits) -> Result<Option<Self>> {
        let IncomingEntries { run, sources, newest_seqno, cover } = incoming;
        let Some(update) = PageUpdate::begin(&run)? else { return Ok(None) };
        let blocks = u64_of(update.blocks());
        if u64::from(update.extra_pages()) * limits.extra_parts > blocks {
            return Ok(None);
        }
        let most = (blocks / limits.parts.max(1)).max(1);
        let may_end = |key: &[u8]| cover.as_ref().is_some_and(|cover| cover.contains(key));
        let mut merge = MergeCursor::with_sink(sources, 0, MergeDrops::default());
        let mut entries = EntryList::default();
        let (mut changed, mut firsts): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut room = most * PAGES_OF_A_PAGE * PAGE_BYTES;
        merge.seek_first()?;
        while let Some(entry) = merge.entry() {
            let is_in = |block: &usize| update.end_of(*block).is_none_or(|end| entry.key < end);
            if !changed.last().is_some_and(is_in) {
                changed.push(update.block_of(entry.key));
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

    /// Merges the entries with the contents `old` of their pages; `None` if a page is too small, or would be
    /// empty.
    fn merge(self, work: &Work, old: &[EntryList]) -> Result<Option<Merged>> {
        let Self { mut update, newest_seqno, entries, mut drops, changed, firsts } = self;
        debug_assert_eq!(old.len(), changed.len(), "the contents of each changed page");
        let mut resolver = Resolver::in_pages(work, newest_seqno);
        let (mut new, mut inserts) = (EntryList::default(), PageInserts::default());
        for (number, block) in changed.into_iter().enumerate() {
            let (from, to) = (firsts[number], firsts.get(number + 1).copied().unwrap_or(entries.len()));
            let old = &old[number];
            new.clear();
            let before = inserts.keys.len();
            let sources = vec![entries.cursor(from..to), old.cursor(0..old.len())];
            merge_page(sources, &mut resolver, &mut new, &mut inserts.keys)?;
            if !update.replace(block, old, &new) {
                return Ok(None);
            }
            if !update.last_overflows() {
                inserts.hits += u64_of(inserts.keys.len() - before);
            }
        }
        drops += resolver.drops;
        let version = update.prepare(work.run_ids.take(), newest_seqno)?;
        Ok(version.map(|version| Merged { version, drops, inserts }))
    }
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
