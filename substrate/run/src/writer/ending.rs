//! The end of a run: index, filter and footer; and freeing unused space.
//!
//! If index and filter of a small run fit into the page of its footer, they are stored there (decision 0055).
//! Otherwise they have separate pages before it.
//!
//! **Invariants**
//! - The footer contains the run's whole reference, including the footer's own position.

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use testudo_base::{
    Entry, Error, ExtentSpan, Kind, PAGE_SIZE, Result,
    num::{u32_of, u64_of},
};
use testudo_storage::{PAGE_HEADER_BYTES, PageKind};

use super::{RunWriter, written_index::EncodedBlock};
use crate::{
    KeyBounds, KeyEnds, Run, RunRecord, RunRef,
    format::slot_group::{GROUP_PAGES, GROUP_SPARES},
    format::{
        block::SLOT_BYTES,
        builder::{BlockBuilder, PAGE_PAYLOAD_BYTES},
        footer::{BlockPosition, Footer, IndexBlocks},
        long_separators::{Fork, Separator},
    },
};

/// Minimum bytes of an index entry: a slot, two lengths, and page and page count of the data block.
const INDEX_ENTRY_BYTES_MIN: usize = SLOT_BYTES + 2 + 8;

impl RunWriter {
    fn write_index(&mut self) -> Result<Vec<(Separator, BlockPosition)>> {
        let mut top: Vec<(Separator, BlockPosition)> = Vec::new();
        let mut block = BlockBuilder::default();
        let mut first: Option<Separator> = None;
        // Fork from the first to the last entry of the open index block.
        let mut way: Option<Fork> = None;
        let mut index = std::mem::take(&mut self.index);
        index.each(|EncodedBlock { separator, entry, fork }| {
            let entry = Entry { key: separator, kind: Kind::Value, value: entry };
            way = match (way, fork) {
                (Some(way), Some(fork)) => Some(way.then(fork)),
                (_, fork) => fork,
            };
            if !block.push(&entry) {
                top.push((
                    first.take().unwrap_or_default(),
                    self.write_block_of(PageKind::Index, &mut block)?,
                ));
                block.push(&entry);
            }
            if first.is_none() {
                first = Some(Separator { bytes: separator.to_vec(), fork: way.filter(|_| fork.is_some()) });
                way = None;
            }
            Ok(())
        })?;
        if let Some(first) = first {
            top.push((first, self.write_block_of(PageKind::Index, &mut block)?));
        }
        debug_assert!(!top.is_empty(), "a run with entries has an index");
        Ok(top)
    }

    fn write_filter(&mut self) -> Result<(u32, u32)> {
        let hashes = std::mem::take(&mut self.hashes);
        let first = self.next_page;
        testudo_filter::build(&hashes, |partition| {
            self.write_block(PageKind::Filter, partition).map(|_| ())
        })?;
        debug_assert!(self.next_page > first, "a filter has a partition");
        Ok((first, self.next_page - first))
    }

    /// Writes the rest and returns the run. Durable after the data file is synced. `covered_range` is that of
    /// [`RunRecord`].
    ///
    /// REQUIRES: at least one entry was pushed.
    pub fn finish(self, covered_range: Option<KeyBounds>) -> Result<Arc<Run>> {
        self.finish_as(covered_range, false)
    }

    /// Like [`RunWriter::finish`], for a run of values to which other runs refer.
    pub fn finish_value_segment(self) -> Result<Arc<Run>> {
        self.finish_as(None, true)
    }

    fn finish_as(mut self, covered_range: Option<KeyBounds>, is_value_segment: bool) -> Result<Arc<Run>> {
        if self.entries == 0 {
            return Err(Error::invalid("a run needs at least one entry"));
        }
        debug_assert!(self.tombstones <= self.entries, "tombstones must be entries");
        self.finish_block()?;
        debug_assert_eq!(
            u64::from(self.next_page - self.spare_end / GROUP_PAGES * GROUP_SPARES) * u64_of(PAGE_SIZE),
            self.data_bytes,
            "data blocks must come first"
        );
        let mut record = self.record(covered_range, is_value_segment);
        // Values are only looked up if they exist, and a sole key is already in the reference.
        let is_known = self.entries == 1 && !record.reference.keys.first_is_cut();
        let has_filter = self.layout.has_filter && !is_value_segment && !is_known;
        let footer = if let Some(footer) = self.write_all_in_footer(&mut record, has_filter)? {
            footer
        } else {
            let index = self.write_index()?;
            let (filter_page, filter_pages) =
                if has_filter { self.write_filter()? } else { (self.next_page, 0) };
            let index = IndexBlocks::of(index);
            let footer = Footer { filter_page, filter_pages, index };
            self.write_footer(&footer, &mut record)?;
            footer
        };
        self.write_rest()?;
        self.cut_space();
        for (page, kind, bytes) in std::mem::take(&mut self.admitted) {
            self.data.admit(&self.address(kind, page), &bytes);
        }
        Ok(Arc::new(Run::written(self.data, record.reference, self.extents, footer)))
    }

    /// Describes the run, without the position of its footer. REQUIRES: all data is written.
    fn record(&self, covered_range: Option<KeyBounds>, is_value_segment: bool) -> RunRecord {
        RunRecord {
            store: self.data.store(),
            reference: RunRef {
                id: self.origin.id,
                keyspace: self.origin.keyspace,
                incarnation: self.incarnation,
                newest_seqno: self.origin.newest_seqno,
                spans: Vec::new(),
                data_pages: self.next_page,
                spare_end: self.spare_end,
                footer_page: 0,
                footer_pages: 0,
                entries: self.entries,
                tombstones: self.tombstones,
                user_bytes: self.user_bytes,
                keys: KeyEnds::of(&self.first_key, &self.previous_key),
                has_continued_values: self.has_continued_values,
                replaced: None,
            },
            keyspace_name: self.origin.keyspace_name.as_ref().to_owned(),
            covered_range,
            is_value_segment,
        }
    }

    /// Sets the footer's position in the run's reference, which the footer contains.
    fn place_footer(&mut self, record: &mut RunRecord, pages: usize) -> Result<()> {
        self.take_space(pages)?;
        record.reference.footer_page = self.next_page;
        record.reference.footer_pages = u32_of(pages);
        debug_assert!(self.next_page >= record.reference.data_pages, "the footer is behind the data");
        record.reference.spans = self.spans_of(self.next_page + u32_of(pages));
        Ok(())
    }

    /// Writes a footer that encloses index and filter; `None` if they do not fit into its page.
    fn write_all_in_footer(&mut self, record: &mut RunRecord, has_filter: bool) -> Result<Option<Footer>> {
        let keys = u64_of(self.hashes.len());
        let filter_bytes = if has_filter { testudo_filter::bytes(keys) } else { 0 };
        // Lower bound of the bytes per index entry.
        let bytes = u64_of(self.index.len() * INDEX_ENTRY_BYTES_MIN) + filter_bytes;
        if bytes > u64_of(PAGE_PAYLOAD_BYTES) || self.data.small_runs_apart().load(Relaxed) {
            return Ok(None);
        }
        let Some(mut index) = self.sole_index_block() else { return Ok(None) };
        let mut filter = Vec::new();
        if has_filter {
            let Ok(_) = testudo_filter::build(&self.hashes, |partition| {
                filter.extend_from_slice(partition);
                Ok::<_, Infallible>(())
            });
        }
        self.place_footer(record, 1)?;
        let mut block = vec![0; index.payload_bytes()];
        let length = index.encode_into(&mut block);
        let (footer, payload) = Footer::enclosing(self.next_page, record, &block[..length], &filter);
        if payload.len() > PAGE_PAYLOAD_BYTES {
            return Ok(None);
        }
        debug_assert_eq!(record.reference.footer_page, record.reference.data_pages, "nothing is between");
        self.write_block_in(PageKind::Footer, &payload, 1)?;
        if !footer.keeps_structure() {
            let page = self.buffered().last_chunk::<PAGE_SIZE>().expect("a page fits into the buffer");
            self.admitted.push((footer.filter_page, PageKind::Footer, page.to_vec()));
        }
        Ok(Some(footer))
    }

    /// Encodes the whole index, if it fits into one block.
    fn sole_index_block(&mut self) -> Option<BlockBuilder> {
        let (mut block, mut fits) = (BlockBuilder::default(), true);
        self.index
            .each(|EncodedBlock { separator, entry, .. }| {
                fits = fits && block.push(&Entry { key: separator, kind: Kind::Value, value: entry });
                Ok(())
            })
            .ok()?;
        fits.then_some(block)
    }

    /// Writes the footer.
    fn write_footer(&mut self, footer: &Footer, record: &mut RunRecord) -> Result<()> {
        // More pages may mean more spans, and so a longer footer.
        let mut pages = 1;
        loop {
            self.place_footer(record, pages)?;
            let payload = footer.encode(record);
            let needed = (payload.len() + PAGE_HEADER_BYTES).div_ceil(PAGE_SIZE);
            if needed <= pages {
                self.write_block_in(PageKind::Footer, &payload, pages)?;
                return Ok(());
            }
            pages = needed;
        }
    }

    /// Spans of the first `pages` allocated pages.
    fn spans_of(&self, pages: u32) -> Vec<ExtentSpan> {
        let mut left = pages;
        let mut spans = Vec::new();
        for span in self.extents.iter().map(|extent| extent.span()) {
            let page_count = span.page_count.min(left);
            if page_count > 0 {
                spans.push(ExtentSpan { page_count, ..span });
            }
            left -= page_count;
        }
        debug_assert_eq!(left, 0, "space must be allocated");
        spans.shrink_to_fit();
        spans
    }

    /// Frees the allocated pages that were not needed.
    fn cut_space(&mut self) {
        let mut needed = self.next_page;
        let table = Arc::clone(self.data.extents());
        let taken = std::mem::take(&mut self.extents);
        for (number, extent) in taken.into_iter().enumerate() {
            if needed == 0 {
                break;
            }
            let pages = extent.span().page_count.min(needed);
            let is_referred = number < self.referred_extents && pages < extent.span().page_count;
            let kept =
                if is_referred { table.shorten_later(&extent, pages) } else { table.shorten(extent, pages) };
            self.extents.push(kept);
            needed -= pages;
        }
        debug_assert_eq!(needed, 0, "space must be allocated");
        self.extents.shrink_to_fit();
    }
}
