//! Operation counts over time, from which the rates at the beginning and at the end are derived.
//!
//! **Invariants**
//! - Times and counts never decrease; consecutive parts, such as a warm-up and the measurement, add up.

use std::time::Duration;

use crate::report::size::quotient;

/// Interval between two samples of a count.
const STEP: Duration = Duration::from_millis(100);

/// Operations over time, and the pages read for their queries.
pub(crate) struct OverTime<'a> {
    pub(crate) operations: RateOverTime,
    pub(crate) page_reads: RateOverTime,
    count_page_reads: &'a dyn Fn() -> u64,
    /// Pages read before the current part.
    reads_before: u64,
}

impl<'a> OverTime<'a> {
    /// Creates an empty record; `count_page_reads` returns the number of pages read so far.
    pub(crate) fn new(count_page_reads: &'a dyn Fn() -> u64) -> Self {
        let (operations, page_reads) = Default::default();
        Self { operations, page_reads, count_page_reads, reads_before: 0 }
    }

    /// As [`RateOverTime::begin`].
    pub(crate) fn begin(&mut self, now: Duration) {
        self.reads_before = (self.count_page_reads)();
        self.operations.begin(now);
        self.page_reads.begin(now);
    }

    /// As [`RateOverTime::note`].
    pub(crate) fn note(&mut self, now: Duration, operations: impl FnOnce() -> u64) {
        self.operations.note(now, operations);
        self.page_reads.note(now, || (self.count_page_reads)() - self.reads_before);
    }

    /// As [`RateOverTime::end`].
    pub(crate) fn end(&mut self, now: Duration, operations: u64) {
        self.operations.end(now, operations);
        self.page_reads.end(now, (self.count_page_reads)() - self.reads_before);
    }
}

/// Counts of operations over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateOverTime {
    /// Each note: a time, and the number of operations completed by then.
    notes: Vec<(Duration, u64)>,
    /// Operations of the earlier parts.
    before: u64,
}

impl RateOverTime {
    /// Begins a part.
    pub(crate) fn begin(&mut self, now: Duration) {
        self.before = self.notes.last().map_or(0, |(_, operations)| *operations);
        self.push(now, 0);
    }

    /// Records that `operations` of this part are done, if a sample is due.
    pub(crate) fn note(&mut self, now: Duration, operations: impl FnOnce() -> u64) {
        if self.notes.last().is_none_or(|(last, _)| now >= *last + STEP) {
            self.push(now, operations());
        }
    }

    /// Ends this part, after `operations`.
    pub(crate) fn end(&mut self, now: Duration, operations: u64) {
        self.push(now, operations);
    }

    /// Returns the operations per second in the first `span`, or in the whole time if that is shorter.
    pub(crate) fn first(&self, span: Duration) -> f64 {
        self.notes.first().map_or(0.0, |(began, _)| self.between(*began, *began + span))
    }

    /// Returns the operations per second in the last `span`, or in the whole time if that is shorter.
    pub(crate) fn last(&self, span: Duration) -> f64 {
        self.notes.last().map_or(0.0, |(ended, _)| self.between(ended.saturating_sub(span), *ended))
    }

    /// Returns the operations per second in each whole second from the beginning.
    pub(crate) fn by_second(&self) -> Vec<f64> {
        let (Some((began, _)), Some((ended, _))) = (self.notes.first(), self.notes.last()) else {
            return Vec::new();
        };
        let seconds = 0..ended.saturating_sub(*began).as_secs();
        let at = |second| *began + Duration::from_secs(second);
        seconds.map(|second| self.between(at(second), at(second + 1)).round()).collect()
    }

    fn push(&mut self, now: Duration, operations: u64) {
        let (last, least) = self.notes.last().copied().unwrap_or_default();
        self.notes.push((now.max(last), (self.before + operations).max(least)));
    }

    fn between(&self, from: Duration, to: Duration) -> f64 {
        let (Some((began, _)), Some((ended, _))) = (self.notes.first(), self.notes.last()) else {
            return 0.0;
        };
        let (from, to) = (from.max(*began), to.min(*ended));
        quotient(self.operations_by(to) - self.operations_by(from), to.saturating_sub(from).as_secs_f64())
    }

    /// Returns the operations until `moment`, interpolated linearly between two samples.
    fn operations_by(&self, moment: Duration) -> f64 {
        let after = self.notes.partition_point(|(noted, _)| *noted <= moment);
        let (Some((earlier, low)), next) =
            (after.checked_sub(1).map(|index| self.notes[index]), self.notes.get(after))
        else {
            return 0.0;
        };
        let Some((later, high)) = next else { return low as f64 };
        let share = quotient((moment - earlier).as_secs_f64(), (*later - earlier).as_secs_f64());
        low as f64 + (high - low) as f64 * share
    }
}

#[cfg(test)]
mod tests;
