//! Records on pages that are updated where they lie (TreeLine): how sorted records are cut into groups of
//! pages, which page of a group has a key, how many records will come to it, and when what lies around a full
//! page is laid out anew.
//!
//! The tree that updates pages (decision 0049) finds them by separators instead: on real keys an index of
//! groups is no smaller. What is here decides by keys and sizes alone, and reads and writes nothing; `testudo
//! bench paper treeline-*` shows what it gives for sets of real keys.
//!
//! **Invariants**
//! - Where a record lies is computed from its key in the same way for writing and for reading.

mod forecast;
mod groups;
mod growth;

pub use forecast::{ForecastOptions, InsertForecast, fill_for};
pub use groups::{GROUP_PAGES_MAX, KeyNumbers, Model, PageFill, PageGroup, Placed, cut_groups, next_group};
pub use growth::{Expected, GrowingPages, GrowthCounts};
