//! A simulation of the policy over byte counts: no records, no runs, no files, but the same decisions.
//!
//! Keys are distributed uniformly. So a move rewrites the same fraction of the level below as it takes of the
//! level above. Overwrites meet their old entries there in proportion to that level's fraction of all keys.
//!
//! **Invariants**
//! - Every decision is one of [`LsmOptions`]; this file makes none of its own.

use crate::{
    LsmOptions,
    policy::{LevelBytes, TreeBytes, part_of, usual_flush},
};

/// Writes into a simulated tree.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedLoad {
    /// Incoming bytes of keys and values, one flush after the other.
    pub incoming_bytes: u64,
    /// Bytes of one flush.
    pub flush_bytes: u64,
    /// Percentage of bytes that overwrite.
    pub overwrite_percent: u64,
    /// Flushes arrive at full speed: moves are done only when a flush waits for them.
    pub is_pressed: bool,
}

/// Costs of a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimulatedCosts {
    /// Write amplification by level: at the bottom, in level 1, in level 2 …
    pub written_by_level: Vec<f64>,
    /// Maximum bytes written between two flushes, per byte of one.
    pub dearest_flush: f64,
    /// Mean number of sorted sequences over the flushes.
    pub mean_sequences: f64,
    /// Maximum number of sorted sequences.
    pub max_sequences: usize,
    /// Space amplification at the end: bytes stored per live byte.
    pub space: f64,
}

impl SimulatedCosts {
    /// Total write amplification.
    pub fn write_amplification(&self) -> f64 {
        self.written_by_level.iter().sum()
    }
}

/// Bytes of a level that overwrite nothing.
#[derive(Clone, Copy, Debug, Default)]
struct NewBytes {
    filling: u64,
    emptying: u64,
}

/// Levels of byte counts; each load continues from the state after the previous one.
#[derive(Debug)]
pub struct SimulatedLevels {
    options: LsmOptions,
    tree: TreeBytes,
    /// Number of sequences that fill level 1, and that are emptied out of it.
    flushes: (usize, usize),
    /// Bytes of each level that overwrite nothing.
    new: Vec<NewBytes>,
    /// Bytes written by the current load, by level, the bottom first.
    written: Vec<u64>,
    /// Bytes of new data.
    live_bytes: u64,
}

impl SimulatedLevels {
    /// Creates an empty tree.
    pub fn new(options: LsmOptions) -> Self {
        let tree = TreeBytes::default();
        Self {
            options,
            tree,
            flushes: (0, 0),
            new: vec![NewBytes::default()],
            written: Vec::new(),
            live_bytes: 0,
        }
    }

    /// Applies a load; returns its costs.
    pub fn apply(&mut self, load: &SimulatedLoad) -> SimulatedCosts {
        self.written = Vec::new();
        let new_share = 1.0 - load.overwrite_percent as f64 / 100.0;
        let mut costs = SimulatedCosts::default();
        let (mut written, mut sequences) = (0, 0);
        let flushes = load.incoming_bytes / load.flush_bytes.max(1);
        for _ in 0..flushes {
            self.flush(load.flush_bytes, new_share);
            self.do_jobs(load.is_pressed);
            let before = std::mem::replace(&mut written, self.written.iter().sum());
            costs.dearest_flush = costs.dearest_flush.max(ratio(written - before, load.flush_bytes));
            let now = self.sequences();
            sequences += now;
            costs.max_sequences = costs.max_sequences.max(now);
        }
        costs.written_by_level =
            self.written.iter().map(|&bytes| ratio(bytes, load.incoming_bytes)).collect();
        costs.mean_sequences = sequences as f64 / flushes.max(1) as f64;
        costs.space = ratio(self.tree.upper() + self.tree.bottom, self.live_bytes);
        costs
    }

    fn sequences(&self) -> usize {
        let deeper = self.tree.levels.iter().skip(1);
        let count: usize =
            deeper.map(|level| usize::from(level.filling > 0) + usize::from(level.emptying > 0)).sum();
        self.flushes.0 + self.flushes.1 + count + usize::from(self.tree.bottom > 0)
    }

    fn record_written(&mut self, level: usize, bytes: u64) {
        if self.written.len() <= level {
            self.written.resize(level + 1, 0);
        }
        self.written[level] += bytes;
    }

    /// Applies a flush, as an update of a tree does.
    fn flush(&mut self, bytes: u64, new_share: f64) {
        self.live_bytes += part_of(bytes, new_share);
        self.tree.flush = usual_flush(self.tree.flush, bytes);
        if self.options.goes_to_bottom(bytes, &self.tree) {
            self.merge_into_bottom(bytes, part_of(bytes, new_share), self.tree.bottom);
            return;
        }
        if self.tree.levels.is_empty() {
            self.tree.levels.push(LevelBytes::default());
        }
        self.record_written(1, bytes);
        self.tree.levels[0].filling += bytes;
        self.new[0].filling += part_of(bytes, new_share);
        self.flushes.0 += 1;
        self.hand_over();
    }

    /// Does the jobs of a tree.
    fn do_jobs(&mut self, is_pressed: bool) {
        loop {
            let capacities = self.options.capacities(&self.tree);
            if is_pressed && self.options.behind_bytes(&self.tree, &capacities) == 0 {
                return;
            }
            let Some((level, bytes)) = self.options.next_move(&self.tree, &capacities) else { return };
            self.move_down(level, bytes);
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let capacities = self.options.capacities(&self.tree);
        while self.tree.levels.len() < capacities.len() {
            self.tree.levels.push(LevelBytes::default());
        }
        self.new.resize(self.tree.levels.len().max(1), NewBytes::default());
        for level in (0..self.tree.levels.len()).rev() {
            if self.options.hands_over(level, &self.tree, &capacities) {
                let filling = std::mem::take(&mut self.tree.levels[level].filling);
                self.tree.levels[level].emptying = filling;
                self.tree.levels[level].began = filling;
                self.new[level] = NewBytes { filling: 0, emptying: self.new[level].filling };
                if level == 0 {
                    self.flushes = (0, self.flushes.0);
                }
            }
        }
        let is_idle = |level: &LevelBytes| level.filling + level.emptying == 0;
        while self.tree.levels.len() > capacities.len() && self.tree.levels.last().is_some_and(is_idle) {
            self.tree.levels.pop();
        }
    }

    fn move_down(&mut self, level: usize, moved: u64) {
        let LevelBytes { emptying, began, .. } = self.tree.levels[level];
        let moved_new = part_of(self.new[level].emptying, ratio(moved, emptying)).min(moved);
        self.tree.levels[level].emptying -= moved;
        self.new[level].emptying -= moved_new;
        if level == 0 && self.tree.levels[0].emptying == 0 {
            self.flushes.1 = 0;
        }
        // The part of the destination below the moved range; earlier moves are before it.
        if level + 1 == self.tree.levels.len() {
            let touched = part_of(self.tree.bottom, ratio(moved, began.max(1)));
            self.merge_into_bottom(moved, moved_new, touched);
            return;
        }
        let gone = began.saturating_sub(emptying);
        let LevelBytes { filling, .. } = self.tree.levels[level + 1];
        let touched = part_of(filling.saturating_sub(gone), ratio(moved, began));
        // The result of a merge of two entries is an overwrite only if the older one was.
        let met = part_of(touched, ratio(moved - moved_new, moved) * ratio(began, self.live_bytes));
        self.record_written(level + 2, moved + touched - met);
        self.tree.levels[level + 1].filling += moved - met;
        self.new[level + 1].filling += moved_new;
    }

    fn merge_into_bottom(&mut self, incoming: u64, new: u64, touched: u64) {
        self.record_written(0, touched + new);
        if self.tree.bottom > 0 {
            self.tree.overwrites = self.tree.overwrites.after(incoming, incoming - new);
        }
        self.tree.bottom += new;
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests;
