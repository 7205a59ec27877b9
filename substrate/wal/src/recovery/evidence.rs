//! Evidence that log and store have about each other. The store states how far the log reaches and which
//! incarnation wrote which segment; the log states which manifest edits it builds on.
//!
//! **Invariants**
//! - Evidence only adds to what the log proves by itself: without any, the log is read as far as it goes.

use std::fmt;

use testudo_base::{Opening, Result, Seqno};

use crate::recovery::drain::DrainedTail;

/// Statements of the rest of a store about its log, for recovery. Finding less is damage.
#[derive(Clone, Debug, Default)]
pub struct LogEvidence {
    /// Number of the first segment of the log.
    pub first_segment: u64,
    /// Everything up to this seqno is known to be durable.
    pub durable_seqno: Seqno,
    /// The writers of the segments; `None` if unknown.
    pub openings: Option<Vec<Opening>>,
    /// The newest edit of the manifest; `None` if there is none to compare with.
    pub newest_edit: Option<u64>,
    /// Contents of the tail files, for a reader ([`crate::read_tail`]): the newest segment of the log.
    pub tail: Option<DrainedTail>,
}

impl LogEvidence {
    /// Evidence that states only the first segment of the log.
    pub fn starting_at(first_segment: u64) -> Self {
        Self { first_segment, ..Self::default() }
    }

    /// Whether the log is newer than the manifest, given that the log states edit `edit`.
    pub(crate) fn lacks_edit(&self, edit: u64) -> bool {
        self.newest_edit.is_some_and(|newest| edit > newest)
    }
}

/// The rest of an open store: the log notifies it of durability and queries the newest edit it builds on.
pub trait DurabilityListener: fmt::Debug + Send + Sync {
    /// Called before the log creates its first segment: the store first records this durably.
    ///
    /// Errors: the segment is not created.
    fn begin(&self) -> Result<()>;

    /// Returns the number of the newest durable manifest edit.
    fn newest_edit(&self) -> u64;

    /// Called before reserved records are written: the data they refer to is written first.
    ///
    /// Errors: they end the log, like a failed write.
    fn before_writing(&self) -> Result<()> {
        Ok(())
    }

    /// Called before reserved records are made durable: the data they refer to is made durable first.
    ///
    /// Errors: they end the log, like a failed sync.
    fn before_syncing(&self) -> Result<()> {
        Ok(())
    }

    /// Records that everything up to `seqno` is durable; the last part of it is in segment `segment`. Called
    /// by each round of syncing before any commit is acknowledged. Must not write to the log.
    ///
    /// Errors: they end the log, like a failed sync.
    fn record_durable(&self, segment: u64, seqno: Seqno) -> Result<()>;
}

/// The listener of a log without a store; does nothing.
#[derive(Debug)]
pub struct NoListener;

impl DurabilityListener for NoListener {
    fn begin(&self) -> Result<()> {
        Ok(())
    }

    fn newest_edit(&self) -> u64 {
        0
    }

    fn record_durable(&self, _segment: u64, _seqno: Seqno) -> Result<()> {
        Ok(())
    }
}
