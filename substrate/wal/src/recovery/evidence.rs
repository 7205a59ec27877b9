//! What log and store say of each other: the rest of the store knows how far the log reaches and who wrote
//! which segments; the log knows which manifest edits it builds on.
//!
//! **Invariants**
//! - Evidence only adds to what the log proves by itself: without any a log is read as far as it goes.

use std::fmt;

use testudo_base::{Opening, Result, Seqno};

use crate::recovery::drain::DrainedTail;

/// What the rest of a store knows of its log, for recovery. Finding less is damage.
#[derive(Clone, Debug, Default)]
pub struct LogEvidence {
    /// Number of the segment where the log begins.
    pub first_segment: u64,
    /// Everything up to here is known to be durable.
    pub durable_seqno: Seqno,
    /// Who wrote which segments; `None` if nothing says so.
    pub openings: Option<Vec<Opening>>,
    /// The newest edit of the manifest; `None` if there is none to compare with.
    pub newest_edit: Option<u64>,
    /// What the tail files hold, for a reader ([`crate::read_tail`]): the newest segment of the log.
    pub tail: Option<DrainedTail>,
}

impl LogEvidence {
    /// Of a log of which only the beginning is known.
    pub fn starting_at(first_segment: u64) -> Self {
        Self { first_segment, ..Self::default() }
    }

    /// Whether a log that says that edit `edit` had been made is newer than the manifest.
    pub(crate) fn lacks_edit(&self, edit: u64) -> bool {
        self.newest_edit.is_some_and(|newest| edit > newest)
    }
}

/// The rest of an open store, as far as its log tells it what is durable and asks what that builds on.
pub trait DurabilityListener: fmt::Debug + Send + Sync {
    /// The log is about to create its first segment. What says so durably comes first.
    ///
    /// Errors: the segment is not created.
    fn begin(&self) -> Result<()>;

    /// Number of the newest manifest edit that is durable.
    fn newest_edit(&self) -> u64;

    /// Records are about to be written that were reserved before: what they refer to is written first.
    ///
    /// Errors: they end the log, as a write that failed does.
    fn before_writing(&self) -> Result<()> {
        Ok(())
    }

    /// The same before records that were reserved are made durable: what they refer to is made durable first.
    ///
    /// Errors: they end the log, as a sync that failed does.
    fn before_syncing(&self) -> Result<()> {
        Ok(())
    }

    /// Everything up to `seqno`, of which the last part is in segment `segment`, is durable. Called by each
    /// round of syncing before anybody is told. Must not write to the log.
    ///
    /// Errors: they end the log, as a sync that failed does.
    fn record_durable(&self, segment: u64, seqno: Seqno) -> Result<()>;
}

/// Nobody: of a log without a store.
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
