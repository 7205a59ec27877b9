//! Two trees beside each other, in everything that compares them.
//!
//! **Invariants**
//! - Settings are run in two rounds of opposite order, so that what changes in time on the machine meets all
//!   of them.

use super::experiment::Experiment;
use crate::report::{line_chart::Line, size::quotient};

/// Presets, the one that the other is compared with first.
pub(crate) const TREES: [&str; 2] = ["turtle", "splinter"];

/// Rounds of everything.
pub(crate) const ROUNDS: usize = 2;

/// All pairs of a setting, by index, and a tree, by index: there and back.
pub(crate) fn rounds(settings: usize) -> impl Iterator<Item = (usize, usize)> {
    let there = move || (0..settings * TREES.len()).map(|index| (index / TREES.len(), index % TREES.len()));
    there().chain(there().rev())
}

/// Leaves small enough that a tree of the experiment's size has several levels.
pub(crate) fn leaf_bytes(experiment: &Experiment<'_>) -> u64 {
    experiment.scaled(64 << 10, 256 << 10, 2 << 20)
}

/// A tenth of the data, as in the SplinterDB paper.
pub(crate) fn memory_bytes(records: u64) -> u64 {
    (records * 124 / 10).max(4 << 20)
}

/// One line for each tree: of the points of one setting each.
pub(crate) fn lines<P>(
    settings: &[f64],
    points: &[[P; TREES.len()]],
    value: impl Fn(&P) -> f64,
) -> Vec<Line> {
    let line = |tree: usize| {
        let places = settings.iter().zip(points).map(|(x, points)| (*x, value(&points[tree]))).collect();
        Line { name: TREES[tree].to_owned(), points: places }
    };
    (0..TREES.len()).map(line).collect()
}

/// How the second tree compares with the first: `1.25 times`.
pub(crate) fn times(first: f64, second: f64) -> String {
    format!("{:.2} times", quotient(second, first))
}
