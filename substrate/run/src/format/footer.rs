//! The footer of a run: who the run is, where its index and filter are, and the top of the index.
//!
//! Who the run is stands here too, so that it can be found and placed among others when the manifest is lost.
//!
//! Payload, little-endian (`str` = u32 length and bytes): store id u128 · the run's own reference · name of
//! the keyspace str · covered range: u8 0 (none), or 1, low str and u8 0 (open) or 1, how much high shares
//! with low u32 and the rest of high str; or 2 for a value segment, which has none · index blocks u32 ·
//! first filter page u32 · filter pages u32 · then per index block its page u32, its pages u32, its first
//! separator str, and u8 0, or 1 and the fork of a separator that was cut: shared bytes u32 · byte u8.
//!
//! **Invariants**
//! - Reading never panics: a footer that contradicts itself is [`Damage`].
//! - The store id stands first, so that a lone footer page tells which store it is of.

use std::ops::RangeInclusive;

use testudo_base::{
    MAX_KEY_BYTES, StoreId,
    codec::{self, Damage, Reader},
    num::{u32_of, usize_of},
};

use crate::{
    KeyBounds, RunRef,
    format::long_separators::{Fork, MAX_SEPARATOR_BYTES, Separator},
};

/// Longest name of a keyspace that a footer may state.
const MAX_NAME_BYTES: usize = 1 << 16;

/// A block of the run, in pages from the run's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPosition {
    pub(crate) page: u32,
    pub(crate) pages: u32,
}

/// What a run says about itself, without the help of anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// The store.
    pub store: StoreId,
    /// The run, as its parent refers to it.
    pub reference: RunRef,
    /// Name of its keyspace when it was written.
    pub keyspace_name: String,
    /// For a bottom run: the keys of which it holds everything that was left of all operations up to its
    /// newest seqno. A key in there that it does not hold did not exist then.
    pub covered_range: Option<KeyBounds>,
    /// It holds values that the entries of other runs refer to, and says nothing about its keys.
    pub is_value_segment: bool,
}

impl RunRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        codec::put_u128(out, self.store.0);
        self.reference.encode(out);
        codec::put_bytes(out, self.keyspace_name.as_bytes());
        let Some(KeyBounds { low, high }) = &self.covered_range else {
            codec::put_u8(out, if self.is_value_segment { 2 } else { 0 });
            return;
        };
        codec::put_u8(out, 1);
        let low = low.as_deref().unwrap_or_default();
        codec::put_bytes(out, low);
        codec::put_u8(out, u8::from(high.is_some()));
        if let Some(high) = high {
            codec::put_bytes_after(out, low, high);
        }
    }

    /// Reads what a footer's payload says of its run.
    pub fn read(footer_payload: &[u8]) -> Result<Self, Damage> {
        Footer::decode(footer_payload).map(|(record, _)| record)
    }

    /// The store that a footer's payload claims to be of. Nothing else of it is believed.
    pub fn claimed_store(footer_payload: &[u8]) -> Option<StoreId> {
        Reader::new(footer_payload).u128().ok().map(StoreId)
    }

    /// Makes a footer's payload one of another store, for copies of runs.
    pub fn restate_store(footer_payload: &mut [u8], store: StoreId) {
        footer_payload[..16].copy_from_slice(&store.0.to_le_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Damage> {
        let store = StoreId(reader.u128()?);
        let reference = RunRef::decode(reader)?;
        let name = std::str::from_utf8(reader.bytes(MAX_NAME_BYTES)?);
        let keyspace_name = name.map_err(|_| Damage("a name is not UTF-8"))?.to_owned();
        let (covered_range, is_value_segment) = match reader.u8()? {
            0 => (None, false),
            1 => (Some(decode_bounds(reader)?), false),
            2 => (None, true),
            _ => return Err(Damage("unknown covered range of a run")),
        };
        Ok(Self { store, reference, keyspace_name, covered_range, is_value_segment })
    }
}

/// The end behind a longest key is a byte longer.
const END_BYTES_MAX: usize = MAX_KEY_BYTES + 1;

fn decode_bounds(reader: &mut Reader<'_>) -> Result<KeyBounds, Damage> {
    let low = reader.bytes(END_BYTES_MAX)?.to_vec();
    let high = match reader.u8()? {
        0 => None,
        1 => Some(reader.bytes_after(&low, END_BYTES_MAX)?),
        _ => return Err(Damage("unknown bound of a run")),
    };
    Ok(KeyBounds { low: (!low.is_empty()).then_some(low), high })
}

/// The decoded footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) filter_page: u32,
    pub(crate) filter_pages: u32,
    /// Index blocks with the separator before their first data block; the first one's is empty.
    pub(crate) index: Vec<(Separator, BlockPosition)>,
}

impl Footer {
    pub(crate) fn encode(&self, record: &RunRecord) -> Vec<u8> {
        let mut out = Vec::new();
        record.encode(&mut out);
        codec::put_u32(&mut out, u32_of(self.index.len()));
        codec::put_u32(&mut out, self.filter_page);
        codec::put_u32(&mut out, self.filter_pages);
        for (separator, position) in &self.index {
            codec::put_u32(&mut out, position.page);
            codec::put_u32(&mut out, position.pages);
            codec::put_bytes(&mut out, &separator.bytes);
            codec::put_u8(&mut out, u8::from(separator.fork.is_some()));
            if let Some(fork) = separator.fork {
                fork.encode(&mut out);
            }
        }
        out
    }

    /// Everything that the footer points at lies before it, as its own reference says.
    pub(crate) fn decode(payload: &[u8]) -> Result<(RunRecord, Self), Damage> {
        let mut reader = Reader::new(payload);
        let record = RunRecord::decode(&mut reader)?;
        let (data_pages, limit_page) = (record.reference.data_pages, record.reference.footer_page);
        let count = usize_of(u64::from(reader.u32()?));
        let (filter_page, filter_pages) = (reader.u32()?, reader.u32()?);
        let filter_end = filter_page.checked_add(filter_pages).ok_or(Damage("filter is outside its run"))?;
        if filter_page < data_pages || filter_end > limit_page || count * 12 > reader.rest().len() {
            return Err(Damage("the footer contradicts its run"));
        }
        let mut index = Vec::with_capacity(count);
        for _ in 0..count {
            let position = BlockPosition { page: reader.u32()?, pages: reader.u32()? };
            let end = position.page.checked_add(position.pages).ok_or(Damage("index is outside its run"))?;
            if position.page < data_pages || end > filter_page || position.pages == 0 {
                return Err(Damage("index is outside its run"));
            }
            let bytes = reader.bytes(MAX_SEPARATOR_BYTES)?.to_vec();
            let fork = match reader.u8()? {
                0 => None,
                1 if bytes.len() == MAX_SEPARATOR_BYTES => Some(Fork::decode(&mut reader)?),
                _ => return Err(Damage("unknown separator of an index block")),
            };
            index.push((Separator { bytes, fork }, position));
        }
        reader.finish()?;
        if index.is_empty() {
            return Err(Damage("a run without an index"));
        }
        Ok((record, Self { filter_page, filter_pages, index }))
    }

    /// The index blocks one of which covers `key`: those whose cut separators do not tell whether it does,
    /// and the one before them.
    #[inline]
    pub(crate) fn index_blocks_for(&self, key: &[u8]) -> RangeInclusive<usize> {
        let last = self.index.partition_point(|(separator, _)| separator.bytes.as_slice() <= key);
        let mut first = last;
        if key.len() >= MAX_SEPARATOR_BYTES {
            let is_unsure = |(separator, _): &(Separator, _)| {
                separator.fork.is_some() && key.starts_with(&separator.bytes)
            };
            while first > 0 && is_unsure(&self.index[first - 1]) {
                first -= 1;
            }
        }
        first.saturating_sub(1)..=last.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests;
