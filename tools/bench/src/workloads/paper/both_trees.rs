//! Helpers of the experiments that compare two trees side by side.
//!
//! **Invariants**
//! - Settings run in two rounds of opposite order, so that drift of the machine affects all of them alike.

use super::experiment::Experiment;
use crate::report::{line_chart::Line, size::quotient};

/// Presets; the first one is the baseline.
pub(crate) const TREES: [&str; 2] = ["turtle", "splinter"];

/// Number of rounds.
pub(crate) const ROUNDS: usize = 2;

/// Returns all pairs of a setting and a tree, by index, in order and then in reverse.
pub(crate) fn rounds(settings: usize) -> impl Iterator<Item = (usize, usize)> {
    let there = move || (0..settings * TREES.len()).map(|index| (index / TREES.len(), index % TREES.len()));
    there().chain(there().rev())
}

/// Returns a leaf size small enough for several tree levels at the experiment's size.
pub(crate) fn leaf_bytes(experiment: &Experiment<'_>) -> u64 {
    experiment.scaled(64 << 10, 256 << 10, 2 << 20)
}

/// Returns a tenth of the data size, as in the SplinterDB paper.
pub(crate) fn memory_bytes(records: u64) -> u64 {
    (records * 124 / 10).max(4 << 20)
}

/// Returns one line per tree, with one point per setting.
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

/// Formats the second tree's value relative to the first's: `1.25 times`.
pub(crate) fn times(first: f64, second: f64) -> String {
    format!("{:.2} times", quotient(second, first))
}
