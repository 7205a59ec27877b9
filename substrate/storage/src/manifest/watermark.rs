//! The durable watermark: how much of a store is known to be durable. Finding less later is damage, which no
//! crash explains.
//!
//! The superblock records it with a sync, but rarely. The file `watermark` records it after every sync of the
//! log, without a sync of its own. It survives a process crash, so that even the last sync is proven after a
//! kill. The file can only raise the watermark. A missing, torn, old or foreign file is ignored.
//!
//! The file has two slots, written in turn, at offsets 0 and 512. Layout of a slot:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TSTDOMRK` |
//! | 8 | 4 | format version |
//! | 12 | 4 | zero |
//! | 16 | 16 | store id |
//! | 32 | 8 | round, +1 per write |
//! | 40 | 8 | number of the newest manifest edit that is durable |
//! | 48 | 8 | everything up to this seqno is durable |
//! | 56 | 8 | XXH3 of bytes 0 … 56 |
//!
//! **Invariants**
//! - A slot is written only after the state it records is durable.
//! - A failure of this file is not a failure of the store: the watermark is then less recent.

use std::path::Path;

use testudo_base::{
    PAGE_BYTES, Seqno, StoreId,
    checksum::checksum64,
    codec::{self, Damage, Reader},
    num::u64_of,
    planted,
    sync::Arc,
};
use testudo_env::{Env, File, OpenMode, OpenOptions};

/// Name of the file.
pub const WATERMARK_FILE: &str = "watermark";

const MAGIC: &[u8; 8] = b"TSTDOMRK";
const VERSION: u32 = 2;
const SLOT_STRIDE: u64 = 512;
const SLOT_BYTES: usize = 64;
const CHECKED_BYTES: usize = SLOT_BYTES - 8;
/// Upper bound of the counters here and in the superblock, so that incrementing them cannot overflow.
pub(crate) const COUNT_MAX: u64 = 1 << 62;

/// How much of a store is known to be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermark {
    /// Number of the newest manifest edit.
    pub edit: u64,
    /// Everything in the log up to this seqno.
    pub seqno: Seqno,
}

impl Watermark {
    /// Combines two watermarks: the maximum of each field.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { edit: self.edit.max(other.edit), seqno: self.seqno.max(other.seqno) }
    }
}

fn encode(store: StoreId, round: u64, watermark: &Watermark) -> Vec<u8> {
    let mut out = Vec::with_capacity(SLOT_BYTES);
    out.extend_from_slice(MAGIC);
    codec::put_u32(&mut out, VERSION);
    codec::put_u32(&mut out, 0);
    codec::put_u128(&mut out, store.0);
    for number in [round, watermark.edit, watermark.seqno.0] {
        codec::put_u64(&mut out, number);
    }
    let checksum = checksum64(&out, 0);
    codec::put_u64(&mut out, checksum);
    out
}

/// Decodes round and watermark of a slot, if it is a valid slot of `store`.
fn decode(slot: &[u8; SLOT_BYTES], store: StoreId) -> Option<(u64, Watermark)> {
    let mut reader = Reader::new(slot);
    let mut parse = || -> Result<(u64, Watermark), Damage> {
        let is_ours = reader.take(8)? == MAGIC && reader.u32()? == VERSION;
        reader.u32()?;
        let is_ours = is_ours && StoreId(reader.u128()?) == store;
        let round = reader.u64()?;
        let watermark = Watermark { edit: reader.u64()?, seqno: Seqno(reader.u64()?) };
        let is_whole = reader.u64()? == checksum64(&slot[..CHECKED_BYTES], 0);
        if !is_ours || !is_whole || round.max(watermark.edit) > COUNT_MAX {
            return Err(Damage("not a watermark of this store"));
        }
        Ok((round, watermark))
    };
    parse().ok()
}

/// Reads the watermark of `store` from `directory`; the default one if that fails.
pub fn read_watermark(env: &dyn Env, directory: &Path, store: StoreId) -> Watermark {
    let options = OpenOptions { mode: OpenMode::Read, direct: false };
    let Ok(file) = env.open(&directory.join(WATERMARK_FILE), options) else { return Watermark::default() };
    read(&*file, store).map(|(_, watermark)| watermark).unwrap_or_default()
}

fn read(file: &dyn File, store: StoreId) -> Option<(u64, Watermark)> {
    let slots = (0..2).filter_map(|slot| {
        let mut bytes = [0; SLOT_BYTES];
        file.read_at(slot * SLOT_STRIDE, &mut bytes).ok()?;
        decode(&bytes, store)
    });
    slots.max_by_key(|(round, _)| *round).filter(|_| !planted!("watermark-ignored"))
}

/// The file, open for writing.
#[derive(Debug)]
pub(crate) struct WatermarkFile {
    file: Arc<dyn File>,
    store: StoreId,
    round: u64,
}

impl WatermarkFile {
    /// Opens or creates the file; `None` on failure, since the store works without it.
    pub(crate) fn open(env: &dyn Env, directory: &Path, store: StoreId) -> Option<Self> {
        let path = directory.join(WATERMARK_FILE);
        let open = |mode| env.open(&path, OpenOptions { mode, direct: false });
        let file = open(OpenMode::Write).or_else(|_| open(OpenMode::CreateNew)).ok()?;
        // Allocated now, so that a full device cannot prevent later writes.
        file.allocate(0, PAGE_BYTES).ok()?;
        let round = read(&*file, store).map_or(0, |(round, _)| round);
        Some(Self { file, store, round })
    }

    /// Records `watermark`. On failure the other slot stays valid.
    pub(crate) fn write(&mut self, watermark: &Watermark) {
        self.round = self.round.wrapping_add(1);
        let slot = self.round % 2;
        let bytes = encode(self.store, self.round, watermark);
        debug_assert!(u64_of(bytes.len()) <= SLOT_STRIDE, "slots must not overlap");
        let _ = self.file.write_at(slot * SLOT_STRIDE, &bytes);
    }
}

#[cfg(test)]
mod tests;
