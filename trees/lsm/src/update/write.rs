//! Executing a plan: each merge is written by one streaming merge of all its inputs, or by several, of
//! consecutive ranges, and updates of pages in batches, all in parallel (fork/join).
//!
//! **Invariants**
//! - Nothing is written outside the tree's range of keys; its runs may still have such keys (`migrate.rs`).

use testudo_base::{
    Error, ErrorKind, Result,
    num::u64_of,
    sync::{Arc, Mutex},
};
use testudo_contract::{Task, Work};
use testudo_sequence::Bounds;

use crate::{
    LsmOptions,
    forecast::JobForecast,
    levels::{component::LevelRun, written_counts::WrittenCounts},
    policy::part_of,
    update::{
        chunks::{ChunkRuns, cut_merge, write_chunk},
        destination::Destination,
        page_batch::{PagesBatch, PagesCell},
        plan::Cell,
    },
};

/// Parts per worker: slack, so that the workers end together although sizes are estimates.
const PARTS_PER_WORKER: u64 = 2;
/// Minimum size of a part, in runs: each part ends with a run that may be small.
const PART_RUNS_MIN: u64 = 2;

/// Slot for the runs of a chunk.
type ChunkResult = Arc<Mutex<Option<Result<ChunkRuns>>>>;

/// Common inputs of all tasks.
struct Writing<'a> {
    work: &'a Work,
    options: &'a LsmOptions,
    forecast: Option<Arc<JobForecast>>,
}

/// Result of a cell.
enum Written {
    Stays(LevelRun),
    Chunks(Vec<ChunkResult>),
}

/// Writes the runs of each destination, in key order, and sets its counts. `forecast`: of the bottom, if it
/// gets free space for inserts.
pub(crate) fn write_all(
    destinations: &mut [Destination],
    work: &Work,
    options: &LsmOptions,
    forecast: Option<Arc<JobForecast>>,
) -> Result<Vec<Vec<LevelRun>>> {
    let writing = Writing { work, options, forecast };
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
        let mut batch = PagesBatch::default();
        for cell in &mut destination.cells {
            if batch.is_full() || !matches!(cell, Cell::Pages(..)) {
                cells.extend(begin_batch(std::mem::take(&mut batch), &writing, &mut tasks));
            }
            let merge = match cell {
                Cell::Stays(level_run) => {
                    cells.push(Written::Stays(level_run.clone()));
                    continue;
                }
                Cell::Merge(merge) => merge,
                Cell::Pages(level_run, merge) => {
                    let (level_run, merge) = (level_run.clone(), merge.clone());
                    batch.push(PagesCell { level_run, merge, bytes_max });
                    continue;
                }
            };
            merge.bounds = merge.bounds.intersection(&keys);
            let mut chunks = Vec::new();
            for chunk in cut_merge(merge, bytes_max)? {
                let result = Arc::new(Mutex::new(None));
                chunks.push(Arc::clone(&result));
                let (work, options, bytes) = (work.clone(), *options, chunk.bytes);
                let forecast = writing.forecast.clone();
                let write = move || write_chunk(chunk, &work, &options, forecast.as_deref());
                let task = move || *result.lock() = Some(write());
                tasks.push((bytes, Box::new(task)));
            }
            cells.push(Written::Chunks(chunks));
        }
        cells.extend(begin_batch(batch, &writing, &mut tasks));
        results.push(cells);
    }
    debug_assert_eq!(results.len(), destinations.len(), "each destination has its results");
    // Longest first, so that the workers end together.
    tasks.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    work.executor.run_all(tasks.into_iter().map(|(_, task)| task).collect());
    let counts = destinations.iter_mut().map(|destination| &mut destination.counts);
    results.into_iter().zip(counts).map(|(cells, counts)| joined(cells, counts)).collect()
}

/// Adds the task of a batch of page updates, if there is one.
fn begin_batch(batch: PagesBatch, writing: &Writing<'_>, tasks: &mut Vec<(u64, Task)>) -> Option<Written> {
    if batch.is_empty() {
        return None;
    }
    let result = Arc::new(Mutex::new(None));
    let written = Written::Chunks(vec![Arc::clone(&result)]);
    let (work, options, bytes) = (writing.work.clone(), *writing.options, batch.merge_bytes);
    let forecast = writing.forecast.clone();
    let write = move || batch.write(&work, &options, forecast.as_deref());
    tasks.push((bytes, Box::new(move || *result.lock() = Some(write()))));
    Some(written)
}

/// Collects the runs of one destination.
fn joined(cells: Vec<Written>, counts: &mut WrittenCounts) -> Result<Vec<LevelRun>> {
    let missing = || Error::new(ErrorKind::Poisoned, "background work was lost");
    let mut runs = Vec::new();
    for cell in cells {
        match cell {
            Written::Stays(level_run) => runs.push(level_run),
            Written::Chunks(chunks) => {
                for chunk in chunks {
                    let chunk = chunk.lock().take().unwrap_or_else(|| Err(missing()))?;
                    counts.add(chunk.counts);
                    runs.extend(chunk.runs);
                }
            }
        }
    }
    Ok(runs)
}
