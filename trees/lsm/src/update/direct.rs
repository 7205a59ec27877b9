//! Direct flushes: updates that go past the levels, straight into pages of the bottom (TreeLine §4.1).
//!
//! Levels pay off for scattered updates: many of them reach a page together. Updates that are dense, several
//! records for each page that they touch, gain nothing by waiting, but are written once more in level 1. Each
//! flush is estimated both ways. Once the levels above are empty, those for which pages cost less are direct.
//!
//! The levels are emptied early for that, at a cost. So direct flushes begin only after flushes that would
//! have saved as much as emptying the levels costs, and end with the first flush that costs less in levels.
//!
//! **Invariants**
//! - A flush is direct only if nothing is above the bottom: older entries there would hide its own.
//! - The estimate reads index pages of a few runs, and one data page of each.

use std::sync::Arc;

use testudo_base::{Cursor, PAGE_BYTES, Result, checksum::hash_key, num::u64_of};
use testudo_contract::Updates;
use testudo_run::{Access, Lookup, PageUpdate};
use testudo_sequence::layer_cursor;

use crate::{
    LsmOptions,
    levels::{Levels, component::LevelRun, direct_flushes::DirectFlushes},
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

/// Maximum growth of a touched page, as a fraction of it: pages that overflow are soon rewritten with their run.
const GROWTH_MAX: f64 = 0.25;

/// Estimated bytes written into the bottom by a flush.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BottomWrites {
    bytes: u64,
    /// Fraction of the bottom's pages that it touches.
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
        if !options.may_flush_directly(self.bottom.mean_entry_bytes()) || self.bottom.bytes() < bytes {
            self.direct = DirectFlushes::default();
            return Ok(None);
        }
        let planned = self.plan_into_bottom(updates, options)?;
        let direct = bottom_writes(&planned.cells)?;
        let in_levels = self.staged_bytes(bytes, direct.touched, options);
        let is_cheap = direct.bytes <= in_levels.min(bytes * WRITTEN_TIMES_MAX)
            && part_of(bytes, 1.0 - overwriting_part(&planned.cells)?) <= part_of(direct.bytes, GROWTH_MAX);
        if !is_cheap {
            self.direct = DirectFlushes::default();
            return Ok(None);
        }
        let (saved, upper) = (in_levels - direct.bytes, self.upper_bytes());
        self.direct = self.direct.after(bytes, saved, self.to_bytes().emptying_cost(), upper);
        let is_direct = upper == 0 && self.direct.upper_max().is_some();
        Ok(is_direct.then_some(planned))
    }

    /// Approximate bytes that updates of `bytes` cost if they go through the levels: one write for each level
    /// and their share of the last move. `touched`: fraction of the bottom's pages that they touch.
    fn staged_bytes(&self, bytes: u64, touched: f64, options: &LsmOptions) -> u64 {
        let capacities = options.capacities(&self.to_bytes());
        let (levels, last) = (u64_of(capacities.len()), capacities.last().copied().unwrap_or_default());
        let flushes = last.max(bytes) as f64 / bytes.max(1) as f64;
        let together = 1.0 - (1.0 - touched).powf(flushes);
        let limit = 1.0 / PAGE_UPDATE_LIMITS.parts as f64;
        let last_move = if together <= limit { together } else { 1.0 };
        bytes * levels + part_of(self.bottom.bytes(), last_move / flushes)
    }
}

/// Estimates the bytes written by cells of the bottom. Counts touched pages in some of the runs.
fn bottom_writes(cells: &[Cell]) -> Result<BottomWrites> {
    let rewritten: u64 = cells.iter().map(rewritten_bytes).sum();
    let updated: Vec<(&LevelRun, &Merge)> = cells.iter().filter_map(updated_run).collect();
    let incoming_of = |(level_run, merge): &(&LevelRun, &Merge)| merge.bytes.saturating_sub(level_run.bytes);
    let incoming: u64 = updated.iter().map(incoming_of).sum();
    let step = updated.len().div_ceil(SAMPLED_RUNS).max(1);
    let (mut sampled, mut written, mut touched, mut blocks) = (0, 0, 0, 0);
    for cell @ (level_run, merge) in updated.iter().step_by(step) {
        sampled += incoming_of(cell);
        let Some(update) = PageUpdate::begin(level_run.run())? else {
            written += merge.bytes;
            continue;
        };
        let (count, of_run) = (touched_pages(&update, merge)?, u64_of(update.blocks()));
        (touched, blocks) = (touched + count, blocks + of_run);
        let is_rewritten = count > (of_run / PAGE_UPDATE_LIMITS.parts).max(1);
        written += if is_rewritten { merge.bytes } else { count * PAGE_BYTES };
    }
    let bytes = rewritten + part_of(written, incoming as f64 / sampled.max(1) as f64);
    Ok(BottomWrites { bytes, touched: touched as f64 / blocks.max(1) as f64 })
}

/// Estimated fraction of a flush that overwrites entries of the bottom. Looks one key up in some of the runs.
fn overwriting_part(cells: &[Cell]) -> Result<f64> {
    let updated: Vec<(&LevelRun, &Merge)> = cells.iter().filter_map(updated_run).collect();
    let step = updated.len().div_ceil(SAMPLED_RUNS).max(1);
    let (mut found, mut tried) = (0, 0);
    for (level_run, merge) in updated.iter().step_by(step) {
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

fn updated_run(cell: &Cell) -> Option<(&LevelRun, &Merge)> {
    if let Cell::Pages(level_run, merge) = cell { Some((level_run, merge)) } else { None }
}

/// Number of blocks of a run with incoming entries.
fn touched_pages(update: &PageUpdate, merge: &Merge) -> Result<u64> {
    let Some((_, incoming)) = merge.layers.split_last() else { return Ok(0) };
    let mut count = 0;
    // Incoming entries are in one layer: the updates.
    for layer in incoming {
        let mut cursor = layer_cursor(layer.clone());
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            count += 1;
            match update.end_of(update.block_of(entry.key)) {
                Some(end) => {
                    let end = end.to_vec();
                    cursor.seek(&end)?;
                }
                None => break,
            }
        }
    }
    Ok(count)
}
