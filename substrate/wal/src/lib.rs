//! The write-ahead log of a store: one total order of commits, group commit, replay of the surviving prefix.
//!
//! Depends on `base` and `env`; has no notion of keys, keyspaces or trees. A commit's payload is opaque
//! bytes.
//!
//! ```text
//! reserve (seqno, bytes of a buffer)    wal.rs -> tail.rs -> buffer.rs
//!   -> fill (outside every lock)        reservation.rs
//!   -> sync_to                          group_commit.rs -> segment/writer.rs
//! rewrite.rs, replay.rs -> segment/reader.rs
//! ```
//!
//! **Invariants**
//! - Commits are stored in seqno order, without a gap. Replay delivers the longest prefix of that order that
//!   survived, and never less than was durable without returning an error.
//! - A page is never written twice, so that a crash cannot tear data that was synced before.
//! - After a failed write or sync the log is poisoned permanently; it never retries.
//! - Replay writes nothing.
//! - Lock order: the segment writer, then the prepared segment, then one of the leaves (tail, list of live
//!   segments, rounds of syncing). Only the first two are held over I/O, none while a caller's code runs.

mod append;
mod inspect;
mod poison;
mod recovery;
mod segment;
mod stall;
mod start;
mod wal;

pub use append::reservation::Reservation;
pub use append::tail::USUAL_BUFFERS;
pub use inspect::{HeaderContents, SegmentSection, inspect_segment, inspect_segment_header};
pub use recovery::drain::{DrainedTail, Restore, drain_tail, read_tail, remove_tail_files};
pub use recovery::evidence::{DurabilityListener, LogEvidence, NoListener};
pub use recovery::replay::{Record, ReplayEnd, TornTail, Verdict, replay};
pub use recovery::rewrite::{cut_segment, rewrite_unproven};
pub use recovery::survey::{LogEvent, LogHole, LogSurvey, SurveyedSegment, survey_log};
pub use segment::store::{SegmentInfo, list_segments, remove_segments};
pub use segment::tail_format::tail_file_number;
pub use segment::wal_format::{
    FORMAT_VERSION, MAX_PAYLOAD_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader,
    segment_file_name,
};
pub use start::{WalOptions, WalStart};
pub use wal::{Wal, WalStats};
