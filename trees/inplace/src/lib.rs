//! Records on pages that are updated in place (TreeLine): cutting sorted records into groups of pages,
//! mapping keys to the pages of a group, forecasting inserts, and reorganizing groups around a full page.
//!
//! The tree that updates pages (decision 0049) finds them by separators instead: on real keys an index of
//! groups is no smaller. This crate decides by keys and sizes alone, without I/O;
//! `testudo-research paper treeline-*` reports its results for sets of real keys.
//!
//! **Invariants**
//! - The page of a record is computed from its key in the same way for writing and for reading.

mod forecast;
mod groups;
mod growth;

pub use forecast::{ForecastOptions, InsertForecast, fill_for};
pub use groups::{GROUP_PAGES_MAX, KeyNumbers, Model, PageFill, PageGroup, Placed, cut_groups, next_group};
pub use growth::{Expected, GrowingPages, GrowthCounts};
