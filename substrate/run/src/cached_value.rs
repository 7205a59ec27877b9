//! Cached values of several pages: copied once, from the cache's frames into the result.
//!
//! **Invariants**
//! - The cache holds verified pages only, so they are not verified again.
//! - Anything missing or inconsistent yields `None`: the read path that loads the pages then decides.

use std::ops::Deref;

use testudo_base::{PAGE_SIZE, Result, num::usize_of};
use testudo_storage::{Neighbours, PAGE_HEADER_BYTES, PageKind, payload_of};

use crate::{
    Lookup, Run,
    format::{
        block::{Block, Spread},
        footer::BlockPosition,
    },
};

impl Run {
    /// Looks `key` up in these pages, if all of them are cached.
    #[cold]
    pub(crate) fn search_cached(
        &self,
        pages: BlockPosition,
        spread: Spread,
        key: &[u8],
    ) -> Result<Option<Lookup>> {
        let generation = self.address(PageKind::Data, pages.page)?.generation;
        let spans = self.block_spans(pages)?;
        let Some(mut cached) = self.data().cached_pages(&spans, generation) else { return Ok(None) };
        let bytes_max = usize_of(u64::from(pages.pages)) * PAGE_SIZE;
        Ok(look_up(|| cached.next().flatten(), (spread, bytes_max), key))
    }
}

/// Looks `key` up in the pages returned by `next` in order. `bytes_max` bounds the value.
fn look_up<P: Deref<Target = [u8]>>(
    mut next: impl FnMut() -> Option<P>,
    (spread, bytes_max): (Spread, usize),
    key: &[u8],
) -> Option<Lookup> {
    let first = next()?;
    let payload = match spread {
        Spread::Block => first.get(PAGE_HEADER_BYTES..)?,
        Spread::Continued => payload_of(&first),
    };
    let block = Block::parse(payload).ok()?;
    let (index, is_equal) = block.lower_bound(key).ok()?;
    if !is_equal {
        return Some(Lookup::Absent);
    }
    let cell = match spread {
        Spread::Block => block.cut_cell(index),
        Spread::Continued => block.cell(index),
    };
    let cell = cell.ok().filter(|cell| cell.continued_bytes <= bytes_max)?;
    let mut value = Vec::with_capacity(cell.value.len() + cell.continued_bytes);
    value.extend_from_slice(cell.value);
    let mut left = cell.continued_bytes;
    while left > 0 {
        let page = next()?;
        let part = match spread {
            Spread::Block => page.get(..left.min(PAGE_SIZE))?,
            Spread::Continued => Block::parse(payload_of(&page)).ok()?.continuation(left).ok()?,
        };
        value.extend_from_slice(part);
        left -= part.len();
    }
    Some(Lookup::Found(cell.kind, value, Neighbours::default()))
}
