//! Counts of the inserts of one epoch, by ranges with about equally many inserts of the epoch before.
//!
//! **Invariants**
//! - Parts are within the sampled keys of the epoch before. Keys outside are counted in no part: a place
//!   without inserts in one epoch is expected to get none.
//! - Shares of all parts together are at most 1.

use testudo_base::{key, num::u64_of};

/// Counts by parts.
#[derive(Debug)]
pub(crate) struct Histogram {
    /// Ascending; part i is from border i to the one after it.
    borders: Vec<Box<[u8]>>,
    /// Share of each part in the epoch before, by its sample.
    before: Vec<f64>,
    /// Counts in this epoch.
    counts: Vec<u32>,
    /// All keys counted, those outside the parts included.
    counted: u64,
}

impl Histogram {
    /// Creates at most `parts` parts with about equally many keys of a sorted sample.
    pub(crate) fn of_sample(sample: Vec<Box<[u8]>>, parts: usize) -> Self {
        let last = sample.len().saturating_sub(1);
        let parts = parts.clamp(1, last.max(1));
        let (mut borders, mut starts): (Vec<Box<[u8]>>, Vec<usize>) = (Vec::new(), Vec::new());
        for at in (0..=parts).map(|part| last * part / parts) {
            let Some(border) = sample.get(at) else { continue };
            if borders.last().is_none_or(|last| last < border) {
                borders.push(border.clone());
                starts.push(at);
            }
        }
        let all = sample.len().max(1) as f64;
        let before: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / all).collect();
        let counts = vec![0; before.len()];
        Self { borders, before, counts, counted: 0 }
    }

    pub(crate) fn count(&mut self, key: &[u8]) {
        self.counted += 1;
        let part = self.borders.partition_point(|border| **border <= *key);
        if let Some(count) = part.checked_sub(1).and_then(|part| self.counts.get_mut(part)) {
            *count = count.saturating_add(1);
        }
    }

    /// Number of parts.
    pub(crate) fn parts(&self) -> usize {
        self.counts.len()
    }

    /// Returns the first key of a part and that of the next one.
    pub(crate) fn ends(&self, part: usize) -> (&[u8], &[u8]) {
        (&self.borders[part], &self.borders[part + 1])
    }

    /// Returns the parts that have keys in `[low, high)`, unbounded without these.
    pub(crate) fn parts_within(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> std::ops::Range<usize> {
        let at_most = |key: &[u8]| self.borders.partition_point(|border| **border <= *key);
        let first = low.map_or(0, |low| at_most(low).saturating_sub(1));
        let below = |key: &[u8]| self.borders.partition_point(|border| **border < *key);
        let end = high.map_or(self.parts(), |high| below(high).min(self.parts()));
        first.min(end)..end
    }

    /// Share of a part in the inserts of both epochs: the lesser of its two shares. So the sum over all parts
    /// states how well the epochs agree.
    pub(crate) fn share(&self, part: usize) -> f64 {
        let share = f64::from(self.counts[part]) / self.counted.max(1) as f64;
        share.min(self.before[part])
    }

    /// Share of the inserts between two keys, without `high` above `low`. A part that is partly inside counts
    /// by the fraction of its range.
    pub(crate) fn share_between(&self, low: &[u8], high: Option<&[u8]>) -> f64 {
        let parts = self.parts_within(Some(low), high);
        parts.map(|part| self.share(part) * self.fraction(part, low, high)).sum()
    }

    /// Fraction of a part between two keys.
    fn fraction(&self, part: usize, low: &[u8], high: Option<&[u8]>) -> f64 {
        let (begin, end) = self.ends(part);
        if low <= begin && high.is_none_or(|high| end <= high) {
            return 1.0;
        }
        let shared = key::common_prefix(begin, end);
        let place = |key: &[u8]| -> f64 {
            let key = key.clamp(begin, end);
            key::head(key.get(shared..).unwrap_or_default()) as f64
        };
        let (from, to) = (place(low), high.map_or(place(end), place));
        let all = place(end) - place(begin);
        if all > 0.0 { ((to - from) / all).clamp(0.0, 1.0) } else { 1.0 }
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let of_part = size_of::<Box<[u8]>>() + size_of::<f64>() + size_of::<u32>();
        let keys: usize = self.borders.iter().map(|border| border.len()).sum();
        u64_of(keys + self.borders.len() * of_part)
    }
}
