//! Tree switches while a workload runs: the next tree, and the throughput with each.
//!
//! **Invariants**
//! - Switches are evenly spaced over the workload, in time or in operations.
//! - Time and operations count for the tree that was set at the time.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use testudo::Result;

use crate::report::size::{human_count, quotient};

/// Sets a tree by its name.
type SetTree<'a> = Box<dyn Fn(&str) -> Result<()> + 'a>;
/// Whether a keyspace is still moving to the tree that was set.
type IsMoving<'a> = Box<dyn Fn() -> bool + 'a>;
/// The calls into the keyspaces.
pub(crate) type Calls<'a> = (SetTree<'a>, IsMoving<'a>);

/// The switches of one workload.
pub(crate) struct TreeSwitches<'a> {
    trees: &'a [String],
    due: u16,
    /// Sets the tree of all keyspaces.
    set: SetTree<'a>,
    is_moving: IsMoving<'a>,
    /// Trees set so far; the last one is current.
    turns: Vec<Turn>,
    longest_call: Duration,
}

#[derive(Debug)]
struct Turn {
    tree: String,
    began: Moment,
    /// When all keyspaces were first observed to have moved.
    arrived: Option<Duration>,
}

impl Turn {
    fn seconds_to_arrive(&self) -> Option<f64> {
        self.arrived.map(|arrived| arrived.saturating_sub(self.began.0).as_secs_f64())
    }
}

/// A time, and the number of operations by then.
pub(crate) type Moment = (Duration, u64);

/// Result of the switches.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SwitchResult {
    /// Number of switches made.
    pub(crate) switches: usize,
    pub(crate) ops_per_second_before: f64,
    pub(crate) ops_per_second_between: f64,
    pub(crate) ops_per_second_after: f64,
    pub(crate) ops_per_second_by_tree: BTreeMap<String, f64>,
    /// For each switch, the seconds until all keyspaces were observed to have moved; `None` if that did not
    /// happen before the next switch or the end.
    pub(crate) seconds_to_arrive: Vec<Option<f64>>,
    /// Longest time without an answer to a client, anywhere in the workload.
    pub(crate) longest_stall_ms: f64,
    /// Longest call that set a tree, in all keyspaces.
    pub(crate) longest_call_ms: f64,
}

impl<'a> TreeSwitches<'a> {
    /// Creates `due` switches through `trees`; `present` is the tree at the start of the workload.
    pub(crate) fn new(
        trees: &'a [String],
        due: u16,
        present: (&str, Moment),
        (set, is_moving): Calls<'a>,
    ) -> Self {
        let turns = vec![Turn { tree: present.0.to_owned(), began: present.1, arrived: None }];
        Self { trees, due, set, is_moving, turns, longest_call: Duration::ZERO }
    }

    fn done(&self) -> usize {
        self.turns.len() - 1
    }

    /// Makes the switches that are due when `share` of the workload is done; `now` returns the moment.
    pub(crate) fn keep_up(&mut self, share: f64, now: impl Fn() -> Moment) -> Result<()> {
        if let Some(turn) = self.turns.last_mut()
            && turn.arrived.is_none()
            && !(self.is_moving)()
        {
            turn.arrived = Some(now().0);
        }
        while self.done() < usize::from(self.due)
            && share * (f64::from(self.due) + 1.0) >= self.done() as f64 + 1.0
        {
            let began = now();
            let tree = self.next().to_owned();
            (self.set)(&tree)?;
            self.longest_call = self.longest_call.max(now().0.saturating_sub(began.0));
            self.turns.push(Turn { tree, began, arrived: None });
        }
        Ok(())
    }

    /// Returns the tree after the current one in the list.
    fn next(&self) -> &str {
        let present = self.turns.last().map(|turn| turn.tree.as_str());
        let index = self.trees.iter().position(|tree| Some(tree.as_str()) == present);
        &self.trees[index.map_or(0, |index| (index + 1) % self.trees.len())]
    }

    /// Returns the measurements of a workload that ended at `end`.
    pub(crate) fn result(self, end: Moment, longest_stall: Duration) -> SwitchResult {
        let ends = self.turns.iter().skip(1).map(|turn| turn.began).chain([end]);
        let spans: Vec<_> = self.turns.iter().zip(ends).map(|(turn, end)| Span::of(turn, end)).collect();
        let rate = |of: &[&Span]| {
            let operations: u64 = of.iter().map(|span| span.operations).sum();
            quotient(operations as f64, of.iter().map(|span| span.seconds).sum())
        };
        let all: Vec<&Span> = spans.iter().collect();
        let mut by_tree: BTreeMap<String, Vec<&Span>> = BTreeMap::new();
        for (turn, span) in self.turns.iter().zip(&spans) {
            by_tree.entry(turn.tree.clone()).or_default().push(span);
        }
        let last = all.len() - 1;
        SwitchResult {
            switches: self.done(),
            ops_per_second_before: rate(&all[..1]),
            ops_per_second_between: rate(&all[last.min(1)..last]),
            ops_per_second_after: rate(&all[last..]),
            ops_per_second_by_tree: by_tree.into_iter().map(|(tree, spans)| (tree, rate(&spans))).collect(),
            seconds_to_arrive: self.turns.iter().skip(1).map(Turn::seconds_to_arrive).collect(),
            longest_stall_ms: longest_stall.as_secs_f64() * 1e3,
            longest_call_ms: self.longest_call.as_secs_f64() * 1e3,
        }
    }
}

/// Duration and operations of one turn.
struct Span {
    seconds: f64,
    operations: u64,
}

impl Span {
    fn of(turn: &Turn, end: Moment) -> Self {
        let seconds = end.0.saturating_sub(turn.began.0).as_secs_f64();
        Self { seconds, operations: end.1.saturating_sub(turn.began.1) }
    }
}

impl SwitchResult {
    /// Formats the result for humans.
    pub(crate) fn line(&self, workload: &str) -> String {
        let by_tree = self.ops_per_second_by_tree.iter();
        let by_tree: Vec<_> =
            by_tree.map(|(tree, rate)| format!("{} with {tree}", human_count(*rate))).collect();
        let arrivals = self.seconds_to_arrive.iter();
        let arrivals: Vec<_> =
            arrivals.map(|seconds| seconds.map_or("no end".to_owned(), |s| format!("{s:.0} s"))).collect();
        format!(
            "{workload}: {} tree switches, moved after {}; operations/s {} before, {} between, {} after, \
             {}; longest stall {:.1} ms, longest switch {:.1} ms\n",
            self.switches,
            arrivals.join(", "),
            human_count(self.ops_per_second_before),
            human_count(self.ops_per_second_between),
            human_count(self.ops_per_second_after),
            by_tree.join(", "),
            self.longest_stall_ms,
            self.longest_call_ms,
        )
    }
}

#[cfg(test)]
mod tests;
