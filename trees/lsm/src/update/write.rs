//! Executing a plan: each merge is written by one streaming merge of all its inputs, or by several, of
//! consecutive ranges, in parallel (fork/join).
//!
//! **Invariants**
//! - Tombstones are dropped if and only if a run of the bottom is written. A run that would become empty
//!   keeps the first of them: it records that the rest is gone.
//! - A written run is as new as the newest source of its whole merge, wherever that was cut.
//! - Nothing is written outside the tree's range of keys; its runs may still have such keys (`migrate.rs`).

use testudo_base::{
    Cursor, DropSink, Entry, Error, ErrorKind, Kind, MergeDrops, PAGE_BYTES, Result, Seqno,
    num::{low64, u64_of},
    sync::{Arc, Mutex},
};
use testudo_contract::{Height, Task, Work};
use testudo_run::{MergeCursor, RunLayout};
use testudo_sequence::{
    Bounds, Fence, FencedRun, Layer, PageUpdateLimits, PagesUpdated, Pushed, RunSequence, SequenceOrigin,
    clip_layer, layer_cursor, layer_cursors, mean_entry_bytes, shared_prefix, update_pages,
};

use crate::{
    LsmOptions,
    levels::{component::LevelRun, repeats::Inflow},
    policy::part_of,
    update::{
        destination::Destination,
        plan::{Cell, Floor, Merge},
    },
};

/// Parts per worker: slack, so that the workers end together although sizes are estimates.
const PARTS_PER_WORKER: u64 = 2;
/// Minimum size of a part, in runs: each part ends with a run that may be small.
const PART_RUNS_MIN: u64 = 2;
/// Inverse of the fraction of a run that is worth a run of its own.
const WORTH_A_RUN_PARTS: u64 = 2;
/// Halves of a full run at which the open one is cut, however little is left.
const LARGEST_RUN_HALVES: u64 = 3;
/// A separately written page costs more than one written as part of a run.
pub(crate) const PAGE_UPDATE_LIMITS: PageUpdateLimits = PageUpdateLimits { parts: 6, extra_parts: 6 };

/// Input of one worker.
#[derive(Debug)]
struct Chunk {
    layers: Vec<Layer>,
    bytes: u64,
    bounds: Bounds,
    newest_seqno: Seqno,
    floor: Floor,
    /// The last layer is the destination's own.
    has_own: bool,
}

/// Output of a chunk.
#[derive(Debug, Default)]
struct ChunkRuns {
    runs: Vec<LevelRun>,
    inflow: Inflow,
}

/// Page updates of a run of the bottom, for one worker.
#[derive(Debug)]
struct PagesCell {
    level_run: LevelRun,
    /// The merge with the whole run, in case that costs less.
    merge: Merge,
    bytes_max: u64,
}

/// Slot for the runs of a chunk.
type ChunkResult = Arc<Mutex<Option<Result<ChunkRuns>>>>;

/// Result of a cell.
enum Written {
    Stays(LevelRun),
    Chunks(Vec<ChunkResult>),
}

/// Writes the runs of each destination, in key order, and sets its counts of incoming keys.
pub(crate) fn write_all(
    destinations: &mut [Destination],
    work: &Work,
    options: &LsmOptions,
) -> Result<Vec<Vec<LevelRun>>> {
    let total = destinations.iter().map(Destination::merged_bytes).sum::<u64>();
    work.progress.expect(total);
    // A single worker cuts too, so that single-threaded tests exercise the same code.
    let workers = u64_of(work.executor.workers()).max(2);
    let all_bytes = work.bytes_with_values(total);
    let bytes_max = all_bytes.div_ceil(workers * PARTS_PER_WORKER).max(options.run_bytes * PART_RUNS_MIN);
    let bytes_max = part_of(bytes_max, total as f64 / all_bytes.max(1) as f64);
    let mut tasks: Vec<(u64, Task)> = Vec::new();
    let mut results = Vec::with_capacity(destinations.len());
    let keys = Bounds::from(&work.keys);
    for destination in &mut *destinations {
        let mut cells = Vec::new();
        for cell in &mut destination.cells {
            let merge = match cell {
                Cell::Stays(level_run) => {
                    cells.push(Written::Stays(level_run.clone()));
                    continue;
                }
                Cell::Merge(merge) => merge,
                Cell::Pages(level_run, merge) => {
                    let result = Arc::new(Mutex::new(None));
                    cells.push(Written::Chunks(vec![Arc::clone(&result)]));
                    let (work, options, bytes) = (work.clone(), *options, merge.bytes);
                    let cell = PagesCell { level_run: level_run.clone(), merge: merge.clone(), bytes_max };
                    let task = move || *result.lock() = Some(write_pages(cell, &work, &options));
                    tasks.push((bytes, Box::new(task)));
                    continue;
                }
            };
            merge.bounds = merge.bounds.intersection(&keys);
            let mut chunks = Vec::new();
            for chunk in cut_merge(merge, bytes_max)? {
                let result = Arc::new(Mutex::new(None));
                chunks.push(Arc::clone(&result));
                let (work, options, bytes) = (work.clone(), *options, chunk.bytes);
                let task = move || *result.lock() = Some(write_chunk(chunk, &work, &options));
                tasks.push((bytes, Box::new(task)));
            }
            cells.push(Written::Chunks(chunks));
        }
        results.push(cells);
    }
    debug_assert_eq!(results.len(), destinations.len(), "each destination has its results");
    // Longest first, so that the workers end together.
    tasks.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    work.executor.run_all(tasks.into_iter().map(|(_, task)| task).collect());
    let inflows = destinations.iter_mut().map(|destination| &mut destination.inflow);
    results.into_iter().zip(inflows).map(|(cells, inflow)| joined(cells, inflow)).collect()
}

/// Collects the runs of one destination.
fn joined(cells: Vec<Written>, inflow: &mut Inflow) -> Result<Vec<LevelRun>> {
    let missing = || Error::new(ErrorKind::Poisoned, "background work was lost");
    let mut runs = Vec::new();
    for cell in cells {
        match cell {
            Written::Stays(level_run) => runs.push(level_run),
            Written::Chunks(chunks) => {
                for chunk in chunks {
                    let chunk = chunk.lock().take().unwrap_or_else(|| Err(missing()))?;
                    inflow.add(chunk.inflow);
                    runs.extend(chunk.runs);
                }
            }
        }
    }
    Ok(runs)
}

/// Writes incoming entries into the pages of a run, or rewrites the run.
fn write_pages(cell: PagesCell, work: &Work, options: &LsmOptions) -> Result<ChunkRuns> {
    let PagesCell { level_run, mut merge, bytes_max } = cell;
    let keys = Bounds::from(&work.keys);
    // The run's keys outside the tree's range would be written with its pages. A run whose cover extends
    // beyond its fences would claim completeness for newer keys there. A run that has given keys away would
    // claim to be newer than the runs that have them now.
    let is_inside = !level_run.fenced.is_clipped()
        && merge.bounds.intersection(&keys) == merge.bounds
        && level_run.cover.as_ref().is_none_or(|cover| cover.intersection(&merge.bounds) == *cover);
    if let Some((_, incoming)) = merge.layers.split_last().filter(|_| is_inside) {
        let sources = incoming.iter().cloned().map(layer_cursor).collect();
        let is_stated = |key: &[u8]| level_run.cover.as_ref().is_some_and(|cover| cover.contains(key));
        let (run, newest_seqno) = (level_run.run(), merge.newest_seqno);
        let limits = PAGE_UPDATE_LIMITS;
        if let Some(PagesUpdated { run, .. }) =
            update_pages(work, run, sources, newest_seqno, limits, is_stated)?
        {
            let (new, old) = (run.reference().user_bytes, level_run.run().reference().user_bytes);
            let bytes = (level_run.bytes + new).saturating_sub(old).min(new);
            debug_assert!(
                run.reference().newest_seqno >= newest_seqno,
                "a version is as new as what came into it"
            );
            work.progress.advance(merge.bytes);
            let fenced = FencedRun { low: level_run.fenced.low.clone(), run };
            let runs = vec![LevelRun { fenced, bytes, cover: level_run.cover }];
            return Ok(ChunkRuns { runs, ..ChunkRuns::default() });
        }
    }
    merge.bounds = merge.bounds.intersection(&keys);
    let mut written = ChunkRuns::default();
    for chunk in cut_merge(&merge, bytes_max)? {
        let ChunkRuns { runs, inflow } = write_chunk(chunk, work, options)?;
        written.runs.extend(runs);
        written.inflow.add(inflow);
    }
    Ok(written)
}

/// Returns the chunks of a merge, in key order, each at most about `bytes_max`, as far as its sources permit.
fn cut_merge(merge: &Merge, bytes_max: u64) -> Result<Vec<Chunk>> {
    let Merge { bounds, newest_seqno, floor, .. } = merge;
    let borders = with_entries_between(merge, borders_of(merge, bytes_max))?;
    let mut chunks = Vec::with_capacity(borders.len() + 1);
    let mut low = bounds.low.clone();
    let ends = borders.iter().cloned().map(Some).chain([bounds.high.clone()]);
    for high in ends {
        let bounds = Bounds { low: low.take(), high: high.clone() };
        let mut layers: Vec<Layer> = merge.layers.iter().map(|layer| clip_layer(layer, &bounds)).collect();
        let has_own = merge.has_own && layers.last().is_some_and(|own| !own.is_empty());
        layers.retain(|layer| !layer.is_empty());
        let mut bytes = merge.bytes;
        if !borders.is_empty() {
            bytes = 0;
            for slice in layers.iter().flatten() {
                bytes += slice.bytes_within(&Bounds::default())?;
            }
        }
        let (newest_seqno, floor) = (*newest_seqno, *floor);
        chunks.push(Chunk { layers, bytes, bounds, newest_seqno, floor, has_own });
        low = high;
    }
    debug_assert_eq!(chunks.len(), borders.len() + 1, "chunks are together the whole");
    Ok(chunks)
}

/// Returns those of `borders` that leave entries in each chunk. An empty chunk has no run that would state
/// its part of the covered range. A run that was cut may begin long after its fence.
fn with_entries_between(merge: &Merge, borders: Vec<Fence>) -> Result<Vec<Fence>> {
    let holds_any = |bounds: &Bounds| -> Result<bool> {
        for slice in merge.layers.iter().flatten() {
            if slice.holds_any(bounds)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let mut kept: Vec<Fence> = Vec::with_capacity(borders.len());
    let low_of = |kept: &[Fence]| kept.last().cloned().or_else(|| merge.bounds.low.clone());
    for border in borders {
        if holds_any(&Bounds { low: low_of(&kept), high: Some(border.clone()) })? {
            kept.push(border);
        }
    }
    while !kept.is_empty() && !holds_any(&Bounds { low: low_of(&kept), high: merge.bounds.high.clone() })? {
        kept.pop();
    }
    Ok(kept)
}

/// Returns the keys at which a merge is cut, by the first keys of its sources and the bytes that begin there.
fn borders_of(merge: &Merge, bytes_max: u64) -> Vec<Fence> {
    let count = merge.bytes.div_ceil(bytes_max.max(1));
    let all: u64 = merge.cuts.iter().map(|(_, bytes)| bytes).sum();
    let mut borders: Vec<Fence> = Vec::new();
    let mut before = 0u64;
    for (key, bytes) in &merge.cuts {
        let due = low64(u128::from(all) * u128::from(u64_of(borders.len()) + 1) / u128::from(count.max(1)));
        let is_inside = merge.bounds.low.as_ref().is_none_or(|low| low < key)
            && merge.bounds.high.as_ref().is_none_or(|high| key < high);
        let is_new = borders.last().is_none_or(|last| last < key) && !key.is_empty();
        if u64_of(borders.len()) + 1 < count && before >= due && is_inside && is_new {
            borders.push(key.clone());
        }
        before += bytes;
    }
    debug_assert!(borders.is_sorted_by(|a, b| a < b), "borders ascend");
    borders
}

/// Merges the layers into runs of about equal size.
fn write_chunk(chunk: Chunk, work: &Work, options: &LsmOptions) -> Result<ChunkRuns> {
    let Chunk { layers, bytes, bounds, newest_seqno, floor, has_own } = chunk;
    let layout = match floor {
        Floor::Bottom if options.updates_pages => options.bottom_layout(mean_entry_bytes(&layers)?),
        _ => RunLayout::default(),
    };
    let shared_bytes = shared_prefix(&layers);
    let sources = layer_cursors(layers);
    let mut merge = MergeCursor::with_sink(sources, shared_bytes, MergeDrops::default());
    let runs_expected = bytes.div_ceil(options.run_bytes).max(1);
    let target = (bytes / runs_expected).clamp(1, options.run_bytes);
    let keeps_tombstones = floor == Floor::Nothing;
    let height = match floor {
        Floor::Entries(height) => height,
        Floor::Nothing | Floor::Bottom => Height::Bottom,
    };
    let origin = SequenceOrigin { newest_seqno, target, height, keeps_tombstones, layout };
    let mut runs = RunSequence::new(work, origin, bounds.to_keys(), None)?;
    merge.seek_first()?;
    let first = merge.entry().map(|entry| entry.key.to_vec());
    let mut inflow = Inflow::default();
    let counted = (options.retained_percent > 0).then_some(&mut inflow);
    let reported = write_entries(&mut merge, &mut runs, Entering { target, bytes, has_own, counted })?;
    let mut written = runs.finish()?;
    let mut drops = merge.into_sink();
    if written.is_empty()
        && floor == Floor::Bottom
        && let Some(key) = first
    {
        // No tombstone is left to record that the range is empty.
        let mut runs = RunSequence::new(work, origin, bounds.to_keys(), None)?;
        let tombstone = Entry { key: &key, kind: Kind::Tombstone, value: &[] };
        runs.push(&tombstone)?;
        drops.made(&tombstone);
        written = runs.finish()?;
    }
    debug_assert!(inflow.repeated <= inflow.entries, "repeated keys are among those that came");
    work.progress.record_drops(drops);
    work.progress.advance(bytes.saturating_sub(reported));
    let lows: Vec<Fence> = written.iter().map(|fenced| fenced.low.clone()).collect();
    let level_run = written.into_iter().enumerate().map(|(at, fenced)| {
        let high = lows.get(at + 1).or(bounds.high.as_ref()).cloned();
        let cover = (height == Height::Bottom).then(|| Bounds { low: lows[at].as_low(), high });
        LevelRun { bytes: fenced.run.reference().user_bytes, fenced, cover }
    });
    Ok(ChunkRuns { runs: level_run.collect(), inflow })
}

/// Properties of a merge's input.
struct Entering<'a> {
    /// Target bytes of a run.
    target: u64,
    /// Approximate bytes of input.
    bytes: u64,
    has_own: bool,
    /// Counters for the keys from above, if they are counted.
    counted: Option<&'a mut Inflow>,
}

/// Counts the current key, if it comes from above.
fn count_inflow<C: Cursor>(merge: &MergeCursor<C, MergeDrops>, has_own: bool, inflow: &mut Inflow) {
    if !(has_own && merge.stands_on_oldest()) {
        inflow.entries += 1;
        inflow.repeated += u64::from(has_own && merge.hides_oldest());
    }
}

/// Writes all entries of a merge; returns the number of passed bytes that were reported as progress.
fn write_entries<C: Cursor>(
    merge: &mut MergeCursor<C, MergeDrops>,
    runs: &mut RunSequence<'_>,
    entering: Entering<'_>,
) -> Result<u64> {
    let Entering { target, bytes: incoming, has_own, mut counted } = entering;
    let mut reported = 0;
    while let Some(entry) = merge.entry() {
        if let Some(inflow) = &mut counted {
            count_inflow(merge, has_own, inflow);
        }
        let resolved = runs.resolve_operands(&entry)?;
        let entry = match &resolved {
            None => entry,
            Some((kind, value)) => Entry { kind: *kind, value, ..entry },
        };
        let pushed = runs.push(&entry)?;
        if pushed != Pushed::Ended && merge.is_warm() {
            runs.note_warm();
        }
        merge.next()?;
        if pushed == Pushed::Ended {
            continue;
        }
        let open_bytes = runs.open_bytes();
        if open_bytes < PAGE_BYTES || open_bytes + PAGE_BYTES <= target {
            continue;
        }
        // A remainder too small for its own run goes to the run before it.
        let passed = merge.passed_bytes().saturating_sub(runs.separated_bytes());
        let left = incoming.saturating_sub(passed);
        if left > target / WORTH_A_RUN_PARTS || open_bytes >= target * LARGEST_RUN_HALVES / 2 {
            debug_assert!(reported <= merge.passed_bytes(), "progress only grows");
            runs.cut();
            runs.report(merge.passed_bytes() - reported);
            reported = merge.passed_bytes();
        }
    }
    Ok(reported)
}
