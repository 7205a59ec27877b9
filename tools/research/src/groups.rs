//! Page groups (TreeLine §3.2, §4.5; T2): contiguous pages that share one index entry.
//!
//! Sorted records are cut into groups of 1, 2, 4, 8 or 16 pages. A group of several pages has a line through
//! its records: from the number of a key to the bytes before its record. The line determines the page of each
//! record. It is accurate to *epsilon* bytes, so a page with a target of *goal* bytes has at most two epsilon
//! more. A larger epsilon makes larger groups, and leaves more of each page free.
//!
//! **Invariants**
//! - When a group is cut, no page exceeds its capacity, unless it has a single record.
//! - Groups are contiguous, and every record is in one.

mod key_numbers;
mod line_fit;
mod model;

pub(crate) use key_numbers::KeyNumbers;
pub(crate) use model::Model;

use line_fit::LineFit;

/// Maximum number of pages in a group.
pub(crate) const GROUP_PAGES_MAX: u32 = 16;

/// A record's key and size, which determine its placement.
pub(crate) trait Placed {
    /// Its key.
    fn key(&self) -> &[u8];
    /// Bytes on a page.
    fn bytes(&self) -> u64;
}

/// Target fill of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageFill {
    /// Target bytes of records on a page.
    pub(crate) goal_bytes: u64,
    /// Maximum error of a line in bytes.
    pub(crate) epsilon_bytes: u64,
    /// Maximum bytes of records on a page.
    pub(crate) capacity_bytes: u64,
}

impl PageFill {
    /// Creates a fill with as much tolerance for lines as the capacity leaves, up to `epsilon_bytes`.
    pub(crate) fn new(goal_bytes: u64, epsilon_bytes: u64, capacity_bytes: u64) -> Self {
        let goal_bytes = goal_bytes.clamp(1, capacity_bytes);
        Self {
            goal_bytes,
            epsilon_bytes: epsilon_bytes.min((capacity_bytes - goal_bytes) / 2),
            capacity_bytes,
        }
    }
}

/// A group of contiguous records.
#[derive(Clone, Debug)]
pub(crate) struct PageGroup {
    /// Number of records.
    pub(crate) records: usize,
    /// Their placement; `None` for a single page.
    pub(crate) model: Option<Model>,
}

impl PageGroup {
    /// Number of pages in the group.
    pub(crate) fn pages(&self) -> u32 {
        self.model.as_ref().map_or(1, Model::pages)
    }

    /// Returns the page of a key.
    #[inline]
    pub(crate) fn page_of(&self, key: &[u8]) -> u32 {
        self.model.as_ref().map_or(0, |model| model.page_of(key))
    }
}

/// Cuts sorted records into groups.
pub(crate) fn cut_groups<R: Placed>(mut records: &[R], fill: &PageFill) -> Vec<PageGroup> {
    let mut groups = Vec::new();
    while !records.is_empty() {
        let group = next_group(records, fill);
        records = &records[group.records..];
        groups.push(group);
    }
    groups
}

/// Returns the largest group of leading records. REQUIRES: there is a record.
pub(crate) fn next_group<R: Placed>(records: &[R], fill: &PageFill) -> PageGroup {
    if let Some(all) = fitting_one_page(records, fill) {
        return PageGroup { records: all, model: None };
    }
    let mut best = PageGroup { records: records_within(records, fill.goal_bytes).max(1), model: None };
    let mut pages = 2;
    while pages <= GROUP_PAGES_MAX {
        let count = records_within(records, fill.goal_bytes * u64::from(pages));
        // No more records would fill the group: some pages would be empty.
        if count == records.len() && !fills(records, fill, pages) {
            break;
        }
        let Some(model) = modelled(&records[..count], fill, pages) else { break };
        best = PageGroup { records: count, model: Some(model) };
        pages *= 2;
    }
    best
}

/// Number of all records, if they fit one page.
fn fitting_one_page<R: Placed>(records: &[R], fill: &PageFill) -> Option<usize> {
    let count = records_within(records, fill.goal_bytes + fill.epsilon_bytes);
    (count == records.len()).then_some(count)
}

/// Number of leading records with at most `bytes`.
fn records_within<R: Placed>(records: &[R], bytes: u64) -> usize {
    let mut before = 0;
    let is_within = |record: &&R| {
        before += record.bytes();
        before <= bytes
    };
    records.iter().take_while(is_within).count()
}

/// Whether all records together leave less than half of one of `pages` empty.
fn fills<R: Placed>(records: &[R], fill: &PageFill, pages: u32) -> bool {
    let all: u64 = records.iter().map(Placed::bytes).sum();
    all * 2 + fill.goal_bytes >= fill.goal_bytes * u64::from(pages) * 2
}

/// Returns the model of a group of all these records; `None` if no line is accurate enough.
fn modelled<R: Placed>(records: &[R], fill: &PageFill, pages: u32) -> Option<Model> {
    let numbers = KeyNumbers::of(records.iter().map(Placed::key));
    let epsilon = i128::from(fill.epsilon_bytes);
    let mut fit = LineFit::default();
    // Keys that differ only after the range of numbers have one number, and one range.
    let mut open: Option<(u64, i128, i128)> = None;
    let mut offset = 0;
    let take = |fit: &mut LineFit, (number, first, last): (u64, i128, i128)| {
        let (bottom, top) = (last - epsilon, first + epsilon);
        bottom <= top && fit.add(i128::from(number), bottom, top)
    };
    for record in records {
        let number = numbers.number(record.key());
        open = match open {
            Some((same, first, _)) if same == number => Some((same, first, offset)),
            before => {
                if before.is_some_and(|before| !take(&mut fit, before)) {
                    return None;
                }
                Some((number, offset, offset))
            }
        };
        offset += i128::from(record.bytes());
    }
    if open.is_some_and(|open| !take(&mut fit, open)) {
        return None;
    }
    let model = Model::new(numbers, &fit.line()?, fill.goal_bytes, pages);
    has_room(records, &model, fill).then_some(model)
}

/// Whether every page has space for the records that the model places there.
fn has_room<R: Placed>(records: &[R], model: &Model, fill: &PageFill) -> bool {
    let (mut page, mut bytes) = (0, 0);
    for record in records {
        let own = model.page_of(record.key());
        debug_assert!(own >= page, "pages ascend with keys");
        if own > page {
            (page, bytes) = (own, 0);
        }
        bytes += record.bytes();
        if bytes > fill.capacity_bytes {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests;
