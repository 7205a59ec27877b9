//! Value segments: values that lie outside the runs of a tree, in runs of their own (decision 0045).
//!
//! A *value segment* is a sorted run. Its entries have the keys of their values, and each says which
//! reference leads to it; the entries of the tree have the references. One that commits have written, as a
//! *value log* (decision 0052), has its values in the order in which they came, under their numbers. Values
//! die as merges drop references. A segment with dead values is rewritten without them, and keeps its id: no
//! reference changes. A *transient* segment is not: its values come back to their keys at the bottom of the
//! tree, until none is left.
//!
//! **Invariants**
//! - A segment never changes; a rewritten one is another state of the same segment.
//! - A value is dead once no entry of the tree refers to it, and stays dead.

mod dead_values;
mod placement;
mod segment;
mod segment_format;
mod segment_reader;
mod segment_set;
mod segment_writer;
mod value_costs;
mod value_log;
mod value_log_format;
mod value_log_reader;

pub use dead_values::DeadValues;
pub use placement::{PairClass, Placement};
pub use segment::{Rewritten, Segment, SegmentClass, is_under_its_number};
pub use segment_format::SegmentRecord;
pub use segment_reader::SegmentReader;
pub use segment_set::{SegmentSet, SegmentTotals, StayingValues};
pub use segment_writer::SegmentWriter;
pub use value_costs::{LargeValues, Paused, ValueCosts};
pub use value_log::{LoggedValues, ValueLog};
pub use value_log_format::ValueLogRecord;
pub use value_log_reader::ValueLogReader;
