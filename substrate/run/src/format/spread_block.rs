//! A look-up in a block of several pages that are apart in the cache: only the pages that it needs are looked
//! at, and nothing is copied but the value.
//!
//! **Invariants**
//! - As in one piece: a block that contradicts itself is [`Damage`], never a panic.

use std::borrow::Cow;

use testudo_base::{
    Kind,
    codec::{Damage, Reader},
    num::usize_of,
};
use testudo_storage::{CachedBlock, payload_of};

use crate::format::block::{Block, kind_of_byte, kind_of_code};

/// Bytes of two varints and a kind byte, at most.
const CELL_HEAD_BYTES_MAX: usize = 21;

/// Why a look-up gave no answer.
#[derive(Debug)]
enum Obstacle {
    /// A page is not in the cache.
    Missing,
    Damage(Damage),
}

impl From<Damage> for Obstacle {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

/// The head of a cell.
struct CellHead {
    kind: Kind,
    suffix_from: usize,
    suffix_bytes: usize,
    value_bytes: usize,
}

/// Cells by their place in the payload.
struct Cells<'a, 'c> {
    cached: &'a CachedBlock<'c>,
    /// Of the payload.
    end: usize,
}

impl Cells<'_, '_> {
    fn part(&self, from: usize, length: usize) -> Result<Cow<'_, [u8]>, Obstacle> {
        if from.checked_add(length).is_none_or(|end| end > self.end) {
            return Err(Damage("a cell is outside its block").into());
        }
        self.cached.part(from, length).ok_or(Obstacle::Missing)
    }

    fn head(&self, block: &Block<'_>, slot: usize) -> Result<CellHead, Obstacle> {
        let (_, offset) = block.slot(slot).ok_or(Damage("a slot is missing"))?;
        let from = block.cells_start() + offset;
        let length = self.end.saturating_sub(from).min(CELL_HEAD_BYTES_MAX);
        let bytes = self.part(from, length)?;
        let mut reader = Reader::new(&bytes);
        let (suffix_and_code, value_bytes) = (reader.varint()?, reader.varint()?);
        let kind = if block.has_kind_byte(suffix_and_code) {
            kind_of_byte(reader.u8()?)?
        } else {
            kind_of_code(suffix_and_code)
        };
        let suffix_from = from + length - reader.rest().len();
        let (suffix_bytes, value_bytes) = (usize_of(suffix_and_code >> 2), usize_of(value_bytes));
        Ok(CellHead { kind, suffix_from, suffix_bytes, value_bytes })
    }
}

/// What the block has of `key`, and at which slot: `None` if it does not have it. The outer `None`: a page
/// that is needed is not in the cache.
pub(crate) fn look_up(
    cached: &CachedBlock<'_>,
    key: &[u8],
) -> Result<Option<Option<(Kind, Vec<u8>, usize)>>, Damage> {
    match search(cached, key) {
        Ok(found) => Ok(Some(found)),
        Err(Obstacle::Missing) => Ok(None),
        Err(Obstacle::Damage(damage)) => Err(damage),
    }
}

fn search(cached: &CachedBlock<'_>, key: &[u8]) -> Result<Option<(Kind, Vec<u8>, usize)>, Obstacle> {
    let end = cached.payload_bytes().ok_or(Obstacle::Missing)?;
    let first = cached.first_page().ok_or(Obstacle::Missing)?;
    let mut whole = Vec::new();
    let block = match Block::parse(payload_of(first)) {
        Ok(block) => block,
        // What all keys share is longer than a page: rare.
        Err(_) if cached.copy_payload(&mut whole) => Block::parse(&whole)?,
        Err(_) => return Err(Obstacle::Missing),
    };
    let cells = Cells { cached, end };
    let (slot, is_equal) = block.lower_bound_by(key, |slot, suffix| {
        let head = cells.head(&block, slot)?;
        Ok::<_, Obstacle>((*cells.part(head.suffix_from, head.suffix_bytes)?).cmp(suffix))
    })?;
    if !is_equal {
        return Ok(None);
    }
    let head = cells.head(&block, slot)?;
    let value = cells.part(head.suffix_from.saturating_add(head.suffix_bytes), head.value_bytes)?;
    Ok(Some((head.kind, value.into_owned(), slot)))
}
