//! What is yet to be read of the file `hot-set`.
//!
//! **Invariants**
//! - Nothing of a block is used before its checksum was found right.
//! - No more than a block is in memory.

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

/// Records of a piece.
const RECORDS: usize = 4096;

/// What is yet to be read.
#[derive(Debug)]
pub struct HotSetReader {
    file: Arc<dyn File>,
    pub header: HotSetHeader,
    /// Of the next block.
    pub offset: u64,
    /// Keyspaces of which the records are true.
    pub keyspaces: BTreeMap<KeyspaceId, KeyspaceRecords>,
    /// Pages of this block that are yet to be read, those to be read next last; and what holds them.
    pub pages: Vec<WantedPage>,
    pub runs: Vec<Arc<Run>>,
    records: Vec<u8>,
    records_at: usize,
    pub are_pages_full: bool,
    pub are_records_full: bool,
    /// Reads of the device for queries before.
    pub page_reads: u64,
}

/// Why nothing more is read.
pub type End = RestoreState;

impl From<Damage> for RestoreState {
    fn from(_: Damage) -> Self {
        Self::Damaged
    }
}

impl HotSetReader {
    /// Reads the header of a file that must be of `store`.
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

    /// Whether records of the block are yet to be put back.
    pub fn has_records(&self) -> bool {
        self.records_at < self.records.len()
    }

    /// Takes the payload of a block of records.
    pub fn take_records(&mut self, payload: Vec<u8>) {
        (self.records, self.records_at) = (payload, 0);
    }

    /// The next block, if there is one.
    pub fn next_block(&mut self) -> Result<Option<(BlockKind, Vec<u8>)>, End> {
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

    /// Puts the next records back.
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
        let rest = if self.are_records_full { 0 } else { reader.rest().len() };
        self.records_at = self.records.len() - rest;
        Ok(())
    }
}
