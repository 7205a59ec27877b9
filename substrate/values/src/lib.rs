//! Value segments: separated values, in runs of their own (decision 0045).
//!
//! A *value segment* is a sorted run. Its entries have the keys of their values, and each contains the
//! reference to it; the entries of the tree contain the references. A segment written by commits, as a *value
//! log* (decision 0052), has its values in commit order, keyed by number. A value is dead once merges have
//! dropped its reference. A segment with dead values is rewritten without them and keeps its id, so that no
//! reference changes. A *transient* segment is not rewritten: its values return to their keys at the bottom
//! of the tree, until it is empty.
//!
//! **Invariants**
//! - A segment is immutable; a rewritten one is another state of the same segment.
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
pub use placement::{Placement, ValueClass};
pub use segment::{Rewritten, Segment, SegmentClass, is_under_its_number};
pub use segment_format::SegmentRecord;
pub use segment_reader::SegmentReader;
pub use segment_set::{PermanentValues, SegmentSet, SegmentTotals};
pub use segment_writer::SegmentWriter;
pub use value_costs::{LargeValues, Paused, ValueCosts};
pub use value_log::{LoggedValues, ValueLog};
pub use value_log_format::ValueLogRecord;
pub use value_log_reader::ValueLogReader;
