//! The durable watermark: how much of a store is known to be durable. Finding less later is damage, which no
//! crash can explain.
//!
//! The superblock states it, synced, from time to time. The file `watermark` states it after every sync of
//! the log, without a sync of its own: it survives the end of the process, so that after a kill even the last
//! sync is proven. What it says may only raise what is proven. A file that is missing, torn, older or another
//! store's says nothing.
//!
//! The file has two slots, written in turn, at bytes 0 and 512. Byte table of a slot:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TSTDOMRK` |
//! | 8 | 4 | format version |
//! | 12 | 4 | zeros |
//! | 16 | 16 | store id |
//! | 32 | 8 | round, +1 with each write |
//! | 40 | 8 | number of the newest manifest edit that is durable |
//! | 48 | 8 | everything up to this seqno is durable |
//! | 56 | 8 | XXH3 of bytes 0 … 56 |
//!
//! **Invariants**
//! - A slot is written only after what it states is durable.
//! - No failure of this file is a failure of the store: it then knows less.

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
/// More than anything that is counted here or in the superblock comes to: what is counted on does not
/// overflow.
pub(crate) const COUNT_MAX: u64 = 1 << 62;

/// How much of a store is known to be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermark {
    /// Number of the newest manifest edit.
    pub edit: u64,
    /// Everything in the log up to here.
    pub seqno: Seqno,
}

impl Watermark {
    /// What one of the two knows.
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

/// The round and the watermark of a slot, if it holds one of `store`.
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

/// What the file in `directory` knows of `store`; nothing if it cannot be read.
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
    /// Opens the file, or makes it; `None` if that cannot be done, for a store does not need it.
    pub(crate) fn open(env: &dyn Env, directory: &Path, store: StoreId) -> Option<Self> {
        let path = directory.join(WATERMARK_FILE);
        let open = |mode| env.open(&path, OpenOptions { mode, direct: false });
        let file = open(OpenMode::Write).or_else(|_| open(OpenMode::CreateNew)).ok()?;
        // Its place is taken now: a full device must not keep it from being written.
        file.allocate(0, PAGE_BYTES).ok()?;
        let round = read(&*file, store).map_or(0, |(round, _)| round);
        Some(Self { file, store, round })
    }

    /// States `watermark`. A failure leaves what the other slot says.
    pub(crate) fn write(&mut self, watermark: &Watermark) {
        self.round = self.round.wrapping_add(1);
        let slot = self.round % 2;
        let bytes = encode(self.store, self.round, watermark);
        debug_assert!(u64_of(bytes.len()) <= SLOT_STRIDE, "slots do not overlap");
        let _ = self.file.write_at(slot * SLOT_STRIDE, &bytes);
    }
}

#[cfg(test)]
mod tests;
