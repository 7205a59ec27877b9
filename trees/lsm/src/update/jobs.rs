//! Jobs of a leveled tree: overdue moves between levels, moves of tombstones, joins of small bottom runs,
//! and, while idle, moves of the remaining data above the bottom.
//!
//! **Invariants**
//! - A job merges at most [`job_bytes_max`], those bytes of its destination included.
//! - Jobs in flight read and replace different layers.
//! - Each job moves bytes towards the bottom, reduces the number of runs or sequences, or drops damaged runs:
//!   jobs terminate.

use std::{ops::Range, sync::Arc};

use testudo_base::{Result, planted};
use testudo_contract::{Job, JobRequest, Opaque, RangeJob, Scope, Work};
use testudo_run::KeyBounds;
use testudo_sequence::Bounds;

use crate::{
    LsmOptions,
    levels::{
        Level, Levels,
        component::{Component, LevelRun},
        written_counts::WrittenCounts,
    },
    policy::IDLE_BYTES,
    read_charges::{ReadCharges, ReadPayment},
    update::{
        compact_range::{above_bytes, pick_step, write_range},
        destination::{Destination, Place},
        gather,
        install::Done,
        moves::{Amount, own_layer, unit_bytes},
        plan::{Cell, Floor, MergeLayer, plan_cells, runs_within},
        tombstones::{WorthMoving, pick_level},
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
        /// Limit on the bytes merged, those of the destination included.
        bytes_max: u64,
        /// Read charges that it deducts.
        price: u64,
    },
    /// Joins these runs of the bottom.
    Join(Range<usize>),
    /// Rewrites this run of the bottom, whose pages are scattered.
    Gather(usize),
    /// Merges these sequences of those that fill level 1.
    MergeFlushes(Range<usize>),
    /// Drops damaged runs from compaction buffers.
    GiveUpDamaged,
    /// Moves everything inside these bounds from all levels to the bottom.
    CompactRange(Bounds),
}

/// Description of a job that moves tombstones.
pub(crate) const FOR_TOMBSTONES: &str = "empty a level of tombstones";

/// Bytes that a job moves out of a level if the limit permits, in runs.
const IDLE_RUNS: u64 = 4;
/// A run of less than one in this many bytes of a full one is small.
const SMALL_RUN_PARTS: u64 = 4;
/// Minimum number of adjacent small runs to join.
const JOINED_RUNS_MIN: usize = 4;

/// Layer of the bottom in scopes. The sequences that fill a level are layer `2 × level`, those being emptied
/// the next one. Levels are created and dropped directly above the bottom.
const BOTTOM: u32 = Scope::VALUES - 1;

impl Action {
    /// Returns the part of the tree that it reads and replaces. A move into the bottom includes the levels
    /// that may be created meanwhile.
    fn scope(&self, levels: &Levels) -> Scope {
        let filling = |level: usize| u32::try_from(level * 2).unwrap_or(BOTTOM);
        match self {
            Self::Move { level, .. } => {
                let first = filling(*level) + u32::from(levels.levels[*level].is_emptying());
                let is_last = level + 1 >= levels.levels.len();
                Scope::of_layers(first..=if is_last { BOTTOM } else { filling(level + 1) })
            }
            Self::Join(_) | Self::Gather(_) => Scope::of_layers(BOTTOM..=BOTTOM),
            Self::MergeFlushes(_) => Scope::of_layers(0..=0),
            Self::GiveUpDamaged | Self::CompactRange(_) => Scope::all(),
        }
    }
}

/// Bound on the bytes that a job merges, if requested with `bytes_max`.
pub(crate) fn job_bytes_max(levels: &Levels, options: &LsmOptions, bytes_max: u64) -> u64 {
    bytes_max.max(unit_bytes(levels, options))
}

/// Picks the most urgent job outside the scopes of those in progress, if any. `charged_bytes`: read charges
/// above the bottom that no move has deducted yet.
pub(crate) fn pick_job(
    levels: &Levels,
    options: &LsmOptions,
    charged_bytes: u64,
    request: &JobRequest<'_>,
) -> Option<Job> {
    let is_idle = request.is_idle;
    let bytes_max = job_bytes_max(levels, options, request.bytes_max);
    let job = |what: &'static str, debt_bytes: u64, action: Action| {
        let scope = action.scope(levels);
        let is_free = request.allows(&scope) || planted!("jobs-that-touch-allowed");
        is_free.then(|| Job { what, debt_bytes, scope, target: Opaque::new(action) })
    };
    let step = IDLE_BYTES.max(options.run_bytes * IDLE_RUNS);
    let empty = |what: &'static str, level: usize, price: u64| {
        let debt = levels.levels[level].filling_bytes() + levels.levels[level].emptying_bytes();
        job(what, debt, Action::Move { level, bytes: step, bytes_max, price })
    };
    if levels.has_damaged_retained() {
        return job("drop damaged retained runs", 0, Action::GiveUpDamaged);
    }
    let tree = levels.to_bytes();
    let due = |(level, bytes): (usize, u64)| {
        job("move runs down", bytes, Action::Move { level, bytes, bytes_max, price: 0 })
    };
    if let Some(job) = options.moves(&tree, &options.capacities(&tree)).find_map(due) {
        return Some(job);
    }
    let may_move = |level: usize| empty(FOR_TOMBSTONES, level, 0).is_some();
    if let Some(WorthMoving { level, saved_bytes }) = pick_level(levels, is_idle, may_move) {
        return job(FOR_TOMBSTONES, saved_bytes, Action::Move { level, bytes: step, bytes_max, price: 0 });
    }
    let charged = || {
        let level = levels_to_empty(levels).next()?;
        let price = tree.move_bytes(level, step).min(bytes_max);
        (price <= charged_bytes).then(|| empty("empty a level for reads", level, price)).flatten()
    };
    let parts = levels.levels.first().map(|level| &level.filling[..]).unwrap_or_default();
    let sizes: Vec<u64> = parts.iter().map(Component::bytes).collect();
    let merge_flushes = |what: &'static str, is_idle: bool| {
        let merged = options.parts_to_merge(&sizes, is_idle, bytes_max)?;
        job(what, sizes[merged.clone()].iter().sum(), Action::MergeFlushes(merged))
    };
    let join = || {
        let runs = small_runs(levels, options, bytes_max)?;
        let bytes = levels.bottom.range(runs.clone()).map(|level_run| level_run.bytes).sum();
        job("join small runs", bytes, Action::Join(runs))
    };
    let gather = |is_idle: bool| {
        let at = gather::pick(levels, options, is_idle)?;
        let bytes = levels.bottom.get(at).map_or(0, |level_run| level_run.bytes);
        job("gather pages of a run", bytes, Action::Gather(at))
    };
    let idle = || {
        let mut next = levels_to_empty(levels).filter(|_| options.has_idle_work(&tree));
        let emptied = next.find_map(|level| empty("empty a level while idle", level, 0));
        emptied.or_else(|| merge_flushes("merge flushes while idle", true))
    };
    charged()
        .or_else(|| merge_flushes("merge many flushes", false))
        .or_else(join)
        .or_else(|| gather(is_idle))
        .or_else(|| is_idle.then(idle).flatten())
}

/// Picks the job that compacts the first part of `range` with data above the bottom.
pub(crate) fn pick_range(
    levels: &Levels,
    options: &LsmOptions,
    range: &KeyBounds,
    bytes_max: u64,
) -> Result<Option<RangeJob>> {
    let bytes_max = job_bytes_max(levels, options, bytes_max);
    let Some(bounds) = pick_step(levels, options, range, bytes_max)? else { return Ok(None) };
    let debt_bytes = above_bytes(levels, &bounds)?;
    // A step may end before the range.
    let done_below =
        bounds.high.as_ref().map(|high| range.low.clone().unwrap_or_default().max(high.to_vec()));
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
        Some(Action::Gather(at)) => Ok((Some(gather::plan(levels, *at)?), None)),
        Some(Action::MergeFlushes(parts)) => Ok((Some(plan_merge(levels, parts.clone(), options)?), None)),
        Some(Action::Move { level, bytes, bytes_max, .. }) => {
            debug_assert!(*level < levels.levels.len(), "a job is planned on the levels it was picked from");
            let handed_over = (!levels.levels[*level].is_emptying()).then_some(*level);
            if handed_over.is_some() {
                levels.levels[*level].hand_over();
            }
            let amount = Amount { bytes: *bytes, bytes_max: *bytes_max };
            Ok((levels.plan_move(*level, amount, options)?, handed_over))
        }
        None => panic!("{job:?} was chosen by a tree of another family"),
    }
}

/// Plans and writes a job of these levels. It deducts its price from `read_charges`.
pub(crate) fn prepare(
    levels: &Levels,
    options: &LsmOptions,
    read_charges: &Arc<ReadCharges>,
    work: &Work,
    job: &Job,
) -> Result<Done> {
    if let Some(Action::CompactRange(bounds)) = job.target.of() {
        let (piece, written) = write_range(levels, bounds, work, options)?;
        let (planned, piece) = (levels.clone(), Some(piece));
        return Ok(Done { planned, handed_over: None, written, piece, payment: None });
    }
    let mut planned = levels.clone();
    let payment = Some(ReadPayment::of(read_charges, price_of(job)));
    let (mut destination, handed_over) = plan_job(&mut planned, options, job)?;
    let forecast = planned.job_forecast(options);
    let runs = write_all(destination.as_mut_slice(), work, options, forecast)?.pop().unwrap_or_default();
    let written = destination.map(|destination| (destination, runs));
    Ok(Done { planned, handed_over, written, piece: None, payment })
}

/// Read charges that a job deducts.
fn price_of(job: &Job) -> u64 {
    match job.target.of::<Action>() {
        Some(Action::Move { price, .. }) => *price,
        _ => 0,
    }
}

/// Returns the levels to empty next if all are to be emptied: those being emptied, the lowest first. If there
/// are none, the uppermost, so that all data above meets the bottom at once.
fn levels_to_empty(levels: &Levels) -> impl Iterator<Item = usize> {
    let levels = &levels.levels;
    let emptying = (0..levels.len()).rev().filter(|level| levels[*level].is_emptying());
    let is_any_emptying = levels.iter().any(Level::is_emptying);
    let uppermost = levels.iter().position(|level| !level.is_empty()).filter(|_| !is_any_emptying);
    emptying.chain(uppermost)
}

/// Returns adjacent runs of the bottom that are worth joining.
fn small_runs(levels: &Levels, options: &LsmOptions, bytes_max: u64) -> Option<Range<usize>> {
    let joined_max = options.run_bytes.min(bytes_max);
    let mut from = 0;
    let mut bytes = 0;
    for (at, level_run) in levels.bottom.iter().enumerate() {
        if level_run.bytes >= options.run_bytes / SMALL_RUN_PARTS || bytes + level_run.bytes > joined_max {
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
    let counts = WrittenCounts::default();
    let mut destination = Destination { place, range, cells, start, border, incoming, emptied, counts };
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
    let (incoming, counts) = (0, WrittenCounts::default());
    Ok(Destination { place, range, cells, start: None, border: None, incoming, emptied: None, counts })
}
