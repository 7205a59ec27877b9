//! Updates of pages of the bottom: one task for several runs, whose pages are read and written in batches.

use testudo_base::{Cursor, Result, num::u64_of, sync::Arc};
use testudo_contract::Work;
use testudo_run::{Run, UpdateCounts};
use testudo_sequence::{
    Bounds, FencedRun, IncomingEntries, PageUpdateLimits, UpdatedRun, layer_cursor, update_pages,
};

use crate::{
    LsmOptions,
    forecast::JobForecast,
    levels::{component::LevelRun, written_counts::PageCounts},
    update::{
        chunks::{ChunkRuns, cut_merge, write_chunk},
        plan::Merge,
    },
};

/// A separately written page costs more than one written as part of a run. A run with half as many pages
/// again is rewritten, which restores their order. A rewrite would not free places that snapshots use.
pub(crate) const PAGE_UPDATE_LIMITS: PageUpdateLimits =
    PageUpdateLimits { parts: 6, overflow_parts: 2, extra_parts: 1 };
/// A batch has at most this many runs …
const BATCH_RUNS_MAX: usize = 16;
/// … and no further one after this many pages: their old and new contents are in memory together, about
/// 20 KiB a page, which the memory budget does not count. Writes of half a megabyte suffice for a device.
const BATCH_PAGES: u64 = 128;

/// Incoming entries for pages of a run of the bottom.
#[derive(Debug)]
pub(crate) struct PagesCell {
    pub(crate) level_run: LevelRun,
    /// The merge with the whole run, in case that costs less.
    pub(crate) merge: Merge,
    pub(crate) bytes_max: u64,
}

/// Adjacent runs whose pages are updated in one task.
#[derive(Debug, Default)]
pub(crate) struct PagesBatch {
    cells: Vec<PagesCell>,
    /// Upper bound on touched pages, as estimated.
    pages: u64,
    /// Bytes of the merges with the whole runs.
    pub(crate) merge_bytes: u64,
}

impl PagesBatch {
    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.cells.len() >= BATCH_RUNS_MAX || self.pages >= BATCH_PAGES
    }

    pub(crate) fn push(&mut self, cell: PagesCell) {
        debug_assert!(!self.is_full(), "a batch is bounded");
        self.pages += cell.touched_pages_max();
        self.merge_bytes += cell.merge.bytes;
        self.cells.push(cell);
    }

    /// Writes incoming entries into pages of the runs, or rewrites those for which that costs less. Returns
    /// the runs in key order.
    pub(crate) fn write(
        self,
        work: &Work,
        options: &LsmOptions,
        forecast: Option<&JobForecast>,
    ) -> Result<ChunkRuns> {
        let keys = Bounds::from(&work.keys);
        let may_update: Vec<bool> = self.cells.iter().map(|cell| cell.may_update(&keys)).collect();
        let updated = self.cells.iter().zip(&may_update).filter(|(_, may_update)| **may_update);
        let incoming = updated.map(|(cell, _)| cell.incoming()).collect();
        let versions = update_pages(work, incoming, PAGE_UPDATE_LIMITS)?;
        if let Some(JobForecast { forecast, records, .. }) = forecast {
            let inserts = versions.iter().flatten().map(|updated| &updated.inserts.keys);
            forecast.note_page_inserts(inserts, *records);
        }
        let mut versions = versions.into_iter();
        let (mut written, none) = (ChunkRuns::default(), PageCounts::default());
        let mut pages = none;
        for (cell, may_update) in self.cells.into_iter().zip(may_update) {
            let version = if may_update { versions.next().flatten() } else { None };
            match version {
                Some(UpdatedRun { run, counts, inserts }) => {
                    let UpdateCounts { replaced, split: overflowed, joined, .. } = counts;
                    let (inserts, hits) = (u64_of(inserts.keys.len()), inserts.hits);
                    pages.add(PageCounts { replaced, overflowed, joined, inserts, hits, ..none });
                    written.push(cell.updated(run, work));
                }
                None => {
                    pages.add(PageCounts { rewritten_runs: 1, ..none });
                    written.add(cell.rewritten(&keys, work, options, forecast)?);
                }
            }
        }
        written.counts.pages.add(pages);
        Ok(written)
    }
}

impl PagesCell {
    /// Estimated upper bound on the pages that are read and written: one for each entry, up to the number at
    /// which the run is rewritten instead.
    fn touched_pages_max(&self) -> u64 {
        let reference = self.level_run.run().reference();
        let incoming = self.merge.bytes.saturating_sub(self.level_run.bytes);
        let mean_entry = (reference.user_bytes / reference.entries.max(1)).max(1);
        let pages_max = u64::from(reference.data_pages) / PAGE_UPDATE_LIMITS.parts;
        (incoming / mean_entry).min(pages_max).max(1)
    }

    /// Whether the run's pages may be updated. The run's keys outside the tree's range, `keys`, would be
    /// written with its pages. A run whose cover extends beyond its fences would claim completeness for newer
    /// keys there. A run that has given keys away would claim to be newer than the runs that have them now.
    fn may_update(&self, keys: &Bounds) -> bool {
        let Self { level_run, merge, .. } = self;
        !level_run.fenced.is_clipped()
            && merge.bounds.intersection(keys) == merge.bounds
            && level_run.cover.as_ref().is_none_or(|cover| cover.intersection(&merge.bounds) == *cover)
    }

    fn incoming(&self) -> IncomingEntries<Box<dyn Cursor + Send>> {
        let above = self.merge.layers.split_last().map_or(&[][..], |(_, above)| above);
        IncomingEntries {
            run: Arc::clone(self.level_run.run()),
            sources: above.iter().cloned().map(layer_cursor).collect(),
            newest_seqno: self.merge.newest_seqno,
            cover: self.level_run.cover.clone(),
        }
    }

    /// Returns the run with a new version in its place.
    fn updated(self, run: Arc<Run>, work: &Work) -> LevelRun {
        let Self { level_run, merge, .. } = self;
        let (new, old) = (run.reference().user_bytes, level_run.run().reference().user_bytes);
        debug_assert!(
            run.reference().newest_seqno >= merge.newest_seqno,
            "a version is as new as the entries that came into it"
        );
        work.progress.advance(merge.bytes);
        let bytes = (level_run.bytes + new).saturating_sub(old).min(new);
        let fenced = FencedRun { low: level_run.fenced.low, run };
        LevelRun { fenced, bytes, cover: level_run.cover, object: level_run.object }
    }

    /// Merges the incoming entries with the whole run.
    fn rewritten(
        self,
        keys: &Bounds,
        work: &Work,
        options: &LsmOptions,
        forecast: Option<&JobForecast>,
    ) -> Result<ChunkRuns> {
        let Self { mut merge, bytes_max, .. } = self;
        merge.bounds = merge.bounds.intersection(keys);
        let mut written = ChunkRuns::default();
        for chunk in cut_merge(&merge, bytes_max)? {
            written.add(write_chunk(chunk, work, options, forecast)?);
        }
        Ok(written)
    }
}
