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
//! In place of index blocks u32 and what follows, a small run has (decision 0055): 2^31 u32 · bytes of the
//! index block u32 · bytes of the filter u32, 0 if there is none · the index block · the filter.
//!
//! **Invariants**
//! - Reading never panics: a footer that contradicts itself is [`Damage`].
//! - The store id stands first, so that a lone footer page tells which store it is of.
//! - What a footer encloses ends its payload, and the footer has one page.

use std::ops::RangeInclusive;

use testudo_base::{
    MAX_KEY_BYTES, StoreId,
    codec::{self, Damage, Reader},
    num::{u16_of, u32_of, u64_of, usize_of},
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

/// Stands for the number of index blocks: index and filter are in the footer.
const IS_ENCLOSING: u32 = 1 << 31;

/// Index and filter of a run that are no longer than this stay in memory with its footer: it takes about as
/// much without them, and a page of the cache eight times as much.
const KEPT_BYTES_MAX: usize = 512;

/// The only index block of a run and its filter, inside the payload of its footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Enclosed {
    /// That of the footer.
    page: u32,
    index_bytes: u16,
    /// 0 if there is no filter.
    filter_bytes: u16,
    /// Both, if they are small.
    kept: Option<Box<[u8]>>,
}

impl Enclosed {
    /// REQUIRES: `blocks` are the index block and the filter, one behind the other.
    fn new(page: u32, index_bytes: u16, filter_bytes: u16, blocks: &[u8]) -> Self {
        let kept = (blocks.len() <= KEPT_BYTES_MAX).then(|| blocks.into());
        Self { page, index_bytes, filter_bytes, kept }
    }

    /// The index block at the end of a payload; empty if that is one of another footer.
    #[inline]
    pub(crate) fn index_in<'p>(&self, payload: &'p [u8]) -> &'p [u8] {
        let bytes = usize::from(self.index_bytes) + usize::from(self.filter_bytes);
        let both = payload.len().checked_sub(bytes).map_or(&[][..], |start| &payload[start..]);
        both.get(..usize::from(self.index_bytes)).unwrap_or_default()
    }

    /// The filter at the end of a payload; empty if that is one of another footer.
    #[inline]
    pub(crate) fn filter_in<'p>(&self, payload: &'p [u8]) -> &'p [u8] {
        let start = payload.len().checked_sub(usize::from(self.filter_bytes));
        start.map_or(&[], |start| &payload[start..])
    }

    /// Index block and filter, if they are in memory.
    #[inline]
    pub(crate) fn kept(&self) -> Option<&[u8]> {
        self.kept.as_deref()
    }
}

/// Where the index blocks of a run are, and what leads to each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IndexBlocks {
    /// One leads to all data.
    Sole(BlockPosition),
    /// One does, and the footer has it.
    Enclosed(Enclosed),
    /// Each with the separator before its first data block; the first one's is empty.
    Several(Box<[(Separator, BlockPosition)]>),
}

impl IndexBlocks {
    /// Blocks with the separators before them, of which the first one's is empty.
    pub(crate) fn of(blocks: Vec<(Separator, BlockPosition)>) -> Self {
        match blocks[..] {
            [(_, position)] => Self::Sole(position),
            _ => Self::Several(blocks.into()),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.several().map_or(1, <[_]>::len)
    }

    /// The place of block `number`: that of the footer if it has it.
    #[inline]
    pub(crate) fn position(&self, number: usize) -> BlockPosition {
        match self {
            Self::Sole(position) => *position,
            Self::Enclosed(Enclosed { page, .. }) => BlockPosition { page: *page, pages: 1 },
            Self::Several(blocks) => blocks[number].1,
        }
    }

    /// The separator before block `number`.
    pub(crate) fn separator(&self, number: usize) -> Separator {
        self.several().map_or_else(Separator::default, |blocks| blocks[number].0.clone())
    }

    /// The places of all blocks.
    pub(crate) fn positions(&self) -> impl Iterator<Item = BlockPosition> + '_ {
        (0..self.len()).map(|number| self.position(number))
    }

    /// The blocks, if there are several.
    #[inline]
    pub(crate) fn several(&self) -> Option<&[(Separator, BlockPosition)]> {
        match self {
            Self::Sole(_) | Self::Enclosed(_) => None,
            Self::Several(blocks) => Some(blocks),
        }
    }
}

/// The decoded footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    /// That of the footer if it encloses the filter.
    pub(crate) filter_page: u32,
    pub(crate) filter_pages: u32,
    pub(crate) index: IndexBlocks,
}

impl Footer {
    /// The footer, in page `page`, of a run of which it has index and filter; and its payload.
    pub(crate) fn enclosing(page: u32, record: &RunRecord, index: &[u8], filter: &[u8]) -> (Self, Vec<u8>) {
        let mut out = Vec::new();
        record.encode(&mut out);
        codec::put_u32(&mut out, IS_ENCLOSING);
        codec::put_u32(&mut out, u32_of(index.len()));
        codec::put_u32(&mut out, u32_of(filter.len()));
        out.extend_from_slice(index);
        out.extend_from_slice(filter);
        let blocks = &out[out.len() - index.len() - filter.len()..];
        let enclosed = Enclosed::new(page, u16_of(index.len()), u16_of(filter.len()), blocks);
        (Self::of_enclosed(enclosed), out)
    }

    fn of_enclosed(enclosed: Enclosed) -> Self {
        let (filter_page, filter_pages) = (enclosed.page, u32::from(enclosed.filter_bytes > 0));
        Self { filter_page, filter_pages, index: IndexBlocks::Enclosed(enclosed) }
    }

    /// Index and filter, if the footer has them.
    #[inline]
    pub(crate) fn enclosed(&self) -> Option<&Enclosed> {
        match &self.index {
            IndexBlocks::Enclosed(enclosed) => Some(enclosed),
            IndexBlocks::Sole(_) | IndexBlocks::Several(_) => None,
        }
    }

    /// Whether index and filter are in memory with the footer.
    pub(crate) fn keeps_structure(&self) -> bool {
        self.enclosed().is_some_and(|enclosed| enclosed.kept.is_some())
    }

    /// The payload of a footer that encloses nothing.
    pub(crate) fn encode(&self, record: &RunRecord) -> Vec<u8> {
        debug_assert!(self.enclosed().is_none(), "it was written with what it encloses");
        let mut out = Vec::new();
        record.encode(&mut out);
        codec::put_u32(&mut out, u32_of(self.index.len()));
        codec::put_u32(&mut out, self.filter_page);
        codec::put_u32(&mut out, self.filter_pages);
        for (number, position) in self.index.positions().enumerate() {
            let separator = self.index.separator(number);
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
        let count = reader.u32()?;
        if count == IS_ENCLOSING {
            let footer = Self::decode_enclosed(&record.reference, reader)?;
            return Ok((record, footer));
        }
        let count = usize_of(u64::from(count));
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
        let Some((first, _)) = index.first() else { return Err(Damage("a run without an index")) };
        if !first.bytes.is_empty() {
            return Err(Damage("the first index block begins behind the first key"));
        }
        Ok((record, Self { filter_page, filter_pages, index: IndexBlocks::of(index) }))
    }

    /// Reads what stands behind [`IS_ENCLOSING`], the blocks themselves not.
    fn decode_enclosed(reference: &RunRef, mut reader: Reader<'_>) -> Result<Self, Damage> {
        let (index, filter) = (reader.u32()?, reader.u32()?);
        let is_all = u64::from(index) + u64::from(filter) == u64_of(reader.rest().len());
        let (Ok(index), Ok(filter), true) = (u16::try_from(index), u16::try_from(filter), is_all) else {
            return Err(Damage("a footer does not end with what it has of index and filter"));
        };
        if index == 0 || reference.data_pages != reference.footer_page || reference.footer_pages != 1 {
            return Err(Damage("the footer contradicts its run"));
        }
        Ok(Self::of_enclosed(Enclosed::new(reference.footer_page, index, filter, reader.rest())))
    }

    /// The index blocks one of which covers `key`: those whose cut separators do not tell whether it does,
    /// and the one before them.
    #[inline]
    pub(crate) fn index_blocks_for(&self, key: &[u8]) -> RangeInclusive<usize> {
        let Some(blocks) = self.index.several() else { return 0..=0 };
        let last = blocks.partition_point(|(separator, _)| separator.bytes.as_slice() <= key);
        let mut first = last;
        if key.len() >= MAX_SEPARATOR_BYTES {
            let is_unsure = |(separator, _): &(Separator, _)| {
                separator.fork.is_some() && key.starts_with(&separator.bytes)
            };
            while first > 0 && is_unsure(&blocks[first - 1]) {
                first -= 1;
            }
        }
        first.saturating_sub(1)..=last.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests;
