//! Immutable sorted runs, the unit in which every tree stores its data.
//!
//! A run is written once, in one sequential pass ([`RunWriter`]), and then read: a point query asks the filter,
//! then the index, then one data block ([`Run::get`]); everything ordered goes through [`RunCursor`]; runs are
//! combined by [`MergeCursor`]. Layout, in pages from the start of the run:
//! data blocks · index blocks · filter partitions · footer block.
//!
//! **Invariants**
//! - Keys in a run are strictly increasing; a run never changes once it is finished.
//! - A block lies in whole pages of its own; only blocks with a single entry are longer than a page.
//! - The reference ([`RunRef`]) that a parent keeps names spans and id, so that a page of any other run, or of an
//!   older one at the same place, is refused.

mod block;
mod bounded;
mod builder;
mod check;
mod cursor;
mod find_block;
mod footer;
mod inspect;
mod key_ends;
mod lenient_cursor;
mod lenient_filter;
mod long_separators;
mod merge;
mod page_walk;
mod placing;
mod reader;
mod run_ref;
mod window;
mod writer;

pub use bounded::{BoundedCursor, KeyBounds};
pub use cursor::{ReadAhead, RunCursor, Target};
pub use footer::RunRecord;
pub use inspect::{BlockContents, inspect_block};
pub use key_ends::{KeyEnds, MAX_END_BYTES};
pub use lenient_cursor::{LenientCursor, LostPages, block_keys, read_leniently};
pub use lenient_filter::LenientFilter;
pub use merge::{Direction, MergeCursor};
pub use page_walk::{PageWalk, ReadPages, Stretch, WalkedBlock};
pub use placing::{Missing, Placing, place_together};
pub use reader::Run;
pub use run_ref::RunRef;
pub use writer::{RunOrigin, RunWriter};
