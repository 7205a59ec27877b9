//! Writing a merge: cut into chunks of consecutive ranges, each one streaming merge of all its inputs.
//!
//! **Invariants**
//! - Tombstones are dropped if and only if a run of the bottom is written. A run that would become empty
//!   keeps the first of them: it records that the rest is gone.
//! - A written run is as new as the newest source of its whole merge, wherever that was cut.

use testudo_base::{
    Cursor, DropSink, Entry, Kind, MergeDrops, PAGE_BYTES, Result, Seqno,
    num::{low64, u64_of},
};
use testudo_contract::{Height, Work};
use testudo_run::{MergeCursor, RunLayout};
use testudo_sequence::{
    Bounds, Fence, Layer, Pushed, RunSequence, SequenceOrigin, clip_layer, layer_cursors, mean_entry_bytes,
    shared_prefix,
};

use crate::{
    LsmOptions,
    forecast::{JobForecast, PageFill, Rewritten},
    levels::{
        component::LevelRun,
        repeats::Inflow,
        written_counts::{PageCounts, WrittenCounts},
    },
    update::plan::{Floor, Merge},
};

/// Inverse of the fraction of a run that is worth a run of its own.
const WORTH_A_RUN_PARTS: u64 = 2;
/// Halves of a full run at which the open one is cut, however little is left.
const LARGEST_RUN_HALVES: u64 = 3;

/// Input of one worker.
#[derive(Debug)]
pub(crate) struct Chunk {
    layers: Vec<Layer>,
    pub(crate) bytes: u64,
    bounds: Bounds,
    newest_seqno: Seqno,
    floor: Floor,
    /// The last layer is the destination's own.
    has_own: bool,
    /// Entries from above come into it.
    has_incoming: bool,
}

/// Output of a chunk.
#[derive(Debug, Default)]
pub(crate) struct ChunkRuns {
    pub(crate) runs: Vec<LevelRun>,
    pub(crate) counts: WrittenCounts,
}

impl ChunkRuns {
    pub(crate) fn push(&mut self, level_run: LevelRun) {
        self.runs.push(level_run);
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.runs.extend(more.runs);
        self.counts.add(more.counts);
    }
}

/// Returns the chunks of a merge, in key order, each at most about `bytes_max`, as far as its sources permit.
pub(crate) fn cut_merge(merge: &Merge, bytes_max: u64) -> Result<Vec<Chunk>> {
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
        let has_incoming = merge.has_incoming();
        chunks.push(Chunk { layers, bytes, bounds, newest_seqno, floor, has_own, has_incoming });
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
pub(crate) fn write_chunk(
    chunk: Chunk,
    work: &Work,
    options: &LsmOptions,
    forecast: Option<&JobForecast>,
) -> Result<ChunkRuns> {
    let Chunk { layers, bytes, bounds, newest_seqno, floor, has_own, has_incoming } = chunk;
    let layout = match floor {
        Floor::Bottom if options.updates_pages => options.bottom_layout(mean_entry_bytes(&layers)?),
        _ => RunLayout::default(),
    };
    let forecast = forecast.filter(|_| layout.is_for_updates());
    let rewritten = Rewritten { bounds: &bounds, layers: &layers, has_own };
    let fill = forecast.map_or(Ok(None), |forecast| forecast.page_fill(&rewritten, layout))?;
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
    let forecast = forecast.filter(|_| has_incoming);
    let counted = (options.retained_percent > 0 || forecast.is_some()).then_some(&mut inflow);
    let entering = Entering { target, bytes, has_own, counted, fill };
    let reported = write_entries(&mut merge, &mut runs, entering)?;
    if let Some(forecast) = forecast {
        forecast.forecast.note_rewritten(inflow.entries - inflow.repeated);
    }
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
        LevelRun { bytes: fenced.run.reference().user_bytes, fenced, cover, object: None }
    });
    let counts = WrittenCounts { keys: inflow, pages: PageCounts::default() };
    Ok(ChunkRuns { runs: level_run.collect(), counts })
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
    /// Free space for expected inserts, if any are.
    fill: Option<PageFill>,
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
    let Entering { target, bytes: incoming, has_own, mut counted, mut fill } = entering;
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
        let open_bytes = runs.open_bytes();
        if let Some(fill) = &mut fill
            && pushed != Pushed::Ended
            && let Some(bytes) = fill.after(entry.key, entry.user_bytes(), open_bytes)
        {
            runs.set_fill_bytes(bytes);
        }
        merge.next()?;
        if pushed == Pushed::Ended {
            continue;
        }
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
