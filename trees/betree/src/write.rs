//! Writing what a plan decided: each destination by one streaming merge of everything that flows into it.
//!
//! Destinations are independent of each other, so the executor does several at once.
//!
//! **Invariants**
//! - Tombstones are dropped when, and only when, a leaf is written: nothing older lies below it.
//! - Outputs of one destination are disjoint runs in key order.

use testudo_base::{
    Cursor, Error, ErrorKind, Kind, PAGE_BYTES, Result,
    num::u64_of,
    sync::{Arc, Mutex},
};
use testudo_contract::{Task, Work};
use testudo_run::{MergeCursor, Run, RunWriter};

use crate::{
    TurtleOptions,
    flow::{Layer, Slice, clip_layer, layer_cursor},
    node::Node,
    plan::{MergeInput, PlanChild, PlanNode, PlanTier, active_bounds},
};

/// Runs written for each destination.
pub(crate) type Outputs = Vec<Vec<Arc<Run>>>;

/// One destination: a tier or a leaf.
#[derive(Debug)]
struct Destination {
    layers: Vec<Layer>,
    /// About how many bytes of entries flow into it, shadowed ones included.
    bytes: u64,
    is_leaf: bool,
}

/// Writes every new tier and leaf of the plan; the plan then names outputs instead of flows.
pub(crate) fn write_plan(plan: &mut PlanNode, work: &Work, options: &TurtleOptions) -> Result<Outputs> {
    let mut destinations = Vec::new();
    collect(plan, &mut destinations);
    work.progress.expect(destinations.iter().map(|destination| destination.bytes).sum());
    let results: Vec<_> = destinations.iter().map(|_| Arc::new(Mutex::new(None))).collect();
    let mut tasks: Vec<(u64, Task)> = Vec::with_capacity(destinations.len());
    for (destination, result) in destinations.into_iter().zip(&results) {
        let (work, options, result) = (work.clone(), *options, Arc::clone(result));
        let bytes = destination.bytes;
        let task = move || *result.lock() = Some(write_destination(destination, &work, &options));
        tasks.push((bytes, Box::new(task)));
    }
    // The longest first, so that the hands end together.
    tasks.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    work.executor.run_all(tasks.into_iter().map(|(_, task)| task).collect());
    let missing = || Error::new(ErrorKind::Poisoned, "background work was lost");
    results.into_iter().map(|result| result.lock().take().unwrap_or_else(|| Err(missing()))).collect()
}

fn collect(plan: &mut PlanNode, destinations: &mut Vec<Destination>) {
    for tier in &mut plan.tiers {
        let bytes = tier.active_bytes();
        if let PlanTier::Merge(inputs) = tier {
            let active = (0..plan.children.len())
                .map(|pivot| inputs.iter().any(|input| input.shares[pivot].is_some()))
                .collect();
            let layers = inputs.iter().map(|input| active_layer(&plan.base, input)).collect();
            *tier = PlanTier::Output { output: destinations.len(), active };
            destinations.push(Destination { layers, bytes, is_leaf: false });
        }
    }
    for child in &mut plan.children {
        match child {
            PlanChild::Node(plan) => collect(plan, destinations),
            PlanChild::Leaf { layers, bytes } => {
                let (layers, bytes) = (std::mem::take(layers), *bytes);
                *child = PlanChild::Output(destinations.len());
                destinations.push(Destination { layers, bytes, is_leaf: true });
            }
            PlanChild::Untouched(_) | PlanChild::Joined | PlanChild::Output(_) => {}
        }
    }
}

/// What the shares leave of an input, with neighbouring pieces of one source put together again.
fn active_layer(node: &Node, input: &MergeInput) -> Layer {
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

fn continues(left: &Slice, right: &Slice) -> bool {
    use crate::flow::Source::{Run, Updates};
    let same = match (&left.source, &right.source) {
        (Run(a), Run(b)) => Arc::ptr_eq(a, b),
        (Updates(a), Updates(b)) => Arc::ptr_eq(a, b),
        _ => false,
    };
    same && left.bounds.high.is_some() && left.bounds.high == right.bounds.low
}

/// Merges the layers into runs of about equal size, none much larger than a leaf.
fn write_destination(
    destination: Destination,
    work: &Work,
    options: &TurtleOptions,
) -> Result<Vec<Arc<Run>>> {
    let Destination { layers, bytes, is_leaf } = destination;
    let mut merge = MergeCursor::new(layers.into_iter().map(layer_cursor).collect());
    let pieces = bytes.div_ceil(options.leaf_bytes).max(1);
    let target = (bytes / pieces).clamp(1, options.leaf_bytes);
    let mut runs = Vec::new();
    let mut writer: Option<RunWriter> = None;
    let mut reported = 0;
    let mut written = 0u64;
    merge.seek_first()?;
    while let Some(entry) = merge.entry() {
        if is_leaf && entry.kind == Kind::Tombstone {
            merge.next()?;
            continue;
        }
        let open = match &mut writer {
            Some(open) => open,
            None => writer.insert(new_writer(work, target)?),
        };
        open.push(&entry)?;
        written += u64_of(entry.user_bytes());
        merge.next()?;
        if open.data_bytes() + PAGE_BYTES > target {
            let passed = merge.passed_bytes();
            let left = bytes.saturating_sub(passed) * written / passed.max(1);
            // The rest is not worth a run of its own if it is small, unless this one has become too large.
            if (pieces > 1 && left > target / 2) || open.data_bytes() >= options.leaf_bytes * 3 / 2 {
                runs.extend(writer.take().map(RunWriter::finish).transpose()?);
                work.progress.advance(passed - reported);
                reported = passed;
            }
        }
    }
    runs.extend(writer.take().map(RunWriter::finish).transpose()?);
    work.progress.advance(bytes.saturating_sub(reported));
    Ok(runs)
}

fn new_writer(work: &Work, target: u64) -> Result<RunWriter> {
    RunWriter::new(Arc::clone(&work.data), work.run_ids.take(), work.keyspace, target)
}
