//! The footer of a run: where its index and filter are, and the top of the index.
//!
//! Payload, little-endian: index blocks u32 · first filter page u32 · filter pages u32 · then per index block its page
//! u32, its pages u32 and its first separator (u32 length and bytes).

use testudo_base::{
    MAX_KEY_BYTES,
    codec::{self, Damage, Reader},
    num::{u32_of, usize_of},
};

/// A block of the run, in pages from the run's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPosition {
    pub(crate) page: u32,
    pub(crate) pages: u32,
}

/// The decoded footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) filter_page: u32,
    pub(crate) filter_pages: u32,
    /// Index blocks with the separator before their first data block; the first one's is empty.
    pub(crate) index: Vec<(Vec<u8>, BlockPosition)>,
}

impl Footer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        codec::put_u32(&mut out, u32_of(self.index.len()));
        codec::put_u32(&mut out, self.filter_page);
        codec::put_u32(&mut out, self.filter_pages);
        for (separator, position) in &self.index {
            codec::put_u32(&mut out, position.page);
            codec::put_u32(&mut out, position.pages);
            codec::put_bytes(&mut out, separator);
        }
        out
    }

    /// `limit_page` is the footer's own page: everything it points at lies before.
    pub(crate) fn decode(payload: &[u8], data_pages: u32, limit_page: u32) -> Result<Self, Damage> {
        let mut reader = Reader::new(payload);
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
            index.push((reader.bytes(MAX_KEY_BYTES)?.to_vec(), position));
        }
        reader.finish()?;
        if index.is_empty() {
            return Err(Damage("a run without an index"));
        }
        Ok(Self { filter_page, filter_pages, index })
    }

    /// The index block that covers `key`.
    pub(crate) fn index_block_for(&self, key: &[u8]) -> usize {
        self.index.partition_point(|(separator, _)| separator.as_slice() <= key).saturating_sub(1)
    }
}
