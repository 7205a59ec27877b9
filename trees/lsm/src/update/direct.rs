//! Direct flushes: updates that go past the levels, straight into pages of the bottom (TreeLine §4.1).
//!
//! Levels pay off for scattered updates: many of them reach a page together. Updates that are dense, several
//! records for each page that they touch, gain nothing by waiting, but are written once more in level 1, and
//! their older versions are garbage until they are merged. Each flush is estimated both ways. Once the levels
//! above are empty, those that write fewer bytes into pages are direct.
//!
//! The levels are emptied early for that, at a cost. So direct flushes begin only after flushes that would
//! have saved as much as emptying the levels costs, and end with two flushes in a row that cost less in
//! levels.
//!
//! **Invariants**
//! - A flush is direct only if nothing is above the bottom: older entries there would hide its own.
//! - The estimate reads index pages of a few runs, and one data page of each.

use std::sync::Arc;

use testudo_base::{Cursor, PAGE_BYTES, Result, checksum::hash_key, num::u64_of, planted};
use testudo_contract::Updates;
use testudo_run::{Access, Lookup, PageUpdate};
use testudo_sequence::layer_cursor;

use crate::{
    LsmOptions,
    levels::{
        Levels,
        component::LevelRun,
        direct_flushes::{DirectFlushes, FlushSeen},
    },
    policy::part_of,
    update::{
        destination::Destination,
        page_batch::PAGE_UPDATE_LIMITS,
        plan::{Cell, Merge},
    },
};

/// Number of runs of which touched pages are counted.
const SAMPLED_RUNS: usize = 16;
/// A direct flush writes at most this many times its own bytes: its buffer takes memory until it ends.
const WRITTEN_TIMES_MAX: u64 = 4;
/// Maximum growth of a touched page, as a fraction of it: pages that grow are split, and their runs are
/// rewritten in the end.
const GROWTH_MAX: f64 = 0.25;
/// The same for pages without free space.
const GROWTH_MAX_OF_FULL: f64 = 1.0 / 16.0;

/// Estimated writes of a flush into the bottom.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct BottomWrites {
    bytes: u64,
    /// Fraction of the bottom's pages that the flush touches.
    touched: f64,
}

impl Levels {
    /// Plans a direct flush of `updates`; `None` if they go into level 1.
    pub(crate) fn plan_direct(
        &mut self,
        updates: &Arc<dyn Updates>,
        options: &LsmOptions,
    ) -> Result<Option<Destination>> {
        let bytes = updates.bytes();
        let may_be = options.flushes_directly && options.updates_pages_of(self.bottom.mean_entry_bytes());
        if !may_be || self.bottom.bytes() < bytes {
            self.direct = DirectFlushes::Off;
            return Ok(None);
        }
        let planned = self.plan_into_bottom(updates, options)?;
        let direct = bottom_writes(&planned.cells)?;
        let staged = self.staged_bytes(bytes, direct.touched, options);
        let has_space = options.leaves_space_for(self.bottom.mean_entry_bytes());
        let growth_max = if has_space { GROWTH_MAX } else { GROWTH_MAX_OF_FULL };
        let is_dense = direct.bytes <= staged.min(bytes * WRITTEN_TIMES_MAX)
            && part_of(bytes, 1.0 - overwriting_part(&planned.cells)?) <= part_of(direct.bytes, growth_max);
        if !is_dense {
            self.direct = self.direct.after_sparse(bytes);
            return Ok(None);
        }
        let (saved, upper) = (staged - direct.bytes, self.upper_bytes());
        let emptying = self.to_bytes().emptying_cost();
        self.direct = self.direct.after_dense(FlushSeen { bytes, saved, upper, emptying });
        let is_safe = upper == 0 || planted!("direct-flush-over-older");
        let is_direct = is_safe && self.direct.upper_max().is_some();
        self.page_counts.direct_flushes += u64::from(is_direct);
        Ok(is_direct.then_some(planned))
    }

    /// Approximate bytes written by updates of `bytes` that go through the levels: one write for each
    /// level, and their share of the last move. `touched`: fraction of the bottom's pages that they touch.
    fn staged_bytes(&self, bytes: u64, touched: f64, options: &LsmOptions) -> u64 {
        let tree = self.to_bytes();
        let capacities = options.capacities(&tree);
        // Fast flushes fill a level beyond its capacity.
        let held = tree.levels.last().map_or(0, |level| level.began.max(level.filling));
        let last = capacities.last().copied().unwrap_or_default().max(held);
        let flushes = last.max(bytes) as f64 / bytes.max(1) as f64;
        let together = 1.0 - (1.0 - touched).powf(flushes);
        let last_move = if together * PAGE_UPDATE_LIMITS.parts as f64 <= 1.0 { together } else { 1.0 };
        bytes * u64_of(capacities.len()) + part_of(self.bottom.bytes(), last_move / flushes)
    }
}

/// Estimates the writes of cells of the bottom. Counts touched pages in some of the runs.
fn bottom_writes(cells: &[Cell]) -> Result<BottomWrites> {
    let rewritten: u64 = cells.iter().map(rewritten_bytes).sum();
    let incoming_of = |(level_run, merge): &(&LevelRun, &Merge)| merge.bytes.saturating_sub(level_run.bytes);
    let incoming: u64 = updated_runs(cells).map(|updated| incoming_of(&updated)).sum();
    let (mut incoming_seen, mut written, mut touched, mut blocks) = (0, 0, 0, 0);
    for updated @ (level_run, merge) in sampled_runs(cells) {
        incoming_seen += incoming_of(&updated);
        let update = PageUpdate::begin(level_run.run())?;
        let of_run = update.as_ref().map_or(0, |update| u64_of(update.sections()));
        let pages = update.map(|update| touched_pages(&update, merge)).transpose()?.unwrap_or_default();
        (touched, blocks) = (touched + pages, blocks + of_run);
        let is_rewritten = pages > (of_run / PAGE_UPDATE_LIMITS.parts).max(1) || of_run == 0;
        written += if is_rewritten { merge.bytes } else { pages * PAGE_BYTES };
    }
    let bytes = rewritten + part_of(written, incoming as f64 / incoming_seen.max(1) as f64);
    Ok(BottomWrites { bytes, touched: touched as f64 / blocks.max(1) as f64 })
}

/// Estimated fraction of a flush that overwrites entries of the bottom. Looks one key up in some of the runs.
fn overwriting_part(cells: &[Cell]) -> Result<f64> {
    let (mut found, mut tried) = (0, 0);
    for (level_run, merge) in sampled_runs(cells) {
        let Some(layer) = merge.layers.first().filter(|_| merge.layers.len() > 1) else { continue };
        let mut cursor = layer_cursor(layer.clone());
        cursor.seek_first()?;
        let Some(entry) = cursor.entry() else { continue };
        let outcome = level_run.run().get_last(entry.key, hash_key(entry.key), Access::Blocking)?;
        tried += 1;
        found += u64::from(outcome != Lookup::Absent);
    }
    Ok(found as f64 / tried.max(1) as f64)
}

/// Bytes that a cell rewrites in any case.
fn rewritten_bytes(cell: &Cell) -> u64 {
    if let Cell::Merge(merge) = cell { merge.bytes } else { 0 }
}

/// Returns the runs whose pages may be updated, each with the alternative of a merge.
fn updated_runs(cells: &[Cell]) -> impl Iterator<Item = (&LevelRun, &Merge)> {
    cells.iter().filter_map(|cell| match cell {
        Cell::Pages(level_run, merge) => Some((level_run, merge)),
        Cell::Merge(_) | Cell::Stays(_) => None,
    })
}

/// Returns at most [`SAMPLED_RUNS`] of them, evenly.
fn sampled_runs(cells: &[Cell]) -> impl Iterator<Item = (&LevelRun, &Merge)> {
    let step = updated_runs(cells).count().div_ceil(SAMPLED_RUNS).max(1);
    updated_runs(cells).step_by(step)
}

/// Number of pages of a run with incoming entries.
fn touched_pages(update: &PageUpdate, merge: &Merge) -> Result<u64> {
    // Incoming entries are in one layer: the updates.
    let Some(layer) = merge.layers.first().filter(|_| merge.layers.len() > 1) else { return Ok(0) };
    let mut cursor = layer_cursor(layer.clone());
    cursor.seek_first()?;
    let mut pages = 0;
    while let Some(entry) = cursor.entry() {
        pages += 1;
        let Some(end) = update.end_of(update.section_of(entry.key)).map(<[u8]>::to_vec) else { break };
        cursor.seek(&end)?;
    }
    Ok(pages)
}
