//! Gathering pages: a run whose replaced pages are scattered over its places is rewritten in key order, once
//! scans have paid for it.
//!
//! Replaced pages stay in their slot group while it has free places. Where updates come faster than places
//! become free, some end up elsewhere, and a scan needs further reads for them. Those reads are counted for
//! each run. Once they have cost as much as a rewrite, the run is rewritten; while the store is idle,
//! earlier. So a tree that is never scanned writes nothing for it, and one that is scanned pays at most
//! twice.
//!
//! **Invariants**
//! - The entries of the run and its age stay the same.
//! - Counts are hints: losing them costs time, never an answer.

use testudo_base::{Result, planted};

use crate::{
    LsmOptions,
    levels::{
        Levels,
        component::LevelRun,
        written_counts::{PageCounts, WrittenCounts},
    },
    update::{
        destination::{Destination, Place},
        plan::{Cell, merge_of_run},
    },
};

/// Cost of a further read, in bytes that a device reads in the same time.
const READ_BYTES: u64 = 8 << 10;
/// While idle, this fraction of the cost suffices: no query waits for the device.
const IDLE_PARTS: u64 = 16;
/// Fewer further reads are not worth a job.
const READS_MIN: u64 = 64;

/// Whether scans have paid for rewriting a run. It is read and written.
pub(crate) fn is_due(level_run: &LevelRun, is_idle: bool) -> bool {
    let run = level_run.run();
    let price = level_run.bytes * 2 / if is_idle { IDLE_PARTS } else { 1 };
    let is_whole = !level_run.fenced.is_clipped();
    let reads = run.scattered_reads();
    is_whole && run.reference().replaced.is_some() && reads >= READS_MIN && reads * READ_BYTES > price
}

/// Returns the number of a run of the bottom whose pages are worth gathering.
pub(crate) fn pick(levels: &Levels, options: &LsmOptions, is_idle: bool) -> Option<usize> {
    if !options.updates_pages {
        return None;
    }
    levels.bottom.iter().position(|level_run| is_due(level_run, is_idle))
}

/// Plans the rewrite of a run of the bottom.
pub(crate) fn plan(levels: &Levels, at: usize) -> Result<Destination> {
    debug_assert!(at < levels.bottom.len(), "a run of the bottom");
    let runs = || levels.bottom.range(at..at + 1);
    let mut merge = merge_of_run(runs().cloned().collect())?;
    if planted!("gathered-run-looks-newer") {
        merge.iter_mut().for_each(|merge| merge.newest_seqno.0 += 1_000);
    }
    let cells: Vec<Cell> = merge.map(Cell::Merge).into_iter().collect();
    let groups = runs().map(|level_run| level_run.run().reference().group_count());
    let moved_groups = groups.map(u64::from).sum();
    let pages = PageCounts { moved_groups, ..PageCounts::default() };
    let counts = WrittenCounts { pages, ..WrittenCounts::default() };
    let (place, range, start, border) = (Place::Bottom, at..at + 1, None, None);
    let mut destination =
        Destination { place, range, cells, start, border, incoming: 0, emptied: None, counts };
    destination.state_covers(levels)?;
    Ok(destination)
}
