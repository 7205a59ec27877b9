//! Restores the caches from the file `hot-set`, step by step.
//!
//! **Invariants**
//! - At most one block and one batch of pages are in memory.
//! - Runs whose pages are read are held meanwhile, so that their pages do not change.

use std::collections::BTreeMap;

use super::stamp_of;
use testudo_base::{
    KeyspaceId, RunId, Seqno, planted,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_contract::Part;
use testudo_env::{OpenMode, OpenOptions};
use testudo_records::KeyspaceRecords;
use testudo_run::Run;
use testudo_storage::{HotPage, WantedPage};
use testudo_store::{Store, directory::HOT_SET_FILE};

use crate::warm::{look_ups, plain_keyspaces};
use testudo_store::warm_restart::{
    hot_set_format::{BlockKind, HotSetHeader, decode_pages, decode_states},
    hot_set_reader::{End, HotSetReader},
    restore_state::RestoreState,
};

/// Pages in one batch (1 MiB).
const PAGES: usize = 256;
/// After this many device reads for queries, restoring stops if hits on restored data are below this fraction
/// of them.
const JUDGED_READS: u64 = 256;
const USED_PART: u64 = 32;

/// Looks for a hot set that an earlier opening left. REQUIRES: no flush can run yet.
pub fn find_hot_set(store: &Store) {
    if !store.warm.is_on {
        return;
    }
    debug_assert!(store.warm.reader.lock().is_none(), "a hot set is looked for once");
    match open_hot_set(store) {
        Ok(restore) => {
            store.arena_pool.division().set_border(restore.header.border);
            *store.warm.reader.lock() = Some(restore);
            store.warm.set_state(RestoreState::Waiting);
        }
        Err(end) => store.warm.set_state(end),
    }
}

fn open_hot_set(store: &Store) -> Result<HotSetReader, End> {
    let options = OpenOptions { mode: OpenMode::Read, direct: false };
    let file = store.env.open(&store.directory.join(HOT_SET_FILE), options).map_err(|error| {
        if error.kind() == std::io::ErrorKind::NotFound { End::Nothing } else { End::Failed }
    })?;
    store.warm.file_bytes.store(file.len().map_err(|_| End::Failed)?, Relaxed);
    let mut restore = HotSetReader::open(file, store.id, store.data.io_stats().page_reads)?;
    let Some((BlockKind::States, payload)) = restore.next_block()? else { return Err(End::Damaged) };
    restore.keyspaces = keyspaces_in(store, &restore.header, decode_states(&payload)?);
    store.warm.file_bytes_read.fetch_add(restore.offset, Relaxed);
    Ok(restore)
}

/// Keyspaces whose trees are in the states named by the file.
fn keyspaces_in(
    store: &Store,
    header: &HotSetHeader,
    states: Vec<(KeyspaceId, Seqno)>,
) -> BTreeMap<KeyspaceId, KeyspaceRecords> {
    let stated: BTreeMap<_, _> = states.into_iter().collect();
    let is_current = |id: KeyspaceId| {
        let stated = stated.get(&id).map(|flushed| (header.incarnation, *flushed));
        let current = store.manifest.with_state(|state| stamp_of(state, id));
        stated.is_some() && (stated == current || planted!("hot-set-stamp-ignored"))
    };
    let current = plain_keyspaces(store).filter(|keyspace| is_current(keyspace.id));
    current.map(|keyspace| (keyspace.id, keyspace.view.load().records.clone())).collect()
}

/// Restores one step; `false` if nothing is left, or nothing has been looked up yet.
pub fn restore_some(store: &Store) -> bool {
    if !store.warm.state().is_under_way() || look_ups(store) == 0 {
        return false;
    }
    let mut restore = store.warm.reader.lock();
    let Some(left) = &mut *restore else { return false };
    store.warm.set_state(RestoreState::Reading);
    let outcome = restore_from(store, left);
    if let Err(end) = outcome {
        *restore = None;
        store.warm.set_state(end);
    }
    outcome.is_ok()
}

/// Stops restoring: the store is closing.
pub fn end_restoring(store: &Store) {
    *store.warm.reader.lock() = None;
}

fn restore_from(store: &Store, left: &mut HotSetReader) -> Result<(), End> {
    check_use(store, left)?;
    if !left.pages.is_empty() {
        return restore_pages(store, left);
    }
    if left.has_records() {
        return left.restore_records();
    }
    left.runs.clear();
    let before = left.offset;
    let Some((kind, payload)) = left.next_block()? else {
        let is_full = left.are_pages_full || left.are_records_full;
        return Err(if is_full { End::Full } else { End::Done });
    };
    store.warm.file_bytes_read.fetch_add(left.offset - before, Relaxed);
    match kind {
        BlockKind::States => return Err(End::Damaged),
        BlockKind::Pages if left.are_pages_full => {}
        BlockKind::Pages => resolve(store, left, &decode_pages(&payload)?),
        BlockKind::Records if left.are_records_full || left.keyspaces.is_empty() => {}
        BlockKind::Records => left.take_records(payload),
    }
    Ok(())
}

/// Fails if users read from the device but rarely hit restored data.
fn check_use(store: &Store, left: &HotSetReader) -> Result<(), End> {
    let reads = store.data.io_stats().page_reads - left.page_reads;
    let uses = store.data.cache_stats().restored_hits + store.records.stats().restored_hits;
    if reads >= JUDGED_READS && uses < reads / USED_PART { Err(End::Unused) } else { Ok(()) }
}

/// Finds the runs of these pages, as the trees refer to them now.
fn resolve(store: &Store, left: &mut HotSetReader, pages: &[HotPage]) {
    debug_assert!(left.pages.is_empty() && left.runs.is_empty(), "at most one block is in memory");
    let trees: Vec<_> = store.keyspaces().iter().map(|core| Arc::clone(&core.view.load().tree)).collect();
    let parts = trees.iter().flat_map(|tree| tree.parts());
    let mut runs: BTreeMap<RunId, Arc<Run>> = BTreeMap::new();
    for Part::Run(run) in parts {
        let reference = run.reference();
        let replaced = reference.replaced.iter().flat_map(|replaced| replaced.writings());
        for generation in replaced.map(|writing| writing.generation).chain([reference.id]) {
            runs.insert(generation, Arc::clone(&run));
        }
    }
    for of_run in pages.chunk_by(|a, b| a.generation == b.generation) {
        let Some(run) = runs.get(&of_run[0].generation) else { continue };
        let reference = run.reference();
        let wanted = of_run.iter().filter_map(|hot| {
            let writing = reference.writing_at(hot.page, hot.generation)?;
            let (keyspace, incarnation) = (reference.keyspace, writing.incarnation);
            Some(WantedPage { hot: *hot, keyspace, incarnation })
        });
        left.pages.extend(wanted);
        left.runs.push(Arc::clone(run));
    }
    left.pages.sort_unstable_by_key(|wanted| std::cmp::Reverse(wanted.hot.page));
    left.pages.dedup_by_key(|wanted| wanted.hot.page);
}

fn restore_pages(store: &Store, left: &mut HotSetReader) -> Result<(), End> {
    let mut batch = left.pages.split_off(left.pages.len().saturating_sub(PAGES));
    batch.reverse();
    debug_assert!(
        batch.is_sorted_by(|a, b| a.hot.page < b.hot.page),
        "pages are read in the order of the file"
    );
    let restored = store.data.restore_pages(&batch).map_err(|_| End::Failed)?;
    store.warm.page_bytes_read.fetch_add(restored.read_bytes, Relaxed);
    if restored.is_full {
        left.are_pages_full = true;
        left.pages.clear();
    }
    Ok(())
}
