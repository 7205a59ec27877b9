//! Sorted sequences of runs, the building block of trees: a tier of a Bε-tree, a level of an LSM-tree.
//!
//! The runs of a sequence are disjoint and in key order, and each has a [`Fence`] before it. A sequence is
//! read by one cursor ([`SequenceCursor`]), merged as a [`Layer`] of slices, and written by [`RunSequence`].
//!
//! **Invariants**
//! - This crate chooses no merges, has no nodes or levels, and stores nothing in the manifest.

mod bottom_runs;
mod chained_cursor;
mod compaction_buffer;
mod compaction_buffer_format;
mod fence;
mod fence_format;
mod fenced_run;
mod find_stacked;
mod layer;
mod on_top;
mod overwrites;
mod page_updates;
mod part_cursor;
mod read_forecast;
mod reclaim_choice;
mod reclaim_estimate;
mod resolver;
mod run_sequence;
mod sequence_cursor;
mod tombstone_worth;
mod tree_share;

pub use bottom_runs::write_bottom;
pub use chained_cursor::{ChainCursor, Parts};
pub use compaction_buffer::{
    BufferLayer, BufferSection, CompactionBuffer, Retained, ScanSection, load_sparing_damaged, note_damage,
    short_hash, stacked,
};
pub use compaction_buffer_format::{StoredBuffer, StoredSection, decode_buffer, encode_buffer};
pub use fence::{Bounds, Fence, share_starts};
pub use fence_format::{FenceWriter, decode_fence};
pub use fenced_run::{FencedRun, check_run, is_outside};
pub use find_stacked::find_stacked;
pub use layer::{
    Layer, RunSlice, Source, bytes_of_runs, clip_layer, clip_runs, key_after, layer_cursor, layer_cursors,
    mean_entry_bytes, newest_of, runs_within, shared_prefix, slices_of,
};
pub use on_top::{LEAST_RUN_BYTES, RUN_OVERHEAD_BYTES, SPARING_RUN_BYTES, on_top_bytes, write_updates};
pub use overwrites::Overwrites;
pub use page_updates::{IncomingEntries, PageInserts, PageUpdateLimits, UpdatedRun, update_pages};
pub use part_cursor::{Entrance, PartCursor, PartRange, PartSources, ScanParts};
pub use reclaim_choice::{ReclaimChoice, ReclaimStep, ReclaimTarget, target_of};
pub use reclaim_estimate::{
    EstimatedStep, REST_BYTES_MAX, ReclaimEstimate, WaitingEntries, lasting_page_bytes, run_space_bytes,
    scaled, step_space_max, with_index_bytes,
};
pub use run_sequence::{Pushed, RunSequence, SequenceOrigin};
pub use sequence_cursor::SequenceCursor;
pub use tombstone_worth::{
    TOMBSTONE_BYTES_MIN, has_many_tombstones, tombstone_job_bytes_max, written_per_saved,
};
pub use tree_share::TreeShare;
