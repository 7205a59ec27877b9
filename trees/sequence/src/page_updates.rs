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
use testudo_run::{EntryList, MergeCursor, PageUpdate, Run};

use crate::resolver::Resolver;

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

/// Outcome of the update.
#[derive(Debug)]
pub struct PagesUpdated {
    /// The version of the run with the entries.
    pub run: Arc<Run>,
    /// Number of entries that had no older entry in the run.
    pub inserted: u64,
}

/// Applies the entries of `incoming`, newest first, to the pages of `run`; `None` if the cost exceeds
/// `limits`, or it is impossible. `may_end`: whether a tombstone of this key may be dropped.
pub fn update_pages<C: Cursor>(
    work: &Work,
    run: &Arc<Run>,
    incoming: Vec<C>,
    newest_seqno: Seqno,
    limits: PageUpdateLimits,
    may_end: impl Fn(&[u8]) -> bool,
) -> Result<Option<PagesUpdated>> {
    let Some(mut update) = PageUpdate::begin(run)? else { return Ok(None) };
    let blocks = u64_of(update.blocks());
    if u64::from(update.extra_pages()) * limits.extra_parts > blocks {
        return Ok(None);
    }
    let most = (blocks / limits.parts.max(1)).max(1);
    let mut merge = MergeCursor::with_sink(incoming, 0, MergeDrops::default());
    let mut list = EntryList::default();
    let mut shares: Vec<(usize, usize)> = Vec::new();
    let mut room = most * PAGES_OF_A_PAGE * PAGE_BYTES;
    merge.seek_first()?;
    while let Some(entry) = merge.entry() {
        let goes_on =
            shares.last().is_some_and(|(block, _)| update.end_of(*block).is_none_or(|end| entry.key < end));
        if !goes_on {
            shares.push((update.block_of(entry.key), list.len()));
        }
        if u64_of(shares.len()) > most || (entry.kind == Kind::Tombstone && !may_end(entry.key)) {
            return Ok(None);
        }
        if entry.kind == Kind::Value {
            let Some(rest) = room.checked_sub(u64_of(entry.user_bytes())) else { return Ok(None) };
            room = rest;
        }
        list.push(&entry);
        merge.next()?;
    }
    let changed: Vec<usize> = shares.iter().map(|(block, _)| *block).collect();
    if changed.is_empty() || !update.can_replace(&changed) {
        return Ok(None);
    }
    debug_assert!(changed.is_sorted_by(|a, b| a < b), "each page is written once, in key order");
    let old = update.read(&changed)?;
    debug_assert_eq!(old.len(), changed.len(), "the contents of each changed page");
    let mut resolver = Resolver::in_pages(work, newest_seqno.max(run.reference().newest_seqno));
    let (mut inserted, mut new) = (0, EntryList::default());
    for (number, (block, from)) in shares.iter().enumerate() {
        let to = shares.get(number + 1).map_or(list.len(), |(_, next)| *next);
        let sources = vec![list.cursor(*from..to), old[number].cursor(0..old[number].len())];
        new.clear();
        merge_page(sources, &mut resolver, &mut new)?;
        inserted += u64_of(new.len().saturating_sub(old[number].len()));
        if !update.replace(*block, &old[number], &new) {
            return Ok(None);
        }
    }
    let Some(run) = update.finish(work.run_ids.take(), newest_seqno)? else { return Ok(None) };
    work.progress.record_drops(merge.into_sink());
    work.progress.record_drops(resolver.drops);
    Ok(Some(PagesUpdated { run, inserted }))
}

/// Merges the incoming entries of a page with its contents, newest first, into `new`.
fn merge_page<C: Cursor>(sources: Vec<C>, resolver: &mut Resolver<'_>, new: &mut EntryList) -> Result<()> {
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
