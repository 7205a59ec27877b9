//! Values in pieces: their keyspace is salvaged before user keyspaces, so that an entry that refers to a
//! value is written only if all its pieces are present.
//!
//! **Invariants**
//! - A head is written with the entry that refers to its value, in the same commit: no other value has one.
//! - Pieces of a value without a head are removed at the end.
//! - A loss is reported for the user's key; keys of pieces are in no report.

use testudo_base::{Kind, Result, ValueReference, num::u64_of};
use testudo_db::{
    Batch, Keyspace,
    maintenance::{batch_of_another_store, push},
};
use testudo_storage::DATA_FILE;
use testudo_store::values::pieces_format::{
    PiecesHead, head_key, piece_count, piece_key, piece_len, value_of_piece,
};

use crate::salvage::{
    key_ranges::after,
    report::{LogSalvage, LostRange},
    target::Target,
};

/// Pieces of an unreferenced value that one commit removes.
const REMOVED_TOGETHER: usize = 256;

/// The pieces in the target.
#[derive(Debug, Default)]
pub(crate) struct SalvagedLongValues {
    /// `None` if there are none.
    keyspace: Option<Keyspace>,
    /// Lost ranges of their own keys.
    lost: Vec<LostRange>,
    /// Place of the first lost commits.
    lost_of_log: Option<(String, u64)>,
}

impl SalvagedLongValues {
    /// The pieces in `keyspace`, with the `lost` ranges; lost commits may have held pieces too.
    pub(crate) fn new(keyspace: Option<Keyspace>, lost: Vec<LostRange>, log: &LogSalvage) -> Self {
        let lost_of_log = log.lost.first().map(|lost| (lost.file.clone(), lost.offset));
        Self { keyspace, lost, lost_of_log }
    }

    /// The first missing piece of the value that `reference` refers to; `None` if it is complete, or not a
    /// value in pieces.
    pub(crate) fn first_missing(&self, reference: &ValueReference) -> Result<Option<u32>> {
        let Some(value) = reference.long_value() else { return Ok(None) };
        let mut next = 0;
        if let Some(keyspace) = &self.keyspace {
            for entry in keyspace.range(piece_key(value, 0)..piece_key(value + 1, 0))? {
                let entry = entry?;
                let is_next = entry.key() == piece_key(value, next)
                    && entry.value_len()? == u64_of(piece_len(reference.length, next));
                if !is_next {
                    break;
                }
                next += 1;
            }
        }
        Ok(Some(next).filter(|next| *next < piece_count(reference.length)))
    }

    /// The loss to report for `key`, whose value lacks a piece.
    pub(crate) fn lost(&self, key: &[u8], reference: &ValueReference, piece: u32) -> LostRange {
        let piece_key = piece_key(reference.long_value().unwrap_or_default(), piece);
        let range = self.lost.iter().find(|range| range.contains(&piece_key));
        let (file, offset, why) = match (range, &self.lost_of_log) {
            (Some(range), _) => (range.file.clone(), range.offset, format!(": {}", range.why)),
            (None, Some((file, offset))) => (file.clone(), *offset, ": commits are lost there".to_owned()),
            (None, None) => (DATA_FILE.to_owned(), 0, String::new()),
        };
        LostRange {
            low: key.to_vec(),
            high: Some(after(key)),
            records_about: 1,
            bytes_about: u64::from(reference.length),
            file,
            offset,
            why: format!("piece {piece} of the value is missing{why}"),
        }
    }

    /// Adds the head of a value to the commit that writes the entry that refers to it.
    pub(crate) fn push_head(
        &self,
        batch: &mut Batch,
        keyspace: &str,
        key: &[u8],
        reference: &ValueReference,
    ) {
        if let (Some(pieces), Some(value)) = (&self.keyspace, reference.long_value()) {
            let (keyspace, key) = (keyspace.to_owned(), key.to_vec());
            let head = PiecesHead { length: reference.length, keyspace, key }.encode();
            push(batch, pieces, Kind::Value, &head_key(value), &head);
        }
    }

    /// Removes unreferenced pieces.
    pub(crate) fn remove_dead(self, target: &Target) -> Result<()> {
        let Some(keyspace) = self.keyspace else { return Ok(()) };
        let mut from = piece_key(0, 0);
        while let Some(found) = keyspace.range(from..)?.next() {
            let Some(value) = value_of_piece(found?.key()) else { break };
            let end = piece_key(value + 1, 0);
            if !keyspace.contains_key(head_key(value))? {
                remove_range(target, &keyspace, piece_key(value, 0), &end)?;
            }
            from = end;
        }
        Ok(())
    }
}

fn remove_range(target: &Target, keyspace: &Keyspace, from: Vec<u8>, end: &[u8]) -> Result<()> {
    loop {
        let mut batch = batch_of_another_store(&target.db);
        let mut count = 0;
        for entry in keyspace.range(from.clone()..end.to_vec())?.take(REMOVED_TOGETHER) {
            batch.remove(keyspace, entry?.key());
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        batch.commit()?;
    }
}
