//! Reader of the file `hot-set`.
//!
//! **Invariants**
//! - No part of a block is used before its checksum is verified.
//! - At most one block is in memory.

use std::collections::BTreeMap;

use testudo_base::{
    KeyspaceId, StoreId,
    codec::{Damage, Reader},
    num::u64_of,
    sync::Arc,
};
use testudo_env::File;
use testudo_records::{KeyspaceRecords, RestoredRecord};
use testudo_run::Run;
use testudo_storage::WantedPage;

use super::{
    hot_set_format::{
        BLOCK_HEADER_BYTES, BlockHeader, BlockKind, FILE_BYTES_MAX, HEADER_BYTES, HotSetHeader, take_record,
    },
    restore_state::RestoreState,
};

/// Maximum records restored per call.
const RECORDS: usize = 4096;

/// Read position in a hot set, and the current block.
#[derive(Debug)]
pub struct HotSetReader {
    file: Arc<dyn File>,
    pub header: HotSetHeader,
    /// Offset of the next block.
    pub offset: u64,
    /// Keyspaces whose records in the file are still current.
    pub keyspaces: BTreeMap<KeyspaceId, KeyspaceRecords>,
    /// Pages of this block still to be read, the next one last, and the runs that contain them.
    pub pages: Vec<WantedPage>,
    pub runs: Vec<Arc<Run>>,
    records: Vec<u8>,
    records_at: usize,
    pub are_pages_full: bool,
    pub are_records_full: bool,
    /// Device reads for queries before the hot set was opened.
    pub page_reads: u64,
}

/// The final state, which is also the reason for stopping.
pub type End = RestoreState;

impl From<Damage> for RestoreState {
    fn from(_: Damage) -> Self {
        Self::Damaged
    }
}

impl HotSetReader {
    /// Reads the header of a file that must belong to `store`.
    pub fn open(file: Arc<dyn File>, store: StoreId, page_reads: u64) -> Result<Self, End> {
        let file_bytes = file.len().map_err(|_| End::Failed)?;
        if !(u64_of(HEADER_BYTES)..=FILE_BYTES_MAX).contains(&file_bytes) {
            return Err(End::Damaged);
        }
        let mut bytes = [0; HEADER_BYTES];
        file.read_at(0, &mut bytes).map_err(|_| End::Failed)?;
        let header = HotSetHeader::decode(&bytes)?;
        if header.store != store || header.file_bytes != file_bytes {
            return Err(End::Damaged);
        }
        Ok(Self {
            file,
            header,
            offset: u64_of(HEADER_BYTES),
            keyspaces: BTreeMap::new(),
            pages: Vec::new(),
            runs: Vec::new(),
            records: Vec::new(),
            records_at: 0,
            are_pages_full: false,
            are_records_full: false,
            page_reads,
        })
    }

    /// Whether the current block has records still to be restored.
    pub fn has_records(&self) -> bool {
        self.records_at < self.records.len()
    }

    /// Accepts the payload of a block of records.
    pub fn take_records(&mut self, payload: Vec<u8>) {
        debug_assert!(!self.has_records(), "at most one block is in memory");
        (self.records, self.records_at) = (payload, 0);
    }

    /// Reads the next block, if there is one.
    pub fn next_block(&mut self) -> Result<Option<(BlockKind, Vec<u8>)>, End> {
        debug_assert!(self.pages.is_empty() && !self.has_records(), "at most one block is in memory");
        debug_assert!(self.offset <= self.header.file_bytes, "blocks end within the file");
        let left = self.header.file_bytes - self.offset;
        if left == 0 {
            return Ok(None);
        }
        let payload_bytes_max = left.checked_sub(u64_of(BLOCK_HEADER_BYTES)).ok_or(End::Damaged)?;
        let mut start = [0; BLOCK_HEADER_BYTES];
        self.file.read_at(self.offset, &mut start).map_err(|_| End::Failed)?;
        let header = BlockHeader::decode(&start)?;
        if u64_of(header.payload_bytes) > payload_bytes_max {
            return Err(End::Damaged);
        }
        let mut payload = vec![0; header.payload_bytes];
        let payload_at = self.offset + u64_of(BLOCK_HEADER_BYTES);
        self.file.read_at(payload_at, &mut payload).map_err(|_| End::Failed)?;
        if !header.is_of(&payload, self.header.number, self.offset) {
            return Err(End::Damaged);
        }
        self.offset = payload_at + u64_of(payload.len());
        Ok(Some((header.kind, payload)))
    }

    /// Restores the next records.
    pub fn restore_records(&mut self) -> Result<(), End> {
        let mut reader = Reader::new(&self.records[self.records_at..]);
        for _ in 0..RECORDS {
            if reader.is_empty() || self.are_records_full {
                break;
            }
            let record = take_record(&mut reader)?;
            let Some(records) = self.keyspaces.get(&record.keyspace) else { continue };
            match records.restore(&record) {
                RestoredRecord::Done | RestoredRecord::Present | RestoredRecord::TooLong => {}
                RestoredRecord::Outdated => {
                    self.keyspaces.remove(&record.keyspace);
                }
                RestoredRecord::Full => self.are_records_full = true,
            }
        }
        debug_assert!(reader.rest().len() <= self.records.len(), "the rest of the block");
        let rest = if self.are_records_full { 0 } else { reader.rest().len() };
        self.records_at = self.records.len() - rest;
        Ok(())
    }
}
