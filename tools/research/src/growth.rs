//! Growing pages, simulated with byte counts alone: overflow, and reorganization (TreeLine §4.5; T3).
//!
//! A full page gets one overflow page. When that is full as well, its group is reorganized, together with up
//! to five neighbors on either side that have overflow pages: all their records are cut into new groups, with
//! space for expected records.
//!
//! **Invariants**
//! - No page has more than one overflow page, and both together hold at most two pages of records.
//! - A reorganization loses no record.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Included, Unbounded},
};

use testudo_base::num::u64_of;
use testudo_lsm::{EpochSize, Epochs};

use crate::groups::{Model, PageFill, Placed, cut_groups};

/// Groups on either side of a full one that may be reorganized with it.
const RADIUS: usize = 5;
/// Inverse of the minimum fraction of the goal to which a page is filled, whatever is expected.
const LEAST_FILL_PARTS: u64 = 8;

/// Source of the forecast that determines free space on pages.
#[derive(Debug)]
pub(crate) enum Expected {
    /// No forecast: all pages are filled to the same goal.
    Nothing,
    /// A forecast from the inserts so far, by the epochs of `trees/lsm`.
    Forecast(Box<Forecast>),
    /// The actual future keys: a perfect forecast.
    Future(BTreeSet<Vec<u8>>),
}

/// A forecast for a number of epochs.
#[derive(Debug)]
pub(crate) struct Forecast {
    epochs: Epochs,
    size: EpochSize,
    ahead: u64,
}

impl Forecast {
    /// Creates a forecast for `ahead` epochs, without data.
    pub(crate) fn new(size: EpochSize, ahead: u64) -> Self {
        Self { epochs: Epochs::new(size), size, ahead }
    }

    fn between(&self, low: &[u8], high: Option<&[u8]>) -> f64 {
        let inserts = self.size.inserts * self.ahead;
        self.epochs.shares().map_or(0.0, |shares| shares.between(low, high) * inserts as f64)
    }
}

/// Returns the fill of pages that have `records` records now, with `expected` more to come: all of them fit
/// the pages, and the existing ones are spread evenly over these.
///
/// No page gets less than `least_bytes`: the forecast may be wrong.
#[expect(clippy::cast_possible_truncation, reason = "a fraction of the goal is not negative and fits")]
#[expect(clippy::cast_sign_loss, reason = "a fraction of the goal is not negative and fits")]
fn fill_for(fill: &PageFill, records: f64, expected: f64, least_bytes: u64) -> PageFill {
    let share = if records > 0.0 { records / (records + expected.max(0.0)) } else { 1.0 };
    let goal_bytes = ((fill.goal_bytes as f64 * share) as u64).clamp(least_bytes, fill.goal_bytes);
    PageFill { goal_bytes, ..*fill }
}

impl Expected {
    fn note_insert(&mut self, key: &[u8]) {
        match self {
            Self::Nothing => {}
            Self::Forecast(forecast) => _ = forecast.epochs.note_insert(key, forecast.size),
            Self::Future(future) => {
                future.remove(key);
            }
        }
    }

    fn between(&self, low: &[u8], high: Option<&[u8]>) -> f64 {
        match self {
            Self::Nothing => 0.0,
            Self::Forecast(forecast) => forecast.between(low, high),
            Self::Future(future) => {
                let high = high.map_or(Unbounded, |high| Excluded(high.to_vec()));
                future.range((Included(low.to_vec()), high)).count() as f64
            }
        }
    }
}

/// Counts of events and pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GrowthCounts {
    /// Records inserted with new keys.
    pub(crate) inserts: u64,
    /// Reorganizations.
    pub(crate) reorganisations: u64,
    /// Pages rewritten by them.
    pub(crate) rewritten_pages: u64,
    /// Current pages, without overflow pages.
    pub(crate) pages: u64,
    /// Current overflow pages.
    pub(crate) overflow_pages: u64,
    /// Current groups: entries of the index.
    pub(crate) groups: u64,
}

#[derive(Debug)]
struct Key {
    key: Vec<u8>,
    bytes: u64,
}

impl Placed for Key {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A group, with the sorted keys of each page.
#[derive(Debug)]
struct Group {
    model: Option<Model>,
    pages: Vec<Vec<Vec<u8>>>,
}

/// Pages with the keys of their records.
#[derive(Debug)]
pub(crate) struct GrowingPages {
    fill: PageFill,
    record_bytes: u64,
    expected: Expected,
    /// Groups by the least key of their range.
    groups: BTreeMap<Vec<u8>, Group>,
    counts: GrowthCounts,
}

impl GrowingPages {
    /// Creates pages without records. Each record takes `record_bytes` of a page.
    pub(crate) fn new(fill: PageFill, record_bytes: u64, expected: Expected) -> Self {
        let groups = BTreeMap::from([(Vec::new(), Group { model: None, pages: vec![Vec::new()] })]);
        Self { fill, record_bytes, expected, groups, counts: GrowthCounts::default() }
    }

    /// Inserts a record.
    pub(crate) fn insert(&mut self, key: &[u8]) {
        let up_to = (Unbounded, Included(key));
        let Some((low, group)) = self.groups.range_mut::<[u8], _>(up_to).next_back() else { return };
        let page = group.model.as_ref().map_or(0, |model| model.page_of(key));
        let Some(page) = group.pages.get_mut(usize::try_from(page).unwrap_or(usize::MAX)) else { return };
        let Err(at) = page.binary_search_by(|other| other.as_slice().cmp(key)) else { return };
        page.insert(at, key.to_vec());
        self.expected.note_insert(key);
        self.counts.inserts += 1;
        if u64_of(page.len()) * self.record_bytes > self.fill.capacity_bytes * 2 {
            let low = low.clone();
            self.reorganise(&low);
        }
    }

    fn has_overflow(&self, group: &Group) -> bool {
        group.pages.iter().any(|page| u64_of(page.len()) * self.record_bytes > self.fill.capacity_bytes)
    }

    /// Reorganizes a group, with its neighbors that have overflow pages.
    fn reorganise(&mut self, full: &[u8]) {
        let below = self.groups.range::<[u8], _>((Unbounded, Excluded(full))).rev().take(RADIUS);
        let above = self.groups.range::<[u8], _>((Excluded(full), Unbounded)).take(RADIUS);
        let with_overflow = |(_, group): &(&Vec<u8>, &Group)| self.has_overflow(group);
        let below = below.take_while(with_overflow).map(|(low, _)| low.clone());
        let above = above.take_while(with_overflow).map(|(low, _)| low.clone());
        let mut lows: Vec<Vec<u8>> = below.chain([full.to_vec()]).chain(above).collect();
        lows.sort_unstable();
        let high = lows.last().and_then(|last| self.groups.range(last.clone()..).nth(1));
        let high = high.map(|(high, _)| high.clone());
        let mut keys = Vec::new();
        for group in lows.iter().filter_map(|low| self.groups.remove(low)) {
            keys.extend(group.pages.into_iter().flatten());
        }
        let low = lows.swap_remove(0);
        self.counts.reorganisations += 1;
        let expected = self.expected.between(&low, high.as_deref());
        let least = (self.fill.goal_bytes / LEAST_FILL_PARTS).max(self.record_bytes);
        let fill = fill_for(&self.fill, keys.len() as f64, expected, least);
        let bytes = self.record_bytes;
        let records: Vec<Key> = keys.into_iter().map(|key| Key { key, bytes }).collect();
        self.lay_out(low, records, &fill);
    }

    /// Puts sorted records, the first of which belongs to `low`, into new groups.
    fn lay_out(&mut self, low: Vec<u8>, records: Vec<Key>, fill: &PageFill) {
        let groups = cut_groups(&records, fill);
        let mut records = records.into_iter();
        let mut low = Some(low);
        for group in groups {
            let mut pages = vec![Vec::new(); usize::try_from(group.pages()).unwrap_or(1)];
            let mut first = None;
            for Key { key, .. } in records.by_ref().take(group.records) {
                first.get_or_insert_with(|| key.clone());
                let page = usize::try_from(group.page_of(&key)).unwrap_or_default();
                pages[page].push(key);
            }
            self.counts.rewritten_pages += u64_of(pages.len());
            let low = low.take().or(first).unwrap_or_default();
            self.groups.insert(low, Group { model: group.model, pages });
        }
    }

    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> GrowthCounts {
        let pages = || self.groups.values().flat_map(|group| &group.pages);
        let is_over =
            |page: &&Vec<Vec<u8>>| u64_of(page.len()) * self.record_bytes > self.fill.capacity_bytes;
        GrowthCounts {
            pages: u64_of(pages().count()),
            overflow_pages: u64_of(pages().filter(is_over).count()),
            groups: u64_of(self.groups.len()),
            ..self.counts
        }
    }
}

#[cfg(test)]
mod tests;
