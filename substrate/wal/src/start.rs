//! Parameters for opening a log: its settings and its starting point.

use testudo_base::{Incarnation, Seqno, StoreId, planted};

use crate::{append::tail::USUAL_BUFFERS, recovery::replay::ReplayEnd, segment::store::SegmentInfo};

/// Settings of a log.
#[derive(Clone, Copy, Debug)]
pub struct WalOptions {
    /// The store to which the log belongs.
    pub store_id: StoreId,
    /// Size of a segment file, rounded up to whole pages. 64 MiB: large enough to amortize the syncs of a new
    /// file, small enough that released space is available soon. A longer record gets a longer segment.
    pub segment_bytes: u64,
    /// Size of one buffer, rounded up to whole pages. 1 MiB: enough for a device to write at full speed.
    pub buffer_bytes: usize,
    /// Maximum number of buffers, at least 1; [`USUAL_BUFFERS`]. [`crate::Wal::set_buffer_count`] changes it.
    pub buffer_count: usize,
}

impl WalOptions {
    /// The defaults for this store.
    pub fn new(store_id: StoreId) -> Self {
        Self { store_id, segment_bytes: 64 << 20, buffer_bytes: 1 << 20, buffer_count: USUAL_BUFFERS }
    }
}

/// Starting point of a log.
#[derive(Clone, Debug)]
pub struct WalStart {
    /// The opening of the store that writes the log. The manifest has it durably once
    /// [`crate::DurabilityListener::begin`] has returned.
    pub incarnation: Incarnation,
    /// Number of its first segment; greater than that of any segment in the directory.
    pub segment_number: u64,
    /// The first seqno that it assigns, at least 1. At most one more than `recovered_seqno`; less if the
    /// engine writes recovered commits to the new log again.
    pub next_seqno: Seqno,
    /// End of the log as found by replay.
    pub recovered_seqno: Seqno,
    /// Segments of earlier openings that are still needed; they are counted and released like its own.
    pub old_segments: Vec<SegmentInfo>,
}

impl WalStart {
    /// The log of a new store, from seqno 1.
    pub fn new_store(incarnation: Incarnation) -> Self {
        let (next_seqno, recovered_seqno) = (Seqno(1), Seqno(0));
        Self { incarnation, segment_number: 1, next_seqno, recovered_seqno, old_segments: Vec::new() }
    }

    /// A log that continues where replay ended and keeps the segments that were read.
    pub fn after(end: &ReplayEnd, incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            segment_number: end.last_segment + 1,
            next_seqno: Seqno(
                end.last_seqno.0 + u64::from(!planted!("seqno-reused") || end.last_seqno.0 == 0),
            ),
            recovered_seqno: end.last_seqno,
            old_segments: end.segments.clone(),
        }
    }
}
