//! A set of unit numbers, stored as disjoint ranges: the 4 KiB units of a file that occupy space.
//!
//! **Invariants**
//! - Ranges are non-empty, disjoint and never adjacent; `count` is the number of members.

use std::collections::BTreeMap;

/// A set of units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// Maps start to end, exclusive.
    ranges: BTreeMap<u64, u64>,
    count: u64,
}

impl RangeSet {
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Number of units in `start..end` that are not in the set.
    pub(crate) fn missing(&self, start: u64, end: u64) -> u64 {
        let before = self.ranges.range(..start).next_back();
        let within = self.ranges.range(start..end.max(start));
        let present: u64 = before
            .into_iter()
            .chain(within)
            .map(|(&from, &to)| to.min(end).saturating_sub(from.max(start)))
            .sum();
        debug_assert!(present <= end.saturating_sub(start), "present units are in the range");
        end.saturating_sub(start) - present
    }

    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        self.count += self.missing(start, end);
        let (mut start, mut end) = (start, end);
        // Absorbs every overlapping or adjacent range, from the right.
        while let Some((&from, &to)) = self.ranges.range(..=end).next_back() {
            if to < start {
                break;
            }
            self.ranges.remove(&from);
            start = start.min(from);
            end = end.max(to);
        }
        let before = self.ranges.insert(start, end);
        debug_assert!(before.is_none(), "adjacent ranges were absorbed");
        debug_assert!(
            self.ranges.range(start + 1..).next().is_none_or(|(&next, _)| end < next),
            "ranges are never adjacent"
        );
    }

    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let removed = (end - start) - self.missing(start, end);
        debug_assert!(removed <= self.count, "removed units were counted");
        self.count -= removed;
        while let Some((&from, &to)) = self.ranges.range(..end).next_back() {
            if to <= start {
                break;
            }
            self.ranges.remove(&from);
            if to > end {
                self.ranges.insert(end, to);
            }
            if from < start {
                self.ranges.insert(from, start);
            }
        }
    }
}

#[cfg(test)]
mod tests;
