//! Executing a plan: each destination is written by one streaming merge of all its inputs.
//!
//! Destinations are independent of each other, so the executor writes several in parallel. A large tier, or a
//! leaf with large inputs, is cut into parts, which are independent as well.
//!
//! **Invariants**
//! - Tombstones are dropped if and only if a leaf is written: nothing older is below it. A leaf that would
//!   become empty keeps the first of them: its run records that the rest is gone.
//! - Operands are merged if the merge operator is known and their base is among the sources, or cannot exist
//!   anywhere: in a leaf. Otherwise they are kept; in a leaf, as an entry that is complete for its key.
//! - A written run is as new as the newest of its sources; a leaf's runs cover all of its keys.
//! - Outputs of one destination are disjoint runs in key order.

use testudo_base::{
    Cursor, Entry, Error, ErrorKind, MergeDrops, Result, Seqno,
    num::{low64, u64_of},
    sync::{Arc, Mutex},
};
use testudo_contract::{Height, Task, Work};
use testudo_run::{MergeCursor, RunLayout};
use testudo_sequence::{
    Bounds, FencedRun, Layer, Pushed, RunSequence, RunSlice, SequenceOrigin, Source, clip_layer,
    layer_cursors, newest_of, shared_prefix,
};

use crate::{
    BeTreeOptions,
    trunk::node::{Node, Share, Tier},
    update::{
        leaf_parts::{PART_LEAVES_MIN, cut_leaf},
        plan::{MergeInput, PlanChild, PlanNode, PlanTier, active_bounds},
        retain::Came,
        run_cutter::RunCutter,
        subcompaction::{Boundary, Part, boundaries_of, cut, part_bytes_max},
        trivial_move::take_trivial_move,
    },
};

/// Output of each destination.
pub(crate) type Outputs = Vec<Output>;

/// Output of one destination.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) runs: Vec<FencedRun>,
    pub(crate) arrivals: Arrivals,
    /// For a leaf, if runs are retained: its addition to the compaction buffer.
    pub(crate) came: Option<Came>,
}

/// Counts of the newest part of a leaf's input, which reflects current writes. Older parts reflect earlier
/// ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    pub(crate) entries: u64,
    /// Those that overwrite an older entry, in any source.
    pub(crate) replacing: u64,
}

impl std::ops::AddAssign for Arrivals {
    fn add_assign(&mut self, other: Self) {
        self.entries += other.entries;
        self.replacing += other.replacing;
    }
}

/// Slot for the output of a part.
type PartResult = Arc<Mutex<Option<Result<Output>>>>;

/// A destination: a tier or a leaf.
#[derive(Debug)]
struct Destination {
    layers: Vec<Layer>,
    /// Approximate bytes of entries flowing into it, shadowed ones included.
    bytes: u64,
    /// For a leaf: its keys, in one range, or in two that become leaves of different age.
    leaf_bounds: Vec<Bounds>,
    what: What,
    /// Keys at which a tier may be cut.
    boundaries: Vec<Boundary>,
    came: Option<Came>,
}

/// Properties shared by a destination and its chunks.
#[derive(Clone, Copy, Debug)]
struct What {
    height: Height,
    /// Approximate maximum bytes of a run.
    run_bytes: u64,
    /// It is a leaf, and not only joined from others.
    has_arrivals: bool,
}

/// Output of one worker: a destination, or a part of one.
#[derive(Debug)]
struct Chunk {
    layers: Vec<Layer>,
    bytes: u64,
    /// Range of keys; for a leaf, exactly its own.
    bounds: Bounds,
    what: What,
    /// For a part of a leaf: approximate bytes flowing into the whole leaf.
    leaf_bytes: Option<u64>,
    /// Newest seqno of all sources of the destination, which all its parts share.
    newest_seqno: Seqno,
}

/// Writes every new tier and leaf of the plan; replaces flows in the plan with output indexes.
pub(crate) fn write_plan(plan: &mut PlanNode, work: &Work, options: &BeTreeOptions) -> Result<Outputs> {
    let mut destinations = Vec::new();
    collect(plan, options, work.data.retained_percent() > 0, &mut destinations)?;
    let total = destinations.iter().map(|destination| destination.bytes).sum();
    work.progress.expect(total);
    let all_bytes = work.bytes_with_values(total);
    let bytes_max = part_bytes_max(all_bytes, u64_of(work.executor.workers()), options);
    let bytes_max = low64(u128::from(bytes_max) * u128::from(total) / u128::from(all_bytes.max(1)));
    let keys = Bounds::from(&work.keys);
    let mut tasks: Vec<(u64, Task)> = Vec::with_capacity(destinations.len());
    let mut results = Vec::with_capacity(destinations.len());
    let mut came = Vec::with_capacity(destinations.len());
    for mut destination in destinations {
        came.push(destination.came.take());
        let mut parts = Vec::new();
        for chunk in cut_destination(destination, bytes_max, &keys, options)? {
            let result = Arc::new(Mutex::new(None));
            parts.push(Arc::clone(&result));
            let (work, options, bytes) = (work.clone(), *options, chunk.bytes);
            let task = move || *result.lock() = Some(write_chunk(chunk, &work, &options));
            tasks.push((bytes, Box::new(task)));
        }
        results.push(parts);
    }
    debug_assert_eq!(results.len(), came.len(), "each destination has its results");
    debug_assert!(results.iter().all(|parts| !parts.is_empty()), "a destination has at least one part");
    // Longest first, so that the workers end together.
    tasks.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    work.executor.run_all(tasks.into_iter().map(|(_, task)| task).collect());
    results.into_iter().zip(came).map(|(parts, came)| Ok(Output { came, ..joined(parts)? })).collect()
}

/// Joins the outputs of a destination's parts.
fn joined(parts: Vec<PartResult>) -> Result<Output> {
    let missing = || Error::new(ErrorKind::Poisoned, "background work was lost");
    let mut whole = Output::default();
    for part in parts {
        let Output { runs, arrivals, .. } = part.lock().take().unwrap_or_else(|| Err(missing()))?;
        whole.runs.extend(runs);
        whole.arrivals += arrivals;
    }
    debug_assert!(
        whole.runs.is_sorted_by(|a, b| a.low < b.low),
        "outputs of one destination are disjoint, in key order"
    );
    Ok(whole)
}

/// Returns the chunks of a destination, in a tree with `keys`, in key order.
fn cut_destination(
    destination: Destination,
    bytes_max: u64,
    keys: &Bounds,
    options: &BeTreeOptions,
) -> Result<Vec<Chunk>> {
    let Destination { layers, bytes, mut leaf_bounds, what, boundaries, .. } = destination;
    debug_assert!(leaf_bounds.len() <= 2, "a leaf is cut once");
    debug_assert!(are_adjacent(leaf_bounds.iter()), "the parts of a cut leaf leave no gap");
    if leaf_bounds.len() > 1 {
        return leaf_bounds.into_iter().map(|bounds| leaf_chunk(&layers, bounds, what)).collect();
    }
    let newest_seqno = newest_of(&layers);
    let leaf = leaf_bounds.pop();
    let parts = match &leaf {
        Some(bounds) => {
            let bytes_max = bytes_max.max(options.leaf_bytes * PART_LEAVES_MIN);
            cut_leaf(&layers, &bounds.intersection(keys), bytes, bytes_max)?
        }
        None => cut(bytes, &boundaries, bytes_max),
    };
    if parts.len() <= 1 {
        let bounds = leaf.unwrap_or_default();
        return Ok(vec![Chunk { layers, bytes, bounds, what, leaf_bytes: None, newest_seqno }]);
    }
    debug_assert!(
        are_adjacent(parts.iter().map(|part| &part.bounds)),
        "parts leave no gap and do not overlap"
    );
    let leaf_bytes = leaf.map(|_| bytes);
    let chunk = |Part { bounds, bytes }: Part| {
        let layers = layers.iter().map(|layer| clip_layer(layer, &bounds)).collect();
        Chunk { layers, bytes, bounds, what, leaf_bytes, newest_seqno }
    };
    Ok(parts.into_iter().map(chunk).collect())
}

/// Whether each range ends where the next one begins.
fn are_adjacent<'a>(ranges: impl Iterator<Item = &'a Bounds> + Clone) -> bool {
    let next = ranges.clone().skip(1);
    ranges.zip(next).all(|(one, next)| one.high.is_some() && one.high == next.low)
}

/// Clips the layers of a leaf to `bounds`, as a leaf with its own newest seqno.
fn leaf_chunk(layers: &[Layer], bounds: Bounds, what: What) -> Result<Chunk> {
    let mut layers: Vec<Layer> = layers.iter().map(|layer| clip_layer(layer, &bounds)).collect();
    layers.retain(|layer| !layer.is_empty());
    let mut bytes = 0;
    for slice in layers.iter().flatten() {
        bytes += slice.bytes_within(&Bounds::default())?;
    }
    let newest_seqno = newest_of(&layers);
    Ok(Chunk { layers, bytes, bounds, what, leaf_bytes: None, newest_seqno })
}

fn collect(
    plan: &mut PlanNode,
    options: &BeTreeOptions,
    retains: bool,
    destinations: &mut Vec<Destination>,
) -> Result<()> {
    let height = if plan.base.height == 1 { Height::Next } else { Height::Upper };
    let run_bytes = options.tier_run_bytes(plan.base.overwrites);
    let tiers = What { height, run_bytes, has_arrivals: false };
    for tier in &mut plan.tiers {
        let bytes = tier.active_bytes();
        if let PlanTier::Merge(inputs) = tier {
            let shares = (0..plan.children.len()).map(|pivot| merged_share(inputs, pivot)).collect();
            let layers = inputs.iter().map(|input| active_layer(&plan.base, input)).collect();
            let boundaries = boundaries_of(&plan.base, inputs);
            *tier = PlanTier::Output { output: destinations.len(), shares };
            destinations.push(Destination {
                layers,
                bytes,
                leaf_bounds: Vec::new(),
                what: tiers,
                boundaries,
                came: None,
            });
        } else if let PlanTier::Trimmed { tier, at, output } = tier {
            debug_assert!(
                output.is_none() && *at < tier.runs.len(),
                "a trimmed run is in its tier, not written yet"
            );
            *output = Some(destinations.len());
            let layers = vec![alive_of_run(&plan.base, tier, *at)];
            let bytes = tier.runs[*at].run.reference().user_bytes;
            let (leaf_bounds, boundaries) = (Vec::new(), Vec::new());
            let what = tiers;
            destinations.push(Destination { layers, bytes, leaf_bounds, what, boundaries, came: None });
        }
    }
    for pivot in 0..plan.children.len() {
        let bounds = leaf_bounds(plan, pivot);
        match &mut plan.children[pivot] {
            PlanChild::Node(plan) => collect(plan, options, retains, destinations)?,
            PlanChild::Leaf { layers, bytes, held_bytes, cut } => {
                debug_assert!(*held_bytes <= *bytes, "the old contents are among the input");
                let (layers, bytes, has_arrivals) = (std::mem::take(layers), *bytes, *bytes > *held_bytes);
                let cut = cut.take();
                let came = if retains { Some(Came::of(&plan.base, pivot, &bounds, &layers)?) } else { None };
                let leaf_bounds = match &cut {
                    None => vec![bounds],
                    Some(key) => bounds.cut_at(key),
                };
                let output = destinations.len();
                plan.children[pivot] = PlanChild::Output { output, cut };
                let what = What { height: Height::Bottom, run_bytes: options.leaf_bytes, has_arrivals };
                let boundaries = Vec::new();
                destinations.push(Destination { layers, bytes, leaf_bounds, what, boundaries, came });
            }
            PlanChild::Untouched(_) | PlanChild::Cut(_) | PlanChild::Joined | PlanChild::Output { .. } => {}
        }
    }
    Ok(())
}

/// Returns the share of merged inputs for a pivot, beginning at the lowest key of any.
fn merged_share(inputs: &[MergeInput], pivot: usize) -> Option<Share> {
    debug_assert!(!inputs.is_empty(), "a merged tier has inputs");
    let froms = inputs.iter().filter_map(|input| input.shares[pivot].as_ref()).map(|share| &share.from);
    froms.min().map(|from| Share { from: from.clone(), bytes: 0 })
}

/// Returns the keys of the leaf at `pivot`, including those of leaves joined into it.
fn leaf_bounds(plan: &PlanNode, pivot: usize) -> Bounds {
    let joined =
        plan.children[pivot + 1..].iter().take_while(|child| matches!(child, PlanChild::Joined)).count();
    let (first, last) = (plan.base.bounds_of(pivot), plan.base.bounds_of(pivot + joined));
    Bounds { low: first.low, high: last.high }
}

/// Returns the live slices of a run of a tier.
pub(crate) fn alive_of_run(node: &Node, tier: &Tier, at: usize) -> Layer {
    let next = tier.runs.get(at + 1).map(|next| next.low.clone());
    let source = Source::Fenced(tier.runs[at].clone(), next);
    let slices = vec![RunSlice { source, bounds: Bounds::default() }];
    active_layer(node, &MergeInput { slices, shares: tier.shares.clone() })
}

/// Returns the live slices of an input, with adjacent chunks of one source united.
fn active_layer(node: &Node, input: &MergeInput) -> Layer {
    debug_assert_eq!(input.shares.len(), node.pivots.len(), "an input has one share per pivot");
    let mut layer: Layer = Vec::new();
    for (pivot, share) in input.shares.iter().enumerate() {
        let Some(share) = share else { continue };
        for slice in clip_layer(&input.slices, &active_bounds(&node.bounds_of(pivot), share)) {
            match layer.last_mut() {
                Some(last) if continues(last, &slice) => last.bounds.high = slice.bounds.high,
                _ => layer.push(slice),
            }
        }
    }
    layer
}

fn continues(left: &RunSlice, right: &RunSlice) -> bool {
    use testudo_sequence::Source::{Fenced, Run, Updates};
    let same = match (&left.source, &right.source) {
        (Run(a), Run(b)) | (Fenced(FencedRun { run: a, .. }, _), Fenced(FencedRun { run: b, .. }, _)) => {
            Arc::ptr_eq(a, b)
        }
        (Updates(a), Updates(b)) => Arc::ptr_eq(a, b),
        _ => false,
    };
    same && left.bounds.high.is_some() && left.bounds.high == right.bounds.low
}

/// Merges the layers into runs of about equal size, none much larger than a leaf.
fn write_chunk(chunk: Chunk, work: &Work, options: &BeTreeOptions) -> Result<Output> {
    let Chunk { mut layers, mut bytes, bounds, what, leaf_bytes, newest_seqno } = chunk;
    let What { height, run_bytes, has_arrivals } = what;
    let is_leaf = height == Height::Bottom;
    debug_assert!(run_bytes > 0, "a run holds something");
    debug_assert!(is_leaf || !has_arrivals, "arrivals are counted in leaves");
    debug_assert!(is_leaf || leaf_bytes.is_none(), "only leaves are cut into parts of a leaf");
    debug_assert!(newest_of(&layers) <= newest_seqno, "a destination is as new as its newest source");
    let staying = if is_leaf { take_trivial_move(&mut layers, options)? } else { None };
    if let Some(run) = &staying {
        bytes = bytes.saturating_sub(run.reference().user_bytes);
        work.progress.advance(run.reference().user_bytes);
    }
    let rewrites_leaf = is_leaf && layers.len() > 1 && staying.is_none();
    let shared_bytes = shared_prefix(&layers);
    let sources = layer_cursors(layers);
    let mut merge = MergeCursor::with_sink(sources, shared_bytes, MergeDrops::default());
    let cutter = match leaf_bytes {
        Some(whole) => RunCutter::of_part(bytes, whole, options),
        None => RunCutter::new(bytes, run_bytes, options),
    };
    let origin = SequenceOrigin {
        newest_seqno,
        target: cutter.target(),
        height,
        keeps_tombstones: false,
        layout: RunLayout::default(),
    };
    let mut runs = RunSequence::new(work, origin, bounds.to_keys(), staying)?;
    merge.seek_first()?;
    let mut arrivals = Arrivals::default();
    let counted = has_arrivals.then_some(&mut arrivals);
    let reported = write_entries(&mut merge, &mut runs, cutter, Entering { rewrites_leaf, counted })?;
    let runs = runs.finish()?;
    work.progress.record_drops(merge.into_sink());
    work.progress.advance(bytes.saturating_sub(reported));
    Ok(Output { runs, arrivals, came: None })
}

/// Properties of a merge's input.
struct Entering<'a> {
    /// Its oldest source is the old leaf.
    rewrites_leaf: bool,
    /// Counters for the entries of the newest source, if they are counted.
    counted: Option<&'a mut Arrivals>,
}

/// Writes all entries of a merge; returns the number of passed bytes that were reported as progress.
fn write_entries<C: Cursor>(
    merge: &mut MergeCursor<C, MergeDrops>,
    runs: &mut RunSequence<'_>,
    mut cutter: RunCutter,
    entering: Entering<'_>,
) -> Result<u64> {
    let Entering { rewrites_leaf, mut counted } = entering;
    let mut reported = 0;
    while let Some(entry) = merge.entry() {
        if let Some(arrivals) = &mut counted
            && merge.stands_on_newest()
        {
            arrivals.entries += 1;
            arrivals.replacing += u64::from(merge.hides_older());
        }
        let resolved = runs.resolve_operands(&entry)?;
        let entry = match &resolved {
            None => entry,
            Some((kind, value)) => Entry { kind: *kind, value, ..entry },
        };
        let is_old = rewrites_leaf && merge.stands_on_oldest();
        if is_old && cutter.cuts_before_old(merge.passed_bytes().saturating_sub(runs.separated_bytes())) {
            runs.cut();
        }
        let pushed = runs.push(&entry)?;
        if pushed != Pushed::Ended && merge.is_warm() {
            runs.note_warm();
        }
        merge.next()?;
        match pushed {
            Pushed::Ended => continue,
            Pushed::BehindStaying => cutter.record_other_cut(),
            Pushed::Written => {}
        }
        cutter.record_written(runs.written_bytes(), is_old);
        let passed = merge.passed_bytes();
        if cutter.cuts_after(runs.open_bytes(), passed.saturating_sub(runs.separated_bytes())) {
            runs.cut();
            debug_assert!(reported <= passed, "progress only grows");
            runs.report(passed - reported);
            reported = passed;
        }
    }
    Ok(reported)
}
