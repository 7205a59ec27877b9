//! Moves: how far a level is emptied, and where flushes go.
//!
//! A level is emptied in key order. A move takes everything before a border, out of all sequences being
//! emptied. The border is the start of a run of the destination, so that no run is written twice; an upper
//! run that crosses it keeps its entries after it. A run of the destination is only cut if so much would go
//! into it that the update would take far longer than others.
//!
//! **Invariants**
//! - The output ends at the border: the sources behind it are older than data yet to be moved down.

use std::{ops::Range, sync::Arc};

use testudo_base::{Result, planted};
use testudo_contract::{Height, Updates};
use testudo_sequence::{Bounds, Fence, FencedRun};

use crate::{
    LsmOptions,
    levels::{
        Level, Levels,
        component::{Component, LevelRun},
        repeats::Inflow,
    },
    policy::{LevelBytes, TreeBytes, usual_flush},
    update::{
        destination::{Destination, Place, put_in_place},
        plan::{Cell, Floor, MergeLayer, plan_cells, runs_within},
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
        if self.levels.is_empty() {
            self.levels.push(Level::default());
        }
        let parts: Vec<u64> = self.levels[0].filling.iter().map(Component::bytes).collect();
        let joined = options.parts_to_join(bytes, &parts);
        self.plan_newest(updates, joined, options)
    }

    /// Plans a merge of updates with the bottom.
    fn plan_into_bottom(&self, updates: &Arc<dyn Updates>, options: &LsmOptions) -> Result<Destination> {
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
            inflow: Inflow::default(),
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
        let (range, incoming, inflow) = (0..own.len(), updates.bytes(), Inflow::default());
        let mut destination =
            Destination { place, range, cells, start: None, border: None, incoming, emptied: None, inflow };
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
        let border = border_behind(emptying, &own, &start, amount, options)?;
        debug_assert!(
            border.as_ref().is_none_or(|border| start < *border),
            "a move has keys before its border"
        );
        let bounds = Bounds { low: None, high: border.clone() };
        let range = own.within(&Bounds { low: start.as_low(), high: border.clone() });
        let mut layers: Vec<MergeLayer> =
            emptying.iter().map(|component| runs_within(component, &bounds)).collect();
        layers.push(own_layer(&own, range.clone()));
        let floor = match place {
            Place::Level(level) => Floor::Entries(self.height_of(level)),
            _ => Floor::Bottom,
        };
        let cells = plan_cells(&layers, &bounds, floor, options)?;
        let mut incoming = 0;
        for component in emptying {
            incoming += component.bytes_within(&bounds)?;
        }
        let (emptied, inflow) = (Some(level), Inflow::default());
        let mut destination =
            Destination { place, range, cells, start: None, border, incoming, emptied, inflow };
        destination.state_covers(self)?;
        Ok(Some(destination))
    }

    /// Installs the written runs of a destination.
    pub(crate) fn install(&mut self, destination: Destination, runs: Vec<LevelRun>) -> Result<()> {
        let Destination { place, range, cells, border, incoming, emptied, .. } = destination;
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
    /// Bytes written after which it ends.
    pub(crate) written_max: u64,
}

/// Returns the end of a move of about `amount`; `None` if everything is moved down.
fn border_behind(
    emptying: &[Component],
    own: &Component,
    start: &Fence,
    amount: Amount,
    options: &LsmOptions,
) -> Result<Option<Fence>> {
    let Amount { bytes: wanted, written_max } = amount;
    let all: u64 = emptying.iter().map(Component::bytes).sum();
    if wanted >= all / 8 * ALL_EIGHTHS && all + own.bytes() <= written_max {
        return Ok(None);
    }
    let (mut done, mut low, mut written) = (0, None, 0);
    let first = own.runs_up_to(&start.bytes());
    let fences = own.range(first..own.len()).map(|level_run| &level_run.fenced.low);
    for (at, high) in (first..).zip(fences.map(Some).chain([None])) {
        let between = Bounds { low: low.take(), high: high.cloned() };
        let mut bytes = 0;
        for component in emptying {
            bytes += component.bytes_within(&between)?;
        }
        let is_far = done + bytes > wanted * FAR_TIMES && bytes > options.run_bytes * FAR_RUNS;
        if is_far || planted!("output-beyond-border") {
            let border = border_between(emptying, &between, start, wanted.saturating_sub(done))?;
            if border.is_some() {
                return Ok(border);
            }
        }
        done += bytes;
        // Sizes are known by pages: fewer bytes may still cause a rewrite of a run of the destination.
        if emptying.iter().any(|component| !component.within(&between).is_empty()) {
            let before = at.checked_sub(1).and_then(|before| own.get(before));
            written += bytes + before.map_or(0, |level_run| level_run.bytes);
        }
        if done >= wanted || written >= written_max {
            return Ok(high.cloned());
        }
        low = high.cloned();
    }
    Ok(None)
}

/// Returns the start of the first emptied run, between two borders, before which about `wanted` bytes begin.
fn border_between(
    emptying: &[Component],
    between: &Bounds,
    start: &Fence,
    wanted: u64,
) -> Result<Option<Fence>> {
    let mut begins = Vec::new();
    for component in emptying {
        for level_run in component.range(component.within(between)) {
            begins.push((level_run.extent()?.low, level_run.bytes));
        }
    }
    begins.sort_by(|a, b| a.0.cmp(&b.0));
    debug_assert!(between.low.is_none() || between.high.is_none() || between.low < between.high, "a range");
    let mut before = 0;
    for (low, bytes) in begins {
        if before >= wanted && low > *start && between.low.as_ref().is_none_or(|least| *least < low) {
            return Ok(Some(low));
        }
        before += bytes;
    }
    Ok(None)
}

/// Wraps runs as parts of a sequence without covered ranges.
pub(crate) fn level_runs(runs: Vec<FencedRun>) -> Vec<LevelRun> {
    let level_run =
        |fenced: FencedRun| LevelRun { bytes: fenced.run.reference().user_bytes, fenced, cover: None };
    runs.into_iter().map(level_run).collect()
}
