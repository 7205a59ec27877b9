//! Moves: how far a level is emptied, and where flushes go.
//!
//! A level is emptied in key order. A move takes everything before a border, out of all sequences being
//! emptied. The border is the start of a run of the destination, so that no run is written twice; an upper
//! run that crosses it keeps its entries after it. A run of the destination is only cut if so much would go
//! into it that the move would be beyond its bound, or take far longer than others.
//!
//! **Invariants**
//! - A move merges no more than its bound, or the least unit of work: one run of each sequence.
//! - The output ends at the border: the sources behind it are older than data yet to be moved down.

use std::{ops::Range, sync::Arc};

use testudo_base::{Result, num::u64_of, planted};
use testudo_contract::{Height, Updates};
use testudo_sequence::{Bounds, Fence, FencedRun};

use crate::{
    LsmOptions,
    levels::{
        Level, Levels,
        component::{Component, LevelRun},
        written_counts::WrittenCounts,
    },
    policy::{LevelBytes, TreeBytes, pair_sizes::PairSizes, usual_flush},
    update::{
        destination::{Destination, Place, put_in_place},
        plan::{Cell, Floor, MergeLayer, is_large, plan_cells, runs_within},
    },
};

/// Maximum number of places at which a merge of updates may be cut.
const CUTS_MAX: usize = 32;

/// Eighths of a level from which a move takes all of it: a rest would be a small move.
const ALL_EIGHTHS: u64 = 7;
/// A run of the destination is cut if the move would otherwise be this many times as large as wanted …
const FAR_TIMES: u64 = 2;
/// … and as many runs of bytes would go into it.
const FAR_RUNS: u64 = 2;

impl Levels {
    pub(crate) fn to_bytes(&self) -> TreeBytes {
        let level = |level: &Level| LevelBytes {
            filling: level.filling_bytes(),
            emptying: level.emptying_bytes(),
            began: level.began_bytes,
        };
        TreeBytes {
            levels: self.levels.iter().map(level).collect(),
            bottom: self.bottom.bytes(),
            bottom_entry: self.bottom.mean_entry_bytes(),
            flush: self.flush_bytes,
            overwrites: self.overwrites,
            direct_upper_max: self.direct.upper_max(),
        }
    }

    /// Height of a level above the bottom.
    pub(crate) fn height_of(&self, level: usize) -> Height {
        if level + 1 < self.levels.len() { Height::Upper } else { Height::Next }
    }

    /// Returns the sequence that changes.
    pub(crate) fn component_at(&self, place: Place) -> Component {
        let first = |level: usize| self.levels.get(level).and_then(|level| level.filling.first());
        match place {
            Place::Parts { count: 0, .. } => Component::default(),
            Place::Parts { from, count } => {
                let filling = self.levels.first().map(|level| &level.filling);
                filling.and_then(|filling| filling.get(from + count - 1)).cloned().unwrap_or_default()
            }
            Place::Level(level) => first(level).cloned().unwrap_or_default(),
            Place::Bottom => self.bottom.clone(),
        }
    }

    /// Creates missing levels, and hands over those that are full. The lowest comes first, because only then
    /// can the one above it be emptied into it.
    pub(crate) fn hand_over(&mut self, options: &LsmOptions) {
        self.drop_empty();
        let capacities = &options.capacities(&self.to_bytes());
        while self.levels.len() < capacities.len() {
            self.levels.push(Level::default());
        }
        for level in (0..self.levels.len()).rev() {
            if options.hands_over(level, &self.to_bytes(), capacities) {
                self.levels[level].hand_over();
            }
        }
    }

    /// Plans where the entries of an update go.
    pub(crate) fn plan_update(
        &mut self,
        updates: &Arc<dyn Updates>,
        options: &LsmOptions,
    ) -> Result<Destination> {
        let bytes = updates.bytes();
        self.flush_bytes = usual_flush(self.flush_bytes, bytes);
        if options.goes_to_bottom(bytes, &self.to_bytes()) {
            return self.plan_into_bottom(updates, options);
        }
        if let Some(direct) = self.plan_direct(updates, options)? {
            return Ok(direct);
        }
        if self.levels.is_empty() {
            self.levels.push(Level::default());
        }
        let parts: Vec<u64> = self.levels[0].filling.iter().map(Component::bytes).collect();
        let joined = options.parts_to_join(bytes, &parts);
        self.plan_newest(updates, joined, options)
    }

    /// Plans a merge of updates with the bottom.
    pub(crate) fn plan_into_bottom(
        &self,
        updates: &Arc<dyn Updates>,
        options: &LsmOptions,
    ) -> Result<Destination> {
        let range = 0..self.bottom.len();
        let layers = vec![MergeLayer::Updates(Arc::clone(updates)), own_layer(&self.bottom, range.clone())];
        let cells = plan_cells(&layers, &Bounds::default(), Floor::Bottom, options)?;
        let mut destination = Destination {
            place: Place::Bottom,
            range,
            cells,
            start: None,
            border: None,
            incoming: updates.bytes(),
            emptied: None,
            counts: WrittenCounts::default(),
        };
        destination.state_covers(self)?;
        Ok(destination)
    }

    /// Plans a merge of updates with the newest `joined` sequences of level 1.
    fn plan_newest(
        &self,
        updates: &Arc<dyn Updates>,
        joined: usize,
        options: &LsmOptions,
    ) -> Result<Destination> {
        debug_assert!(joined <= self.levels[0].filling.len(), "sequences that fill level 1");
        let place = Place::Parts { from: 0, count: joined };
        let own = self.component_at(place);
        let mut layers = vec![MergeLayer::Updates(Arc::clone(updates))];
        let above = self.levels[0].filling.iter().take(joined.saturating_sub(1));
        layers.extend(above.map(|component| runs_within(component, &Bounds::default())));
        layers.push(own_layer(&own, 0..own.len()));
        let mut cells = plan_cells(&layers, &Bounds::default(), Floor::Entries(self.height_of(0)), options)?;
        self.add_cuts(&mut cells, updates);
        let (range, incoming, counts) = (0..own.len(), updates.bytes(), WrittenCounts::default());
        let mut destination =
            Destination { place, range, cells, start: None, border: None, incoming, emptied: None, counts };
        let below: Vec<&Component> = self.components().skip(joined).collect();
        destination.state_floors(&below)?;
        Ok(destination)
    }

    /// Adds cuts for several workers. A flush alone has no run borders: those of the bottom show about where
    /// its keys are; if they are few, the updates' own borders are used.
    fn add_cuts(&self, cells: &mut [Cell], updates: &Arc<dyn Updates>) {
        for cell in cells {
            let Cell::Merge(merge) = cell else { continue };
            let within = self.bottom.within(&merge.bounds);
            let step = (within.len() / CUTS_MAX).max(1);
            let mut low: Option<Vec<u8>> = None;
            let mut keys: Vec<_> = self
                .bottom
                .range(within.clone())
                .step_by(step)
                .map(|level_run| level_run.fenced.low.to_vec())
                .collect();
            if within.len() < CUTS_MAX {
                keys.extend(updates.borders());
                keys.sort_unstable();
                keys.dedup();
            }
            for key in keys.into_iter().map(Some).chain([None]) {
                let bytes = updates.bytes_between(low.as_deref(), key.as_deref());
                merge.cuts.push((low.take().unwrap_or_default().into(), bytes));
                low = key;
            }
            merge.cuts.sort_by(|a, b| a.0.cmp(&b.0));
        }
    }

    /// Plans a move of about `amount` from a level into the next one; `None` if there is nothing to move.
    pub(crate) fn plan_move(
        &self,
        level: usize,
        amount: Amount,
        options: &LsmOptions,
    ) -> Result<Option<Destination>> {
        let emptying = &self.levels[level].emptying;
        let Some(start) = first_key(emptying)?.filter(|_| amount.bytes > 0) else { return Ok(None) };
        let place = if level + 1 < self.levels.len() { Place::Level(level + 1) } else { Place::Bottom };
        let own = self.component_at(place);
        let pair_sizes = if place == Place::Bottom { options.pair_sizes } else { PairSizes::WHOLE };
        let planned = Move { emptying, own: &own, start: &start, pair_sizes };
        let mut least = amount;
        loop {
            let border = planned.border(least, options)?;
            let destination = self.plan_move_up_to(level, &planned, border, place, options)?;
            let merged = planned.merged_bytes(&destination)?;
            // Where several runs have parts of a block's keys, the choice of the border knows too little.
            if merged <= amount.bytes_max || least.bytes_max == 0 || planted!("move-without-bound") {
                return Ok(Some(destination));
            }
            least.bytes_max = least.bytes_max.saturating_sub(merged - amount.bytes_max) / 8 * 7;
        }
    }

    /// Plans a move of all keys before `border`.
    fn plan_move_up_to(
        &self,
        level: usize,
        planned: &Move<'_>,
        border: Option<Fence>,
        place: Place,
        options: &LsmOptions,
    ) -> Result<Destination> {
        let Move { emptying, own, start, .. } = *planned;
        debug_assert!(
            border.as_ref().is_none_or(|border| start < border),
            "a move has keys before its border"
        );
        let bounds = Bounds { low: None, high: border.clone() };
        let range = own.within(&Bounds { low: start.as_low(), high: border.clone() });
        let mut layers: Vec<MergeLayer> =
            emptying.iter().map(|component| runs_within(component, &bounds)).collect();
        layers.push(own_layer(own, range.clone()));
        let floor = match place {
            Place::Level(level) => Floor::Entries(self.height_of(level)),
            _ => Floor::Bottom,
        };
        let cells = plan_cells(&layers, &bounds, floor, options)?;
        let incoming = planned.emptied_bytes(&bounds)?;
        let (emptied, counts) = (Some(level), WrittenCounts::default());
        let mut destination =
            Destination { place, range, cells, start: None, border, incoming, emptied, counts };
        destination.state_covers(self)?;
        Ok(destination)
    }

    /// Installs the written runs of a destination.
    pub(crate) fn install(&mut self, destination: Destination, runs: Vec<LevelRun>) -> Result<()> {
        let Destination { place, range, cells, border, incoming, emptied, counts, .. } = destination;
        self.page_counts.add(counts.pages);
        let own = self.component_at(place);
        let next = &mut self.next_object;
        let changed = put_in_place(&own, range, runs, border.as_ref(), next)?;
        match place {
            Place::Parts { from, count } => {
                debug_assert!(from + count <= self.levels[0].filling.len(), "sequences that fill level 1");
                self.levels[0].filling.splice(from..from + count, [changed]);
            }
            Place::Level(level) => {
                debug_assert!(level > 0, "level 1 is filled by parts");
                self.levels[level].filling = vec![changed];
            }
            Place::Bottom => {
                self.note_bottom(&cells, &own, &changed, incoming);
                self.bottom = changed;
                self.keep_witnesses(consumed_of(cells));
            }
        }
        if let Some(level) = emptied {
            let emptying = std::mem::take(&mut self.levels[level].emptying);
            for component in emptying {
                let rest = component.from(border.as_ref(), &mut self.next_object)?;
                self.levels[level].emptying.push(rest);
            }
        }
        Ok(())
    }

    /// Measures the fraction of overwrites among entries that came into the bottom.
    fn note_bottom(&mut self, cells: &[Cell], own: &Component, changed: &Component, incoming: u64) {
        let is_merge = cells.iter().any(|cell| matches!(cell, Cell::Merge(_) | Cell::Pages(..)));
        let dropped = (own.bytes() + incoming).saturating_sub(changed.bytes());
        if is_merge && !own.is_empty() {
            self.overwrites = self.overwrites.after(incoming, dropped);
        }
    }
}

pub(crate) fn own_layer(own: &Component, range: Range<usize>) -> MergeLayer {
    let next = own.get(range.end).map(|next| next.fenced.low.clone());
    MergeLayer::Own(own.range(range).cloned().collect(), next)
}

fn consumed_of(cells: Vec<Cell>) -> Vec<LevelRun> {
    let consumed = cells.into_iter().map(|cell| match cell {
        Cell::Merge(merge) | Cell::Pages(_, merge) => merge.consumed,
        Cell::Stays(_) => Vec::new(),
    });
    consumed.flatten().collect()
}

/// Returns the lower bound of the sequences' first key.
fn first_key(components: &[Component]) -> Result<Option<Fence>> {
    let mut first: Option<Fence> = None;
    for level_run in components.iter().filter_map(|component| component.get(0)) {
        let low = level_run.extent()?.low;
        first = Some(first.map_or(low.clone(), |first| first.min(low)));
    }
    Ok(first)
}

/// Size of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amount {
    /// Approximate bytes to move down.
    pub(crate) bytes: u64,
    /// Limit on the bytes merged, those of the destination included.
    pub(crate) bytes_max: u64,
}

/// A move whose end is to be chosen.
struct Move<'a> {
    emptying: &'a [Component],
    own: &'a Component,
    /// The first key to move.
    start: &'a Fence,
    /// Values that move back to their keys are written too.
    pair_sizes: PairSizes,
}

impl Move<'_> {
    /// Approximate bytes of the emptied sequences inside `bounds`. Reads index pages.
    fn emptied_bytes(&self, bounds: &Bounds) -> Result<u64> {
        self.emptying.iter().map(|component| component.bytes_within(bounds)).sum()
    }

    /// Upper bound on the bytes that a planned move merges. Sizes are known by blocks: of one that the border
    /// is in, no entry was counted.
    fn merged_bytes(&self, destination: &Destination) -> Result<u64> {
        let Some(border) = &destination.border else { return Ok(destination.merged_bytes()) };
        let mut cut_bytes = 0;
        for component in self.emptying.iter().chain([self.own]) {
            cut_bytes += component.cut_block_bytes(border)?;
        }
        Ok(destination.merged_bytes() + cut_bytes)
    }

    /// Returns the end of a move of about `amount`; `None` if everything is moved down. It exceeds the limit
    /// only if that is less than [`unit_bytes`]: the least move ends where the next emptied run begins.
    fn border(&self, amount: Amount, options: &LsmOptions) -> Result<Option<Fence>> {
        let Self { emptying, own, start, pair_sizes } = *self;
        let all: u64 = emptying.iter().map(Component::bytes).sum();
        let wanted = if amount.bytes >= all / 8 * ALL_EIGHTHS { all } else { amount.bytes };
        let bytes_max = amount.bytes_max;
        let (mut done, mut merged, mut low) = (0, 0, None);
        let first = own.runs_up_to(&start.bytes());
        let fences = own.range(first..own.len()).map(|level_run| &level_run.fenced.low);
        for (at, high) in (first..).zip(fences.map(Some).chain([None])) {
            let between = Bounds { low: low.take(), high: high.cloned() };
            let bytes = self.emptied_bytes(&between)?;
            // Sizes are known by pages: fewer bytes may still cause a rewrite of a run of the destination.
            let is_touched = emptying.iter().any(|component| !component.within(&between).is_empty());
            let before = at.checked_sub(1).and_then(|before| own.get(before));
            let rewritten = before.filter(|level_run| is_touched || !is_large(level_run, options));
            merged += rewritten.map_or(0, |level_run| level_run.bytes);
            let left = bytes_max.saturating_sub(merged);
            // Each part is rounded down.
            merged += pair_sizes.pairs_of(bytes) + u64_of(emptying.len());
            let exceeds = merged > bytes_max && !planted!("move-without-bound");
            if exceeds && between.low.is_some() {
                return Ok(between.low);
            }
            let is_far = done + bytes > wanted * FAR_TIMES && bytes > options.run_bytes * FAR_RUNS;
            if exceeds || is_far || planted!("output-beyond-border") {
                let limits = Amount { bytes: wanted.saturating_sub(done), bytes_max: left };
                let border = self.border_between(&between, limits, exceeds)?;
                if border.is_some() {
                    return Ok(border);
                }
            }
            done += bytes;
            if done >= wanted {
                return Ok(high.cloned());
            }
            low = high.cloned();
        }
        Ok(None)
    }

    /// Returns the start of the first emptied run, between two borders, before which about the wanted bytes
    /// begin; the last start within the limit, if there is no such run or it is beyond. `exceeds`: not all
    /// bytes between the borders are within the limit.
    fn border_between(&self, between: &Bounds, limits: Amount, exceeds: bool) -> Result<Option<Fence>> {
        let Amount { bytes: wanted, bytes_max } = limits;
        let mut begins = Vec::new();
        for component in self.emptying {
            for level_run in component.range(component.within(between)) {
                begins.push((level_run.extent()?.low, level_run.bytes));
            }
        }
        begins.sort_by(|a, b| a.0.cmp(&b.0));
        debug_assert!(
            between.low.is_none() || between.high.is_none() || between.low < between.high,
            "a range"
        );
        let (mut before, mut least) = (0, None);
        for (low, bytes) in begins {
            if low > *self.start && between.low.as_ref().is_none_or(|least| *least < low) {
                let inside = Bounds { low: between.low.clone(), high: Some(low.clone()) };
                let is_beyond = exceeds && self.pair_sizes.pairs_of(self.emptied_bytes(&inside)?) > bytes_max;
                if is_beyond && least.is_some() {
                    return Ok(least);
                }
                if before >= wanted {
                    return Ok(Some(low));
                }
                least = Some(low);
            }
            before += bytes;
        }
        Ok(least.filter(|_| exceeds))
    }
}

/// Bytes of the least unit of work: one run of each sequence. A key can be in all of them.
pub(crate) fn unit_bytes(levels: &Levels, options: &LsmOptions) -> u64 {
    let upper: u64 = levels.upper().map(Component::largest_bytes).sum();
    options.pair_sizes.pairs_of(upper) + levels.bottom.largest_bytes()
}

/// Wraps runs as parts of a sequence without covered ranges.
pub(crate) fn level_runs(runs: Vec<FencedRun>) -> Vec<LevelRun> {
    let level_run = |fenced: FencedRun| LevelRun {
        bytes: fenced.run.reference().user_bytes,
        fenced,
        cover: None,
        object: None,
    };
    runs.into_iter().map(level_run).collect()
}
