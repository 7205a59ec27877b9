//! Cross-references between log and manifest of an open store, and how often the superblock states them.
//!
//! **Invariants**
//! - The log reports durability before it acknowledges. The file `watermark` states it at once; the
//!   superblock with the next edit, with the first sync in a new segment, and otherwise about once a second.

use testudo_base::{Result, Seqno, sync::Arc};
use testudo_storage::Manifest;
use testudo_store::{begin_writing::Beginning, values::value_logs::ValueLogs};
use testudo_wal::{DurabilityListener, LogEvidence};

/// Manifest and value logs as seen by the log.
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

/// Evidence of superblock, manifest and watermark about the log of a newly opened store.
pub fn log_evidence(manifest: &Manifest) -> LogEvidence {
    let watermark = manifest.watermark();
    manifest.with_state(|state| LogEvidence {
        first_segment: state.log_segment,
        // The trees already contain everything before the start of the log.
        durable_seqno: if watermark.seqno > state.log_seqno { watermark.seqno } else { Seqno(0) },
        openings: Some(state.openings.clone()),
        newest_edit: Some(watermark.edit),
        tail: None,
    })
}
