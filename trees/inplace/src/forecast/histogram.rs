//! Counts of inserts by ranges of keys with about equally many earlier inserts.
//!
//! **Invariants**
//! - The first part begins with the least key counted, the last one ends with the greatest.

use testudo_base::key;

/// The least and the greatest key.
type Ends = (Box<[u8]>, Box<[u8]>);

#[derive(Debug)]
pub(crate) struct Histogram {
    /// First keys of all parts except the first; ascending.
    borders: Vec<Box<[u8]>>,
    counts: Vec<u32>,
    /// The least and the greatest key counted.
    ends: Option<Ends>,
}

impl Histogram {
    /// Creates parts with about equally many keys of a sorted sample.
    pub(crate) fn of_sample(sample: Vec<Box<[u8]>>, parts: usize) -> Self {
        let parts = parts.clamp(1, sample.len().max(1));
        let mut borders: Vec<Box<[u8]>> =
            (1..parts).filter_map(|part| sample.get(sample.len() * part / parts).cloned()).collect();
        borders.dedup();
        let counts = vec![0; borders.len() + 1];
        Self { borders, counts, ends: None }
    }

    pub(crate) fn count(&mut self, key: &[u8]) {
        let part = self.part_of(key);
        self.counts[part] = self.counts[part].saturating_add(1);
        match &mut self.ends {
            None => self.ends = Some((key.into(), key.into())),
            Some((least, _)) if *key < **least => *least = key.into(),
            Some((_, greatest)) if **greatest < *key => *greatest = key.into(),
            Some(_) => {}
        }
    }

    fn part_of(&self, key: &[u8]) -> usize {
        self.borders.partition_point(|border| **border <= *key)
    }

    /// Estimated count in `[low, high)`, unbounded without `high`. Parts that are partly inside count by the
    /// fraction of their range.
    pub(crate) fn between(&self, low: &[u8], high: Option<&[u8]>) -> f64 {
        let first = self.part_of(low);
        let last = high.map_or(self.borders.len(), |high| self.part_of(high));
        (first..=last).map(|part| f64::from(self.counts[part]) * self.share(part, low, high)).sum()
    }

    /// Fraction of a part between two keys.
    fn share(&self, part: usize, low: &[u8], high: Option<&[u8]>) -> f64 {
        let Some((least, greatest)) = &self.ends else { return 0.0 };
        let begin = part.checked_sub(1).map_or(&**least, |before| &*self.borders[before]);
        let end = self.borders.get(part).map_or(&**greatest, |end| &**end);
        let is_whole = low <= begin && high.is_none_or(|high| end <= high);
        if is_whole || end <= begin {
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
}
