//! What log and manifest know of each other while a store is open, and how often the superblock states it.
//!
//! **Invariants**
//! - The log tells before it acknowledges; what it tells goes to the file `watermark` at once, to the
//!   superblock with the next edit, with the first sync in a new segment, and otherwise about once a second.

use testudo_base::{Result, Seqno, sync::Arc};
use testudo_storage::Manifest;
use testudo_store::{begin_writing::Beginning, values::value_logs::ValueLogs};
use testudo_wal::{DurabilityListener, LogEvidence};

/// Manifest and value logs, as the log sees them.
#[derive(Debug)]
pub struct StoreListener {
    pub manifest: Arc<Manifest>,
    pub beginning: Arc<Beginning>,
    pub value_logs: Arc<ValueLogs>,
}

impl DurabilityListener for StoreListener {
    fn begin(&self) -> Result<()> {
        self.beginning.begin()
    }

    fn newest_edit(&self) -> u64 {
        self.manifest.watermark().edit
    }

    fn before_writing(&self) -> Result<()> {
        self.value_logs.write_out()
    }

    fn before_syncing(&self) -> Result<()> {
        self.value_logs.sync()
    }

    fn record_durable(&self, segment: u64, seqno: Seqno) -> Result<()> {
        self.manifest.record_durable(segment, seqno)
    }
}

/// What superblock, manifest and watermark know of the log of a store that was just opened.
pub fn log_evidence(manifest: &Manifest) -> LogEvidence {
    let watermark = manifest.watermark();
    manifest.with_state(|state| LogEvidence {
        first_segment: state.log_segment,
        // What the log begins after is in the trees.
        durable_seqno: if watermark.seqno > state.log_seqno { watermark.seqno } else { Seqno(0) },
        openings: Some(state.openings.clone()),
        newest_edit: Some(watermark.edit),
        tail: None,
    })
}
