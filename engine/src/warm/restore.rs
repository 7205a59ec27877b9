//! Reads the file `hot-set` back, piece by piece.
//!
//! **Invariants**
//! - No more than a block and a batch of pages are in memory.
//! - Runs whose pages are read are held meanwhile, so that their pages stay what they are.

use std::collections::BTreeMap;

use testudo_base::{
    KeyspaceId, RunId, Seqno, planted,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_contract::Part;
use testudo_env::{OpenMode, OpenOptions};
use testudo_records::KeyspaceRecords;
use testudo_run::Run;
use testudo_storage::{HotPage, WantedPage};

use super::{
    hot_set_format::{BlockKind, HotSetHeader, decode_pages, decode_states},
    hot_set_reader::{End, HotSetReader},
    restore_state::RestoreState,
    stamp_of,
};
use crate::{open::directory::HOT_SET_FILE, store::Store};

/// Pages of a piece (1 MiB).
const PAGES: usize = 256;
/// Whether what came back is used is judged after so many reads of the device for queries, and by this part
/// of them.
const JUDGED_READS: u64 = 256;
const USED_PART: u64 = 32;

impl Store {
    /// Looks for what an earlier opening has left. REQUIRES: nobody flushes yet.
    pub(crate) fn find_hot_set(&self) {
        if !self.warm.is_on {
            return;
        }
        match self.open_hot_set() {
            Ok(restore) => {
                self.arena_pool.division().set_border(restore.header.border);
                *self.warm.reader.lock() = Some(restore);
                self.warm.set_state(RestoreState::Waiting);
            }
            Err(end) => self.warm.set_state(end),
        }
    }

    fn open_hot_set(&self) -> Result<HotSetReader, End> {
        let options = OpenOptions { mode: OpenMode::Read, direct: false };
        let file = self.env.open(&self.directory.join(HOT_SET_FILE), options).map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound { End::Nothing } else { End::Failed }
        })?;
        self.warm.file_bytes.store(file.len().map_err(|_| End::Failed)?, Relaxed);
        let mut restore = HotSetReader::open(file, self.id, self.data.io_stats().page_reads)?;
        let Some((BlockKind::States, payload)) = restore.next_block()? else { return Err(End::Damaged) };
        restore.keyspaces = self.keyspaces_in(&restore.header, decode_states(&payload)?);
        self.warm.file_bytes_read.fetch_add(restore.offset, Relaxed);
        Ok(restore)
    }

    /// The keyspaces whose trees are in the states that the file names.
    fn keyspaces_in(
        &self,
        header: &HotSetHeader,
        states: Vec<(KeyspaceId, Seqno)>,
    ) -> BTreeMap<KeyspaceId, KeyspaceRecords> {
        let stated: BTreeMap<_, _> = states.into_iter().collect();
        let is_current = |id: KeyspaceId| {
            let stated = stated.get(&id).map(|flushed| (header.incarnation, *flushed));
            let current = self.manifest.with_state(|state| stamp_of(state, id));
            stated.is_some() && (stated == current || planted!("hot-set-stamp-ignored"))
        };
        let current = self.plain_keyspaces().filter(|keyspace| is_current(keyspace.id));
        current.map(|keyspace| (keyspace.id, keyspace.view.load().records.clone())).collect()
    }

    /// Reads a piece of what is left; `false` if there is nothing left, or nobody has read anything yet.
    pub(crate) fn restore_some(&self) -> bool {
        if !self.warm.state().is_under_way() || self.look_ups() == 0 {
            return false;
        }
        let mut restore = self.warm.reader.lock();
        let Some(left) = &mut *restore else { return false };
        self.warm.set_state(RestoreState::Reading);
        let outcome = self.restore_from(left);
        if let Err(end) = outcome {
            *restore = None;
            self.warm.set_state(end);
        }
        outcome.is_ok()
    }

    /// Ends what is under way: the store is being closed.
    pub(super) fn end_restoring(&self) {
        *self.warm.reader.lock() = None;
    }

    fn restore_from(&self, left: &mut HotSetReader) -> Result<(), End> {
        self.check_use(left)?;
        if !left.pages.is_empty() {
            return self.restore_pages(left);
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
        self.warm.file_bytes_read.fetch_add(left.offset - before, Relaxed);
        match kind {
            BlockKind::States => return Err(End::Damaged),
            BlockKind::Pages if left.are_pages_full => {}
            BlockKind::Pages => self.resolve(left, &decode_pages(&payload)?),
            BlockKind::Records if left.are_records_full || left.keyspaces.is_empty() => {}
            BlockKind::Records => left.take_records(payload),
        }
        Ok(())
    }

    /// Fails if users read, but not what came back.
    fn check_use(&self, left: &HotSetReader) -> Result<(), End> {
        let reads = self.data.io_stats().page_reads - left.page_reads;
        let uses = self.data.cache_stats().restored_hits + self.records.stats().restored_hits;
        if reads >= JUDGED_READS && uses < reads / USED_PART { Err(End::Unused) } else { Ok(()) }
    }

    /// Finds the runs of these pages, as the trees refer to them now.
    fn resolve(&self, left: &mut HotSetReader, pages: &[HotPage]) {
        let trees: Vec<_> = self.keyspaces().iter().map(|core| Arc::clone(&core.view.load().tree)).collect();
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

    fn restore_pages(&self, left: &mut HotSetReader) -> Result<(), End> {
        let mut batch = left.pages.split_off(left.pages.len().saturating_sub(PAGES));
        batch.reverse();
        let restored = self.data.restore_pages(&batch).map_err(|_| End::Failed)?;
        self.warm.page_bytes_read.fetch_add(restored.read_bytes, Relaxed);
        if restored.is_full {
            left.are_pages_full = true;
            left.pages.clear();
        }
        Ok(())
    }
}
