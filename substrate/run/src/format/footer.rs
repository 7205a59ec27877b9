//! The footer of a run: its identity, the locations of index and filter, and the top of the index.
//!
//! The footer contains the run's identity, so that salvage can place the run when the manifest is lost.
//!
//! Payload, little-endian (`str` = u32 length and bytes): store id u128 · the run's own reference · name of
//! the keyspace str · covered range: u8 0 (none), or 1, low str and u8 0 (open) or 1, the length of the
//! prefix that high shares with low u32 and the rest of high str; or 2 for a value segment, which has none ·
//! index blocks u32 · first filter page u32 · filter pages u32 · then per index block its page u32, its
//! pages u32, its first separator str, and u8 0, or 1 and the fork of a cut separator: shared bytes u32 ·
//! byte u8.
//!
//! Instead of index blocks u32 and everything after it, a small run has (decision 0055): 2^31 u32 · bytes of
//! the index block u32 · bytes of the filter u32, 0 if there is none · the index block · the filter.
//!
//! **Invariants**
//! - Decoding never panics: an inconsistent footer is [`Damage`].
//! - The store id comes first, so that a lone footer page can be assigned to its store.
//! - Enclosed index and filter are at the end of the payload, and such a footer has one page.

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

/// Maximum length of a keyspace name in a footer.
const MAX_NAME_BYTES: usize = 1 << 16;

/// A block of the run, in pages from the run's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPosition {
    pub(crate) page: u32,
    pub(crate) pages: u32,
}

/// Self-contained description of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// Id of the store.
    pub store: StoreId,
    /// Reference to the run, as kept by its parent.
    pub reference: RunRef,
    /// Name of its keyspace when it was written.
    pub keyspace_name: String,
    /// For a bottom run: the range in which it holds everything that remains of all operations up to its
    /// newest seqno. A key in this range that it does not hold did not exist then.
    pub covered_range: Option<KeyBounds>,
    /// Whether it holds values to which entries of other runs refer, and says nothing about its keys.
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

    /// Decodes the description in a footer's payload.
    pub fn read(footer_payload: &[u8]) -> Result<Self, Damage> {
        Footer::decode(footer_payload).map(|(record, _)| record)
    }

    /// Returns the store id in a footer's payload, unverified.
    pub fn claimed_store(footer_payload: &[u8]) -> Option<StoreId> {
        Reader::new(footer_payload).u128().ok().map(StoreId)
    }

    /// Replaces the store id in a footer's payload, for copies of runs.
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

/// The exclusive end after a key of maximum length is one byte longer.
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

/// Value in place of the number of index blocks: index and filter are in the footer.
const IS_ENCLOSING: u32 = 1 << 31;

/// Maximum bytes of index and filter that are kept in memory with the footer: the footer alone takes about as
/// much, and a cached page takes eight times as much.
const KEPT_BYTES_MAX: usize = 512;

/// The only index block of a run and its filter, enclosed in the payload of its footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Enclosed {
    /// Page of the footer.
    page: u32,
    index_bytes: u16,
    /// 0 if there is no filter.
    filter_bytes: u16,
    /// Index block and filter, if they are small.
    kept: Option<Box<[u8]>>,
}

impl Enclosed {
    /// REQUIRES: `blocks` are the index block and the filter, contiguous.
    fn new(page: u32, index_bytes: u16, filter_bytes: u16, blocks: &[u8]) -> Self {
        debug_assert_eq!(
            blocks.len(),
            usize::from(index_bytes) + usize::from(filter_bytes),
            "index and filter are contiguous"
        );
        let kept = (blocks.len() <= KEPT_BYTES_MAX).then(|| blocks.into());
        Self { page, index_bytes, filter_bytes, kept }
    }

    /// Returns the index block at the end of a payload; empty if the payload belongs to another footer.
    #[inline]
    pub(crate) fn index_in<'p>(&self, payload: &'p [u8]) -> &'p [u8] {
        let bytes = usize::from(self.index_bytes) + usize::from(self.filter_bytes);
        let both = payload.len().checked_sub(bytes).map_or(&[][..], |start| &payload[start..]);
        both.get(..usize::from(self.index_bytes)).unwrap_or_default()
    }

    /// Returns the filter at the end of a payload; empty if the payload belongs to another footer.
    #[inline]
    pub(crate) fn filter_in<'p>(&self, payload: &'p [u8]) -> &'p [u8] {
        let start = payload.len().checked_sub(usize::from(self.filter_bytes));
        start.map_or(&[], |start| &payload[start..])
    }

    /// Returns index block and filter, if they are in memory.
    #[inline]
    pub(crate) fn kept(&self) -> Option<&[u8]> {
        self.kept.as_deref()
    }
}

/// Positions of a run's index blocks, with their separators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IndexBlocks {
    /// A single index block.
    Sole(BlockPosition),
    /// A single index block in the footer.
    Enclosed(Enclosed),
    /// Several, each with the separator before its first data block; the first separator is empty.
    Several(Box<[(Separator, BlockPosition)]>),
}

impl IndexBlocks {
    /// Creates it from blocks with the separators before them; the first separator is empty.
    pub(crate) fn of(blocks: Vec<(Separator, BlockPosition)>) -> Self {
        debug_assert!(blocks.first().is_some_and(|(first, _)| first.bytes.is_empty()), "no keys are before");
        match blocks[..] {
            [(_, position)] => Self::Sole(position),
            _ => Self::Several(blocks.into()),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.several().map_or(1, <[_]>::len)
    }

    /// Returns the position of block `number`: that of the footer if it is enclosed.
    #[inline]
    pub(crate) fn position(&self, number: usize) -> BlockPosition {
        match self {
            Self::Sole(position) => *position,
            Self::Enclosed(Enclosed { page, .. }) => BlockPosition { page: *page, pages: 1 },
            Self::Several(blocks) => blocks[number].1,
        }
    }

    /// Returns the separator before block `number`.
    pub(crate) fn separator(&self, number: usize) -> Separator {
        self.several().map_or_else(Separator::default, |blocks| blocks[number].0.clone())
    }

    /// Iterates over the positions of all blocks.
    pub(crate) fn positions(&self) -> impl Iterator<Item = BlockPosition> + '_ {
        (0..self.len()).map(|number| self.position(number))
    }

    /// Returns the blocks, if there are several.
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
    /// First filter page; the footer's page if it encloses the filter.
    pub(crate) filter_page: u32,
    pub(crate) filter_pages: u32,
    pub(crate) index: IndexBlocks,
}

impl Footer {
    /// Creates a footer in page `page` that encloses index and filter; returns it with its payload.
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

    /// Returns the enclosed index and filter, if any.
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

    /// Encodes a footer that encloses nothing.
    pub(crate) fn encode(&self, record: &RunRecord) -> Vec<u8> {
        debug_assert!(self.enclosed().is_none(), "an enclosing footer is encoded by `enclosing`");
        let mut out = Vec::new();
        record.encode(&mut out);
        debug_assert!(self.filter_page >= record.reference.data_pages, "the data comes first");
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

    /// Decodes a footer. Everything to which it points must be before it, according to its own reference.
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
            return Err(Damage("the footer does not match its run"));
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
            return Err(Damage("the first index block starts after the first key"));
        }
        Ok((record, Self { filter_page, filter_pages, index: IndexBlocks::of(index) }))
    }

    /// Decodes the lengths after [`IS_ENCLOSING`], but not the blocks themselves.
    fn decode_enclosed(reference: &RunRef, mut reader: Reader<'_>) -> Result<Self, Damage> {
        let (index, filter) = (reader.u32()?, reader.u32()?);
        let is_all = u64::from(index) + u64::from(filter) == u64_of(reader.rest().len());
        let (Ok(index), Ok(filter), true) = (u16::try_from(index), u16::try_from(filter), is_all) else {
            return Err(Damage("a footer does not end with its index and filter"));
        };
        if index == 0 || reference.data_pages != reference.footer_page || reference.footer_pages != 1 {
            return Err(Damage("the footer does not match its run"));
        }
        Ok(Self::of_enclosed(Enclosed::new(reference.footer_page, index, filter, reader.rest())))
    }

    /// Returns the index blocks that may cover `key`: those whose cut separators leave it undecided, and the
    /// one before them.
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
