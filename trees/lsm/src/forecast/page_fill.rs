//! Fill of the pages of a chunk while they are written: free space for the expected inserts.
//!
//! A page has the data of about one entry per expected one, so its fill is the quotient of its data, and of
//! that and the data expected. It is known only when the page is full. So what was expected for the pages
//! written is credited, and left free on the next ones, in units of an entry at least.
//!
//! **Invariants**
//! - Free space below the fill without a forecast is never more than the credit, but for a part of an entry:
//!   credit is for data, not for free space.
//! - No page is filled less than half.

use testudo_base::{
    num::{low64, u16_of, u64_of, usize_of},
    planted,
};

/// Bytes of an entry on a page beyond its key and value, approximately.
const ENTRY_OVERHEAD_BYTES: u64 = 6;

/// A range of keys with its expected inserts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Density {
    /// End of the range.
    pub(crate) high: Box<[u8]>,
    /// Bytes expected per byte of data.
    pub(crate) expected: f64,
}

/// Fill of the open page.
#[derive(Debug)]
pub(crate) struct PageFill {
    /// Ascending; nothing is expected after the last one.
    densities: Vec<Density>,
    at: usize,
    /// Fill without a forecast.
    goal: u64,
    limit: u64,
    credit: f64,
    /// Data of the open page, and the number of its entries.
    data: u64,
    entries: u64,
    /// Bytes of the pages of the open run before.
    finished_bytes: u64,
}

impl PageFill {
    /// Creates the fill for pages that are otherwise filled up to `goal`.
    pub(crate) fn new(densities: Vec<Density>, goal: u16) -> Self {
        debug_assert!(densities.is_sorted_by(|a, b| a.high < b.high), "ranges ascend");
        let goal = u64::from(goal);
        let (at, credit, data, entries, finished_bytes) = (0, 0.0, 0, 0, 0);
        Self { densities, at, goal, limit: goal, credit, data, entries, finished_bytes }
    }

    /// Records a written entry. `finished_bytes`: those of finished pages of the open run. Returns the fill
    /// of the open page if the entry is its first one.
    #[inline]
    pub(crate) fn after(&mut self, key: &[u8], user_bytes: usize, finished_bytes: u64) -> Option<u16> {
        let begins = finished_bytes != self.finished_bytes;
        if begins {
            self.begin_page(key, finished_bytes);
        }
        self.data += u64_of(user_bytes) + ENTRY_OVERHEAD_BYTES;
        self.entries += 1;
        begins.then(|| u16_of(usize_of(self.limit)))
    }

    fn begin_page(&mut self, key: &[u8], finished_bytes: u64) {
        let is_first_of_run = finished_bytes < self.finished_bytes;
        self.finished_bytes = finished_bytes;
        let (data, entries) = (std::mem::take(&mut self.data), std::mem::take(&mut self.entries));
        let entry = data / entries.max(1);
        if self.limit < self.goal {
            let left = self.goal.saturating_sub(data);
            // The last page of a run ends early.
            let most = if is_first_of_run { self.goal - self.limit + entry } else { left };
            self.credit -= left.min(most) as f64;
        }
        let credited = if planted!("forecast-room-counted-as-data") { self.goal } else { data };
        let expected = self.densities.get(self.at).map_or(0.0, |density| density.expected);
        self.credit = (self.credit + expected * credited as f64).min(self.goal as f64 / 2.0);
        while self.densities.get(self.at).is_some_and(|density| *density.high <= *key) {
            self.at += 1;
        }
        let free = if self.credit >= entry as f64 { whole(self.credit) } else { 0 };
        self.limit = self.goal - free;
        debug_assert!(self.limit >= self.goal / 2, "no page is filled less than half");
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most half a page")]
#[expect(clippy::cast_sign_loss, reason = "a credit that is spent is positive")]
fn whole(credit: f64) -> u64 {
    low64(u128::from(credit.max(0.0) as u64))
}

#[cfg(test)]
mod tests;
