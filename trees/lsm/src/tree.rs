//! The tree's interface to the engine: open, get, cursor, apply, jobs, statistics.
//!
//! **Invariants**
//! - An `LsmTree` is immutable; `apply` and `install` return the next one.

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use testudo_base::{
    Cursor, KeyspaceId, ObjectId, PAGE_BYTES, Result, RunId,
    num::u64_of,
    planted,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use testudo_contract::{
    Compact, Heading, Inspect, Job, JobRequest, Movable, OutlineLine, PageUpdateStats, Part, Portion,
    Prepared, RangeJob, Read, Reclaim, ReclaimLimits, RecordedDrops, Tree, TreeEdit, TreeStats, Update,
    Updates, Work,
};
use testudo_run::{Access, KeyBounds, Lookup, RunLayout, ScanLimits};
use testudo_sequence::{
    Bounds, Fence, PartCursor, TreeShare, find_stacked, load_sparing_damaged, on_top_bytes, write_updates,
};
use testudo_storage::{Change, DataFile, PageAddress};

use crate::{
    LsmOptions,
    forecast::InsertForecast,
    levels::{
        Level, Levels,
        component::{Component, LevelRun},
        edit::{changes_between, deletions_of},
        invariants,
        load::load_levels,
        written_counts::PageCounts,
    },
    policy::{REWRITES_PER_DOUBLING, pair_sizes::PairSizes},
    read_charges::ReadCharges,
    scan::{LevelParts, buffered_scan::BufferedScan},
    update::{
        destination::Destination, install::Done, jobs, migrate, moves::level_runs, reclaim, write::write_all,
    },
};

/// A leveled tree.
#[derive(Debug)]
pub struct LsmTree {
    data: Arc<DataFile>,
    options: LsmOptions,
    levels: Arc<Levels>,
    read_charges: Arc<ReadCharges>,
    /// Retained runs that were dropped because of damage.
    damaged_runs: Arc<AtomicU64>,
    /// It is persisted in the manifest.
    is_stored: bool,
    /// Bytes of all entries, computed on first use.
    user_bytes: OnceLock<u64>,
}

impl LsmTree {
    /// Creates an empty tree, which is not yet in the manifest.
    pub fn empty(options: LsmOptions, data: &Arc<DataFile>) -> Arc<Self> {
        let levels = Levels { next_object: 1, forecast: InsertForecast::new(data), ..Levels::default() };
        Arc::new(Self::of(options, data, levels, false))
    }

    /// Opens the tree that `objects` describe; empty if there are none. Reads no pages.
    ///
    /// Errors: `Corruption` if the objects contradict each other or the live extents.
    pub fn open(
        options: LsmOptions,
        data: &Arc<DataFile>,
        keyspace: KeyspaceId,
        objects: BTreeMap<ObjectId, Arc<[u8]>>,
    ) -> Result<Arc<Self>> {
        Ok(match load_levels(data, keyspace, objects)? {
            None => Self::empty(options, data),
            Some(levels) => Arc::new(Self::of(options, data, levels, true)),
        })
    }

    fn of(options: LsmOptions, data: &Arc<DataFile>, levels: Levels, is_stored: bool) -> Self {
        let (data, levels, user_bytes) = (Arc::clone(data), Arc::new(levels), OnceLock::new());
        let (read_charges, damaged_runs) = (Arc::default(), Arc::default());
        Self { data, options, levels, read_charges, damaged_runs, is_stored, user_bytes }
    }

    /// Creates the next state of the tree.
    fn next(&self, options: LsmOptions, levels: Levels, is_stored: bool) -> Arc<Self> {
        let (read_charges, damaged_runs) = (Arc::clone(&self.read_charges), Arc::clone(&self.damaged_runs));
        Arc::new(Self { read_charges, damaged_runs, ..Self::of(options, &self.data, levels, is_stored) })
    }

    /// Looks up `key` in the sequences after the first `passed` ones, and sets `passed` to the number of
    /// sequences searched, including the one that answers.
    #[inline]
    fn find(&self, key: &[u8], hash: u64, access: Access<'_>, passed: &mut u32) -> Result<Lookup> {
        let done = *passed;
        *passed = 0;
        for component in self.levels.upper() {
            *passed += 1;
            if *passed <= done {
                continue;
            }
            if planted!("buffer-before-filter")
                && let Some(known) = component.buffer().and_then(|buffer| buffer.get(key, hash, access))
            {
                return Ok(known);
            }
            let Some(fenced) = component.find(key) else { continue };
            let known = || component.buffer()?.get(key, hash, access);
            let found = fenced.run.get_unless_known(key, hash, access, known)?;
            if found != Lookup::Absent {
                return Ok(found);
            }
            if let Some(effort) = access.take_effort() {
                self.read_charges.charge_probe(effort.reads());
            }
            access.set_passed(*passed);
        }
        *passed += 1;
        match self.levels.bottom.find(key) {
            Some(fenced) if *passed > done => {
                let known = || self.levels.bottom.buffer()?.get(key, hash, access);
                if planted!("buffer-before-filter")
                    && let Some(known) = known()
                {
                    return Ok(known);
                }
                fenced.run.get_last_unless_known(key, hash, access, known)
            }
            _ => Ok(Lookup::Absent),
        }
    }

    /// Writes the planned destinations; returns the levels with them installed.
    fn finish(
        mut levels: Levels,
        mut destinations: Vec<Destination>,
        work: &Work,
        sizes: &LsmOptions,
    ) -> Result<Levels> {
        let forecast = levels.job_forecast(sizes);
        let written = write_all(&mut destinations, work, sizes, forecast)?;
        debug_assert_eq!(written.len(), destinations.len(), "each destination has its runs");
        for (destination, runs) in destinations.into_iter().zip(written) {
            levels.install(destination, runs)?;
        }
        Ok(levels)
    }

    /// Creates the edit whose tree has `levels`.
    fn edit(&self, mut levels: Levels, work: &Work) -> TreeEdit {
        let capacities = self.options.capacities(&levels.to_bytes());
        levels.tidy(capacities.len());
        levels.trim_retained(self.options.retained_percent);
        debug_assert!(levels.next_object >= self.levels.next_object, "object ids are never reused");
        let known = levels.retained_runs();
        let given_up = self
            .levels
            .retained_runs()
            .into_iter()
            .filter(|(id, run)| run.is_known_damaged() && !known.contains_key(id));
        self.damaged_runs.fetch_add(u64_of(given_up.count()), Relaxed);
        let changes = changes_between(&self.levels, &levels, self.is_stored, work.keyspace);
        let bytes = levels.to_bytes();
        let tree_share = TreeShare::within(work, || bytes.total());
        let pair_sizes = PairSizes::within(work, bytes.upper());
        let options = LsmOptions { tree_share, pair_sizes, ..self.options };
        TreeEdit { tree: self.next(options, levels, true), changes }
    }

    /// Returns `levels` with updates as the newest sequence of level 1, without a merge.
    fn put_on_top(&self, work: &Work, updates: &dyn Updates, sizes: &LsmOptions) -> Result<Levels> {
        let mut levels = (*self.levels).clone();
        let runs = write_updates(work, updates, sizes.run_bytes)?;
        if runs.is_empty() {
            return Ok(levels);
        }
        let newest = Component::of_runs(level_runs(runs), &mut levels.next_object)?;
        debug_assert!(!newest.is_empty(), "the updates are in it");
        if levels.levels.is_empty() {
            levels.levels.push(Level::default());
        }
        levels.levels[0].filling.insert(0, newest);
        Ok(levels)
    }
}

impl Read for LsmTree {
    fn get(&self, key: &[u8], hash: u64, access: Access<'_>) -> Result<Lookup> {
        let effort = Cell::default();
        find_stacked(access.counted(&effort), |access, passed| self.find(key, hash, access, passed))
    }

    fn may_hold_more(&self, key: &[u8], bytes: u64) -> bool {
        let all = || self.levels.live_runs().map(|level_run| level_run.run().reference().user_bytes).sum();
        let of_key = || -> u64 {
            let runs = self.levels.components().filter_map(|component| component.find(key));
            runs.map(|fenced| fenced.run.reference().user_bytes).sum()
        };
        *self.user_bytes.get_or_init(all) > bytes && of_key() > bytes
    }

    fn load_pages(&self, pages: &[PageAddress]) -> Result<()> {
        self.data
            .load_pages(pages)
            .or_else(|_| load_sparing_damaged(&self.data, pages, self.levels.retained_runs()))
    }

    fn cursor_within(&self, limits: &ScanLimits) -> Box<dyn Cursor + Send> {
        let Self { data, levels, read_charges, .. } = self;
        if levels.components().any(|component| component.buffer().is_some()) {
            return Box::new(BufferedScan::new(levels, read_charges, data, limits));
        }
        Box::new(PartCursor::new(LevelParts::new(levels, read_charges), data, limits))
    }
}

impl Update for LsmTree {
    fn apply(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit> {
        let mut levels = (*self.levels).clone();
        let destination = levels.plan_update(&updates, &self.options)?;
        let mut levels = Self::finish(levels, vec![destination], work, &self.options)?;
        levels.hand_over(&self.options);
        Ok(self.edit(levels, work))
    }

    fn apply_on_top(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit> {
        let levels = self.put_on_top(work, &*updates, &self.options.sparing())?;
        Ok(self.edit(levels, work))
    }

    fn on_top_bytes(&self, memory_bytes: u64) -> u64 {
        on_top_bytes(memory_bytes, self.options.sparing().run_bytes)
    }

    fn rewrites_per_doubling(&self) -> f64 {
        REWRITES_PER_DOUBLING
    }
}

impl Compact for LsmTree {
    fn reclaim_bytes(&self) -> u64 {
        reclaim::bytes_max(&self.levels, &self.options.sparing())
    }

    fn pick_reclaim(&self, limits: &ReclaimLimits<'_>) -> Result<Option<Reclaim>> {
        reclaim::pick(&self.levels, &self.options.sparing(), limits)
    }

    fn reclaim(&self, work: &Work, reclaim: &Reclaim) -> Result<TreeEdit> {
        let levels = reclaim::reclaim(&self.levels, work, &self.options.sparing(), reclaim)?;
        Ok(self.edit(levels, work))
    }

    fn pick_job(&self, request: &JobRequest<'_>) -> Option<Job> {
        jobs::pick_job(&self.levels, &self.options, self.read_charges.bytes(), request)
    }

    fn job_bytes_max(&self, bytes_max: u64) -> u64 {
        jobs::job_bytes_max(&self.levels, &self.options, bytes_max)
    }

    fn pick_range(&self, range: &KeyBounds, bytes_max: u64) -> Result<Option<RangeJob>> {
        jobs::pick_range(&self.levels, &self.options, range, bytes_max)
    }

    fn has_new_reasons(&self) -> bool {
        self.read_charges.take_note() || self.levels.has_damaged_retained()
    }

    fn behind_bytes(&self) -> u64 {
        let tree = self.levels.to_bytes();
        self.options.behind_bytes(&tree, &self.options.capacities(&tree))
    }

    fn prepare(&self, work: &Work, job: &Job) -> Result<Prepared> {
        let done = jobs::prepare(&self.levels, &self.options, &self.read_charges, work, job)?;
        Ok(Prepared::new(job.what, done))
    }

    fn install(&self, work: &Work, prepared: Prepared) -> Result<Option<TreeEdit>> {
        let Some(done) = prepared.into::<Done>() else { return Ok(None) };
        let Some(mut levels) = done.put_into(&self.levels, &self.options)? else {
            return Ok(None);
        };
        levels.hand_over(&self.options);
        Ok(Some(self.edit(levels, work)))
    }
}

impl Inspect for LsmTree {
    fn stats(&self) -> TreeStats {
        let levels = &*self.levels;
        let mut stats = TreeStats {
            height: u32::try_from(levels.levels.len() + 1).unwrap_or(u32::MAX),
            nodes: levels.components().map(|component| u64_of(component.segments().len())).sum(),
            leaf_bytes: levels.bottom.bytes(),
            buffered_bytes: levels.upper_bytes(),
            buffered_runs: levels.upper().map(|component| u64_of(component.len())).sum(),
            ..TreeStats::default()
        };
        let has_values = |level_run: &&LevelRun| {
            let run = level_run.run().reference();
            run.entries > run.tombstones
        };
        stats.leaves = u64_of(levels.bottom.iter().filter(has_values).count());
        for run in levels.live_runs().map(|level_run| level_run.run().reference()) {
            stats.entries += run.entries;
            stats.tombstones += run.tombstones;
            stats.stored_bytes += run.stored_bytes();
            stats.index_bytes += u64::from(run.footer_page.saturating_sub(run.data_pages)) * PAGE_BYTES;
            if let Some(replaced) = &run.replaced {
                stats.replaced_pages += u64_of(replaced.page_count());
                stats.overflow_pages += u64_of(replaced.overflow().len());
            }
        }
        if self.options.updates_pages {
            let is_rewritten = |level_run: &&LevelRun| level_run.run().reference().has_continued_values;
            let bottom = levels.bottom.iter().filter(is_rewritten);
            stats.continued_bytes = bottom.map(|level_run| level_run.bytes).sum();
            let counts = levels.page_counts;
            let PageCounts { replaced, overflowed, joined, inserts, hits, .. } = counts;
            let PageCounts { rewritten_runs, moved_groups, direct_flushes, .. } = counts;
            stats.page_updates = PageUpdateStats {
                replaced,
                overflowed,
                joined,
                inserts,
                forecast_hits: hits,
                rewritten_runs,
                moved_groups,
                direct_flushes,
            };
        }
        stats.retained_bytes = levels.retained_only_bytes();
        stats.stored_bytes += stats.retained_bytes;
        stats.frozen_levels = u64_of(levels.frozen());
        stats.retained_damaged_runs = self.damaged_runs.load(Relaxed);
        stats
    }

    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<u64> {
        let bounds = Bounds { low: low.map(Fence::from), high: high.map(Fence::from) };
        if bounds.is_empty() {
            return Ok(0);
        }
        self.levels.components().map(|component| component.bytes_within(&bounds)).sum()
    }

    fn outline(&self) -> Vec<OutlineLine> {
        let line = |depth: u32, what: &'static str, components: &[&Component]| OutlineLine {
            depth,
            what,
            count: components.iter().map(|component| u64_of(component.len())).sum(),
            bytes: components.iter().map(|component| component.bytes()).sum(),
            entries: components
                .iter()
                .flat_map(|component| component.iter())
                .map(|level_run| level_run.run().reference().entries)
                .sum(),
        };
        let mut lines = Vec::new();
        for level in &self.levels.levels {
            let all: Vec<&Component> = level.filling.iter().chain(&level.emptying).collect();
            lines.push(line(0, "level", &all));
            lines.extend(level.filling.iter().map(|component| line(1, "filling", &[component])));
            lines.extend(level.emptying.iter().map(|component| line(1, "emptying", &[component])));
        }
        lines.push(line(0, "bottom", &[&self.levels.bottom]));
        lines.extend(self.levels.bottom_outline(self.options.updates_pages));
        for buffer in self.levels.components().filter_map(Component::buffer) {
            lines.push(OutlineLine {
                depth: 1,
                what: "retained",
                count: buffer.sections(),
                bytes: buffer.stored_bytes(),
                entries: 0,
            });
        }
        lines
    }

    fn parts(&self) -> Vec<Part> {
        self.levels.runs().cloned().map(Part::Run).collect()
    }

    fn is_spare(&self, run: RunId) -> bool {
        let is_live = |level_run: &LevelRun| level_run.run().reference().id == run;
        self.levels.retained_runs().contains_key(&run) && !self.levels.live_runs().any(is_live)
    }

    fn check_invariants(&self, deep: bool) -> Result<()> {
        invariants::check(&self.levels, deep)
    }

    fn check_retained(&self) -> Result<()> {
        for component in self.levels.components() {
            let Some(buffer) = component.buffer() else { continue };
            let own_of = |key: &[u8], hash| {
                component.find(key).map(|fenced| fenced.run.get(key, hash, Access::Blocking)).transpose()
            };
            buffer.check_law(own_of)?;
        }
        Ok(())
    }
}

impl Tree for LsmTree {
    fn as_movable(&self) -> Option<&dyn Movable> {
        Some(self)
    }
}

impl Movable for LsmTree {
    fn bottom_layout(&self, entry_bytes: u64) -> RunLayout {
        self.options.bottom_layout(entry_bytes)
    }

    fn run_bytes(&self) -> u64 {
        self.options.run_bytes
    }

    fn job_while_left(&self, request: &JobRequest<'_>) -> Option<Job> {
        // Flushes continue, and queries search everything that they leave.
        self.pick_job(&JobRequest { is_idle: false, ..*request })
    }

    fn next_border(&self, rest: &KeyBounds, heading: Heading, bytes: u64) -> Result<Option<Vec<u8>>> {
        migrate::next_border(&self.levels, rest, heading, bytes)
    }

    fn merging_cursor(&self, work: &Work) -> Box<dyn Cursor + Send> {
        let parts = LevelParts::new(&self.levels, &self.read_charges);
        let sink = RecordedDrops(Arc::clone(&work.progress));
        Box::new(PartCursor::with_sink(parts, &self.data, &ScanLimits::default(), sink))
    }

    fn with_portion(&self, work: &Work, portion: &Portion) -> Result<TreeEdit> {
        Ok(self.edit(migrate::with_portion(&self.levels, portion)?, work))
    }

    fn without_outside(&self, work: &Work, keep: &KeyBounds) -> Result<TreeEdit> {
        Ok(self.edit(migrate::without_outside(&self.levels, keep)?, work))
    }

    fn cut_to(&self, work: &Work, keep: &KeyBounds) -> Result<TreeEdit> {
        Ok(self.edit(migrate::cut_to(&self.levels, work, &self.options, keep)?, work))
    }

    fn clear(&self, work: &Work) -> Vec<Change> {
        if self.is_stored { deletions_of(&self.levels, work.keyspace) } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests;
