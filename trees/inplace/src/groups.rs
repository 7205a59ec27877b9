//! Page groups (TreeLine §3.2, §4.5; T2): pages that lie together, and need one entry of the index.
//!
//! Sorted records are cut into groups of 1, 2, 4, 8 or 16 pages. A group of several pages has a line through
//! its records: from the number of a key to the bytes before its record. A page has what the line places
//! there. The line is right to *epsilon* bytes, so that a page which is to have *goal* bytes has two epsilon
//! more at most. The larger epsilon is, the larger are the groups, and the more of each page is left free.
//!
//! **Invariants**
//! - No page of a group has more than its capacity when it is cut, unless it has a single record.
//! - Groups follow each other without gaps, and every record is in one.

mod key_numbers;
mod line_fit;
mod model;

pub use key_numbers::KeyNumbers;
pub use model::Model;

use line_fit::LineFit;

/// Most pages of a group.
pub const GROUP_PAGES_MAX: u32 = 16;

/// A record, as far as its place is concerned.
pub trait Placed {
    /// Its key.
    fn key(&self) -> &[u8];
    /// Bytes that it takes on a page.
    fn bytes(&self) -> u64;
}

/// How full pages are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFill {
    /// Bytes of records that a page is to have.
    pub goal_bytes: u64,
    /// Bytes by which a line may miss.
    pub epsilon_bytes: u64,
    /// Bytes of records that a page can have.
    pub capacity_bytes: u64,
}

impl PageFill {
    /// With as much freedom for lines as the capacity leaves, `epsilon_bytes` at most.
    pub fn new(goal_bytes: u64, epsilon_bytes: u64, capacity_bytes: u64) -> Self {
        let goal_bytes = goal_bytes.clamp(1, capacity_bytes);
        Self {
            goal_bytes,
            epsilon_bytes: epsilon_bytes.min((capacity_bytes - goal_bytes) / 2),
            capacity_bytes,
        }
    }
}

/// Records that lie together.
#[derive(Clone, Debug)]
pub struct PageGroup {
    /// How many.
    pub records: usize,
    /// Where they lie; `None` if on a single page.
    pub model: Option<Model>,
}

impl PageGroup {
    /// Pages of the group.
    pub fn pages(&self) -> u32 {
        self.model.as_ref().map_or(1, Model::pages)
    }

    /// The page of a key.
    #[inline]
    pub fn page_of(&self, key: &[u8]) -> u32 {
        self.model.as_ref().map_or(0, |model| model.page_of(key))
    }
}

/// Cuts sorted records into groups.
pub fn cut_groups<R: Placed>(mut records: &[R], fill: &PageFill) -> Vec<PageGroup> {
    let mut groups = Vec::new();
    while !records.is_empty() {
        let group = next_group(records, fill);
        records = &records[group.records..];
        groups.push(group);
    }
    groups
}

/// The largest group that the first records make. REQUIRES: there is a record.
pub fn next_group<R: Placed>(records: &[R], fill: &PageFill) -> PageGroup {
    if let Some(all) = fitting_one_page(records, fill) {
        return PageGroup { records: all, model: None };
    }
    let mut best = PageGroup { records: records_within(records, fill.goal_bytes).max(1), model: None };
    let mut pages = 2;
    while pages <= GROUP_PAGES_MAX {
        let count = records_within(records, fill.goal_bytes * u64::from(pages));
        // Without more than these it would be a group with empty pages.
        if count == records.len() && !fills(records, fill, pages) {
            break;
        }
        let Some(model) = modelled(&records[..count], fill, pages) else { break };
        best = PageGroup { records: count, model: Some(model) };
        pages *= 2;
    }
    best
}

/// All of the records, if one page has room for them.
fn fitting_one_page<R: Placed>(records: &[R], fill: &PageFill) -> Option<usize> {
    let count = records_within(records, fill.goal_bytes + fill.epsilon_bytes);
    (count == records.len()).then_some(count)
}

/// How many of the first records have no more than so many bytes.
fn records_within<R: Placed>(records: &[R], bytes: u64) -> usize {
    let mut before = 0;
    let is_within = |record: &&R| {
        before += record.bytes();
        before <= bytes
    };
    records.iter().take_while(is_within).count()
}

/// Whether all records together leave less than half a page of so many empty.
fn fills<R: Placed>(records: &[R], fill: &PageFill, pages: u32) -> bool {
    let all: u64 = records.iter().map(Placed::bytes).sum();
    all * 2 + fill.goal_bytes >= fill.goal_bytes * u64::from(pages) * 2
}

/// The model of a group of all these records; `None` if no line is good enough.
fn modelled<R: Placed>(records: &[R], fill: &PageFill, pages: u32) -> Option<Model> {
    let numbers = KeyNumbers::of(records.iter().map(Placed::key));
    let epsilon = i128::from(fill.epsilon_bytes);
    let mut fit = LineFit::default();
    // Keys that differ behind what numbers tell apart have one number, and one range.
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

/// Whether every page has room for what the model places there.
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
