//! Immutable sorted runs, the unit in which every tree stores its data.
//!
//! A run is written once, in one sequential pass ([`RunWriter`]), and then read. A point query probes the
//! filter, then the index, then one data block ([`Run::get`]); ordered access uses [`RunCursor`];
//! [`MergeCursor`] merges runs. Layout, in pages from the start of the run: data blocks · index blocks ·
//! filter partitions · footer block.
//!
//! Some data pages of a run can be replaced out of place ([`PageUpdate`]): this creates another version of
//! the run, in which these pages have other places.
//!
//! **Invariants**
//! - Keys in a run are strictly increasing; a finished run is immutable, and so is each version of it.
//! - A block occupies whole pages; only blocks with a single entry are longer than a page.
//! - The reference ([`RunRef`]) kept by a parent contains spans and id, so that a page of any other run, or a
//!   stale one at the same place, is refused.

mod cached_value;
mod continued_value;
mod cursor;
mod entry_list;
mod format;
mod get_together;
mod lookup;
mod map_read;
mod page_places;
mod page_update;
mod read_pages;
mod reader;
mod rescue;
mod run_layout;
mod spans;
mod structure;
#[cfg(test)]
mod test_bed;
mod writer;

pub use cursor::batched_seek::{BatchedSeek, Missing, seek_together};
pub use cursor::bounded::{BoundedCursor, KeyBounds};
pub use cursor::merge::{Direction, MergeCursor};
pub use cursor::page_walk::{PageWalk, ReadPages, Stretch, WalkedBlock};
pub use cursor::scan_forecast::{ScanForecast, ScanLimits, ScanProgress};
pub use cursor::small_runs::read_small_runs;
pub use cursor::{ReadAhead, RunCursor, Target};
pub use entry_list::{EntryList, EntryListCursor};
pub use format::footer::RunRecord;
pub use format::key_ends::{KeyEnds, MAX_END_BYTES};
pub use format::map_page::MapPage;
pub use format::map_ref::MapRef;
pub use format::replaced_pages::{OverflowPage, PagePart, PagePlace, ReplacedPageRecord, ReplacedPages};
pub use format::run_ref::RunRef;
pub use format::writing::Writing;
pub use get_together::{FoundTogether, KnownKey, get_known_together};
pub use lookup::{Access, Effort, Lookup, LookupProgress, Reached};
pub use page_update::{PageUpdate, PreparedVersion, UpdateCounts};
pub use reader::Run;
pub use rescue::found_pages::FoundPage;
pub use rescue::inspect::{BlockContents, EnclosedContents, inspect_block};
pub use rescue::lenient_cursor::{LenientCursor, LostPages, block_keys, every_entry, read_leniently};
pub use rescue::lenient_filter::LenientFilter;
pub use run_layout::RunLayout;
pub use writer::{RunOrigin, RunWriter};
