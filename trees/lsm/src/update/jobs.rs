//! Jobs of a leveled tree: overdue moves between levels, moves of tombstones, joins of small bottom runs,
//! and, while idle, moves of the remaining data above the bottom.
//!
//! **Invariants**
//! - Each job moves bytes towards the bottom, reduces the number of runs or sequences, or drops damaged runs:
//!   jobs terminate.

use std::ops::Range;

use testudo_base::{Result, planted};
use testudo_contract::{Job, JobRequest, Opaque, RangeJob, Scope, Work};
use testudo_run::KeyBounds;
use testudo_sequence::{Bounds, Fence};

use crate::{
    LsmOptions,
    levels::{
        Level, Levels,
        component::{Component, LevelRun},
        repeats::Inflow,
    },
    policy::IDLE_BYTES,
    update::{
        compact_range::{above_bytes, pick_step, write_range},
        destination::{Destination, Place},
        install::Done,
        moves::{Amount, own_layer},
        plan::{Cell, Floor, MergeLayer, plan_cells, runs_within},
        tombstones::{WorthMoving, pick_level, written_max},
        write::write_all,
    },
};

/// Action of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Moves about `bytes` of this level down.
    Move {
        level: usize,
        bytes: u64,
        /// The move ends when about this many bytes are written, those of the destination included.
        written_max: u64,
        /// Scan charges that it deducts.
        price: u64,
    },
    /// Joins these runs of the bottom.
    Join(Range<usize>),
    /// Merges these sequences of those that fill level 1.
    MergeFlushes(Range<usize>),
    /// Drops damaged runs from compaction buffers.
    GiveUpDamaged,
    /// Moves everything inside these bounds from all levels to the bottom.
    CompactRange(Bounds),
}

/// Description of a job that moves tombstones.
pub(crate) const FOR_TOMBSTONES: &str = "empty a level of tombstones";

/// Bytes that a job moves out of a level at least, in runs.
const IDLE_RUNS: u64 = 4;
/// A run of less than one in this many bytes of a full one is small.
const SMALL_RUN_PARTS: u64 = 4;
/// Minimum number of adjacent small runs to join.
const JOINED_RUNS_MIN: usize = 4;

/// Picks the most urgent job, if any. `scanned_bytes`: scan charges above the bottom that no move has
/// deducted yet.
pub(crate) fn pick_job(
    levels: &Levels,
    options: &LsmOptions,
    scanned_bytes: u64,
    request: &JobRequest<'_>,
) -> Option<Job> {
    if !request.allows(&Scope::all()) {
        return None;
    }
    let is_idle = request.is_idle;
    let job = |what: &'static str, debt_bytes: u64, action: Action| {
        Some(Job { what, debt_bytes, scope: Scope::all(), target: Opaque::new(action) })
    };
    let step = IDLE_BYTES.max(options.run_bytes * IDLE_RUNS);
    let empty = |what: &'static str, level: usize, price: u64| {
        let debt = levels.levels[level].filling_bytes() + levels.levels[level].emptying_bytes();
        job(what, debt, Action::Move { level, bytes: step, written_max: u64::MAX, price })
    };
    if levels.has_damaged_retained() {
        return job("drop damaged retained runs", 0, Action::GiveUpDamaged);
    }
    let tree = levels.to_bytes();
    if let Some((level, bytes)) = options.next_move(&tree, &options.capacities(&tree)) {
        return job("move runs down", bytes, Action::Move { level, bytes, written_max: u64::MAX, price: 0 });
    }
    if let Some(WorthMoving { level, saved_bytes }) = pick_level(levels, is_idle) {
        let written_max =
            if planted!("tombstones-moved-all-at-once") { u64::MAX } else { written_max(options) };
        let action = Action::Move { level, bytes: step, written_max, price: 0 };
        return job(FOR_TOMBSTONES, saved_bytes, action);
    }
    let next = next_to_empty(levels);
    if let Some(level) = next {
        let price = tree.move_bytes(level, step);
        if price <= scanned_bytes {
            return empty("empty a scanned level", level, price);
        }
    }
    let parts = || levels.levels.first().map(|level| &level.filling[..]).unwrap_or_default();
    let sizes: Vec<u64> = parts().iter().map(Component::bytes).collect();
    if let Some(many) = options.parts_to_merge(&sizes) {
        return job("merge many flushes", sizes[many.clone()].iter().sum(), Action::MergeFlushes(many));
    }
    if let Some(runs) = small_runs(levels, options) {
        let bytes = levels.bottom.range(runs.clone()).map(|level_run| level_run.bytes).sum();
        return job("join small runs", bytes, Action::Join(runs));
    }
    if !is_idle {
        return None;
    }
    if options.has_idle_work(&tree)
        && let Some(level) = next
    {
        return empty("empty a level while idle", level, 0);
    }
    let all = 0..parts().len();
    (all.len() > 1)
        .then(|| job("merge flushes while idle", sizes.iter().sum(), Action::MergeFlushes(all)))
        .flatten()
}

/// Picks the job that compacts the first part of `range` with data above the bottom.
pub(crate) fn pick_range(
    levels: &Levels,
    options: &LsmOptions,
    range: &KeyBounds,
) -> Result<Option<RangeJob>> {
    let Some(bounds) = pick_step(levels, options, range)? else { return Ok(None) };
    let debt_bytes = above_bytes(levels, &bounds)?;
    let done_below = bounds.high.as_ref().map(Fence::to_vec);
    let target = Opaque::new(Action::CompactRange(bounds));
    let job = Job { what: "compact a range", debt_bytes, scope: Scope::all(), target };
    Ok(Some(RangeJob { job, done_below }))
}

/// Plans the output of a job, and returns the level that it hands over: `levels` are changed accordingly.
fn plan_job(
    levels: &mut Levels,
    options: &LsmOptions,
    job: &Job,
) -> Result<(Option<Destination>, Option<usize>)> {
    match job.target.of::<Action>() {
        // Every edit does it.
        Some(Action::GiveUpDamaged) => Ok((None, None)),
        Some(Action::CompactRange(_)) => unreachable!("a piece of a range has a plan of its own"),
        Some(Action::Join(runs)) => Ok((Some(plan_join(levels, runs.clone(), options)?), None)),
        Some(Action::MergeFlushes(parts)) => Ok((Some(plan_merge(levels, parts.clone(), options)?), None)),
        Some(Action::Move { level, bytes, written_max, .. }) => {
            debug_assert!(*level < levels.levels.len(), "a job is planned on the levels it was picked from");
            let handed_over = (!levels.levels[*level].is_emptying()).then_some(*level);
            if handed_over.is_some() {
                levels.levels[*level].hand_over();
            }
            let amount = Amount { bytes: *bytes, written_max: *written_max };
            Ok((levels.plan_move(*level, amount, options)?, handed_over))
        }
        None => panic!("{job:?} was chosen by a tree of another family"),
    }
}

/// Plans and writes a job of these levels.
pub(crate) fn prepare(levels: &Levels, options: &LsmOptions, work: &Work, job: &Job) -> Result<Done> {
    if let Some(Action::CompactRange(bounds)) = job.target.of() {
        let (piece, written) = write_range(levels, bounds, work, options)?;
        let (planned, piece) = (levels.clone(), Some(piece));
        return Ok(Done { planned, handed_over: None, written, piece, price: 0 });
    }
    let mut planned = levels.clone();
    let (mut destination, handed_over) = plan_job(&mut planned, options, job)?;
    let runs = write_all(destination.as_mut_slice(), work, options)?.pop().unwrap_or_default();
    let written = destination.map(|destination| (destination, runs));
    Ok(Done { planned, handed_over, written, piece: None, price: price_of(job) })
}

/// Scan charges that a job deducts.
fn price_of(job: &Job) -> u64 {
    match job.target.of::<Action>() {
        Some(Action::Move { price, .. }) => *price,
        _ => 0,
    }
}

/// Returns the level to empty next if all are to be emptied: the lowest that is being emptied, otherwise the
/// uppermost, so that all data above meets the bottom at once.
fn next_to_empty(levels: &Levels) -> Option<usize> {
    let levels = &levels.levels;
    let emptying = levels.iter().rposition(Level::is_emptying);
    emptying.or_else(|| levels.iter().position(|level| !level.is_empty()))
}

/// Returns adjacent runs of the bottom that are worth joining.
fn small_runs(levels: &Levels, options: &LsmOptions) -> Option<Range<usize>> {
    let mut from = 0;
    let mut bytes = 0;
    for (at, level_run) in levels.bottom.iter().enumerate() {
        if level_run.bytes >= options.run_bytes / SMALL_RUN_PARTS
            || bytes + level_run.bytes > options.run_bytes
        {
            (from, bytes) = (at + 1, 0);
            continue;
        }
        bytes += level_run.bytes;
        if at + 1 - from >= JOINED_RUNS_MIN && can_join(levels, from..at + 1) {
            return Some(from..at + 1);
        }
    }
    None
}

/// Whether all data above the runs is newer than the newest of them.
pub(crate) fn can_join(levels: &Levels, range: Range<usize>) -> bool {
    let runs = || levels.bottom.range(range.clone());
    let newest = runs().map(LevelRun::newest_seqno).max().unwrap_or_default();
    let ends = runs().map(LevelRun::extent).collect::<Result<Vec<_>>>();
    let Ok(ends) = ends else { return false };
    let (Some(first), Some(last)) = (ends.first(), ends.last()) else { return false };
    let covers = || runs().filter_map(|level_run| level_run.cover.as_ref());
    let low = covers().map(|cover| cover.low.clone()).min().unwrap_or_default().min(first.low.as_low());
    let is_open = covers().any(|cover| cover.high.is_none());
    let high = covers().filter_map(|cover| cover.high.clone()).max();
    let high = (!is_open).then(|| high.map_or(last.high.clone(), |high| high.max(last.high.clone())));
    let bounds = Bounds { low, high };
    levels.upper().all(|component| {
        component.range(component.within(&bounds)).all(|level_run| level_run.newest_seqno() > newest)
    })
}

/// Plans a join of adjacent runs of the bottom.
pub(crate) fn plan_join(levels: &Levels, range: Range<usize>, options: &LsmOptions) -> Result<Destination> {
    debug_assert!(range.len() > 1 && range.end <= levels.bottom.len(), "two or more runs of the bottom");
    // Each is a layer of its own: a single layer would stay as it is.
    let runs: Vec<LevelRun> = levels.bottom.range(range.clone()).cloned().collect();
    let mut layers: Vec<MergeLayer> =
        runs.into_iter().map(|level_run| MergeLayer::Runs(vec![level_run])).collect();
    layers.push(MergeLayer::Runs(Vec::new()));
    let mut cells = plan_cells(&layers, &Bounds::default(), Floor::Bottom, options)?;
    for cell in &mut cells {
        if let Cell::Merge(merge) = cell {
            merge.consumed = levels.bottom.range(range.clone()).cloned().collect();
        }
    }
    let (place, start, border, incoming) = (Place::Bottom, None, None, 0);
    let last = levels.levels.len().checked_sub(1);
    let emptied = last.filter(|_| planted!("join-empties-level"));
    let inflow = Inflow::default();
    let mut destination = Destination { place, range, cells, start, border, incoming, emptied, inflow };
    destination.state_covers(levels)?;
    Ok(destination)
}

/// Plans a merge of adjacent sequences that fill level 1.
pub(crate) fn plan_merge(levels: &Levels, parts: Range<usize>, options: &LsmOptions) -> Result<Destination> {
    let filling = &levels.levels[0].filling;
    debug_assert!(!parts.is_empty() && parts.end <= filling.len(), "sequences that fill level 1");
    let own = filling[parts.end - 1].clone();
    let above = filling[parts.start..parts.end - 1].iter();
    let mut layers: Vec<MergeLayer> =
        above.map(|component| runs_within(component, &Bounds::default())).collect();
    layers.push(own_layer(&own, 0..own.len()));
    let cells = plan_cells(&layers, &Bounds::default(), Floor::Entries(levels.height_of(0)), options)?;
    let (place, range) = (Place::Parts { from: parts.start, count: parts.len() }, 0..own.len());
    let (incoming, inflow) = (0, Inflow::default());
    Ok(Destination { place, range, cells, start: None, border: None, incoming, emptied: None, inflow })
}
