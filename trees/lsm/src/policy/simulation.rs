//! A simulation of the policy over byte counts: no records, no runs, no files, but the same decisions.
//!
//! Keys are spread evenly, so a move rewrites as large a part of the level below as it takes of the level
//! above. What overwrites is found out by the bottom alone: other merges drop nothing.
//!
//! **Invariants**
//! - Every decision is one of [`LsmOptions`]; nothing here chooses by itself.

use crate::{
    LsmOptions,
    policy::{LevelBytes, TreeBytes, part_of, usual_flush},
};

/// What is written into a simulated tree.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedLoad {
    /// Bytes of keys and values that come in, one flush after the other.
    pub incoming_bytes: u64,
    /// Bytes of one flush.
    pub flush_bytes: u64,
    /// Of a hundred bytes, those that replace what is there.
    pub overwrite_percent: u64,
}

/// What it has cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimulatedCosts {
    /// Bytes written for each byte that came in, at the bottom, in level 1, in level 2 …
    pub written_by_level: Vec<f64>,
    /// Bytes written in the dearest flush, for each byte of it.
    pub dearest_flush: f64,
    /// Sorted sequences, on average over the flushes.
    pub mean_sequences: f64,
    /// The most sorted sequences that there were.
    pub max_sequences: usize,
    /// Bytes stored at the end for each byte that counts.
    pub space: f64,
}

impl SimulatedCosts {
    /// Bytes written for each byte that came in.
    pub fn write_amplification(&self) -> f64 {
        self.written_by_level.iter().sum()
    }
}

/// Levels of byte counts; they go on where the load before has left them.
#[derive(Debug)]
pub struct SimulatedLevels {
    options: LsmOptions,
    tree: TreeBytes,
    /// Sequences that fill level 1, and that are emptied out of it.
    flushes: (usize, usize),
    /// By level, the bottom first, of the present load.
    written: Vec<u64>,
    /// Bytes that came in as new.
    live_bytes: u64,
}

impl SimulatedLevels {
    /// An empty tree.
    pub fn new(options: LsmOptions) -> Self {
        let tree = TreeBytes::default();
        Self { options, tree, flushes: (0, 0), written: Vec::new(), live_bytes: 0 }
    }

    /// Lets a load in; what it has cost.
    pub fn apply(&mut self, load: &SimulatedLoad) -> SimulatedCosts {
        self.written = Vec::new();
        let new_share = 1.0 - load.overwrite_percent as f64 / 100.0;
        let mut costs = SimulatedCosts::default();
        let (mut written, mut sequences) = (0, 0);
        let flushes = load.incoming_bytes / load.flush_bytes.max(1);
        for _ in 0..flushes {
            self.flush(load.flush_bytes, new_share);
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

    /// As an update of a tree.
    fn flush(&mut self, bytes: u64, new_share: f64) {
        self.live_bytes += part_of(bytes, new_share);
        self.tree.flush = usual_flush(self.tree.flush, bytes);
        if self.options.goes_to_bottom(bytes, &self.tree) {
            self.merge_into_bottom(bytes, self.tree.bottom, new_share);
            return;
        }
        let capacities = self.options.capacities(&self.tree);
        while self.tree.levels.len() < capacities.len() {
            self.tree.levels.push(LevelBytes::default());
        }
        for level in (0..self.tree.levels.len()).rev() {
            if self.options.hands_over(level, &self.tree, &capacities) {
                let filling = std::mem::take(&mut self.tree.levels[level].filling);
                self.tree.levels[level].emptying = filling;
                self.tree.levels[level].began = filling;
                if level == 0 {
                    self.flushes = (0, self.flushes.0);
                }
            }
        }
        self.record_written(1, bytes);
        let before = self.tree.clone();
        self.tree.levels[0].filling += bytes;
        self.flushes.0 += 1;
        let mut incoming = bytes;
        for level in 0..self.tree.levels.len() {
            let moved = self.options.bytes_to_move(level, incoming, &before, &capacities);
            incoming = 0;
            if moved > 0 {
                incoming = moved;
                self.move_down(level, moved, &before, new_share);
            }
        }
        let is_idle = |level: &LevelBytes| level.filling + level.emptying == 0;
        while self.tree.levels.len() > capacities.len() && self.tree.levels.last().is_some_and(is_idle) {
            self.tree.levels.pop();
        }
    }

    fn move_down(&mut self, level: usize, moved: u64, before: &TreeBytes, new_share: f64) {
        let emptying = before.levels[level].emptying;
        self.tree.levels[level].emptying -= moved;
        if level == 0 && self.tree.levels[0].emptying == 0 {
            self.flushes.1 = 0;
        }
        // Of the destination the part that lies below what goes down; what went before lies before it.
        let LevelBytes { began, .. } = before.levels[level];
        if level + 1 < self.tree.levels.len() {
            let gone = began.saturating_sub(emptying);
            let there = before.levels[level + 1].filling.saturating_sub(gone);
            let touched = part_of(there, ratio(moved, began));
            self.record_written(level + 2, moved + touched);
            self.tree.levels[level + 1].filling += moved;
        } else {
            let touched = part_of(before.bottom, ratio(moved, began.max(1)));
            self.merge_into_bottom(moved, touched, new_share);
        }
    }

    fn merge_into_bottom(&mut self, incoming: u64, touched: u64, new_share: f64) {
        let added = part_of(incoming, new_share);
        self.record_written(0, touched + added);
        if self.tree.bottom > 0 {
            self.tree.overwrites = self.tree.overwrites.after(incoming, incoming - added);
        }
        self.tree.bottom += added;
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests;
