//! Decodes the payload of one page or block, without its run, into human-readable form.
//!
//! **Invariants**
//! - Never fails completely: returns everything that can be decoded, and the reason why the rest cannot.

use testudo_base::{Entry, OwnedEntry, codec::Damage};
use testudo_storage::PageKind;

use crate::{
    MapPage, RunRecord,
    format::{
        block::{Block, IndexEntry},
        footer::Footer,
    },
};

/// Decoded contents of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockContents {
    /// Entries of a data block, in order, and the number of bytes of the last value in following pages.
    Entries(Vec<OwnedEntry>, usize),
    /// Data blocks of an index block: separator, first page and pages, counted from the start of the run.
    Index(Vec<(Vec<u8>, u32, u32)>),
    /// A partition of a filter of this many bytes.
    Filter(usize),
    /// Description of the run, the separators of its index blocks with page and pages, and index and filter,
    /// if they are enclosed in the footer.
    Footer(Box<RunRecord>, Vec<(Vec<u8>, u32, u32)>, Option<EnclosedContents>),
    /// Replaced pages of a run.
    Map(Box<MapPage>),
    /// Nothing that could be decoded.
    Nothing,
}

/// Index and filter enclosed in a footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnclosedContents {
    /// As in [`BlockContents::Index`].
    pub blocks: Vec<(Vec<u8>, u32, u32)>,
    /// As in [`BlockContents::Filter`]; 0 if there is none.
    pub filter_bytes: usize,
}

/// Decodes the payload of a block of this kind; returns the reason if that ended early, too.
pub fn inspect_block(kind: PageKind, payload: &[u8]) -> (BlockContents, Option<&'static str>) {
    let mut damage = None;
    let contents = match kind {
        PageKind::Data | PageKind::Replaced => {
            let mut entries = Vec::new();
            damage = visit(payload, false, |entry| {
                entries.push(entry.to_owned());
                Ok(())
            });
            let continued = Block::parse(payload).and_then(|block| block.continued_bytes());
            BlockContents::Entries(entries, continued.unwrap_or_default())
        }
        PageKind::Index => {
            let (blocks, why) = indexed_blocks(payload);
            damage = why;
            BlockContents::Index(blocks)
        }
        PageKind::Filter => {
            damage = testudo_filter::check(payload).err().map(|damage| damage.0);
            BlockContents::Filter(payload.len())
        }
        PageKind::Map => match MapPage::read(payload) {
            Ok(map) => BlockContents::Map(Box::new(map)),
            Err(Damage(why)) => {
                damage = Some(why);
                BlockContents::Nothing
            }
        },
        PageKind::Footer => match Footer::decode(payload) {
            Ok((record, footer)) => {
                let index = footer.index.positions().enumerate();
                let index =
                    index.map(|(number, at)| (footer.index.separator(number).bytes, at.page, at.pages));
                let index = index.collect();
                let enclosed = footer.enclosed().map(|enclosed| {
                    let filter = enclosed.filter_in(payload);
                    let (blocks, why) = indexed_blocks(enclosed.index_in(payload));
                    let of_filter = || testudo_filter::check(filter).err().map(|Damage(why)| why);
                    damage = why.or_else(|| if filter.is_empty() { None } else { of_filter() });
                    EnclosedContents { blocks, filter_bytes: filter.len() }
                });
                BlockContents::Footer(Box::new(record), index, enclosed)
            }
            Err(Damage(why)) => {
                damage = Some(why);
                BlockContents::Nothing
            }
        },
    };
    (contents, damage)
}

/// Separator, first page and pages of a block, counted from the start of the run.
type Place = (Vec<u8>, u32, u32);

/// Decodes the data blocks of an index block.
fn indexed_blocks(payload: &[u8]) -> (Vec<Place>, Option<&'static str>) {
    let mut blocks = Vec::new();
    let damage = visit(payload, true, |entry| {
        let position = IndexEntry::decode(entry.value)?.position;
        blocks.push((entry.key.to_vec(), position.page, position.pages));
        Ok(())
    });
    (blocks, damage)
}

/// Calls `act` for the entries of a block up to the first that cannot be decoded or is out of order.
fn visit(
    payload: &[u8],
    may_repeat: bool,
    mut act: impl FnMut(Entry<'_>) -> Result<(), Damage>,
) -> Option<&'static str> {
    let mut previous: Option<Vec<u8>> = None;
    let mut walk = || {
        let block = Block::parse(payload)?;
        for index in 0..block.count() {
            let cell = block.cell(index)?;
            let key = [block.prefix(), cell.suffix].concat();
            // Cut separators may be equal.
            let is_out_of_order = |previous: &Vec<u8>| *previous > key || (*previous == key && !may_repeat);
            if previous.as_ref().is_some_and(is_out_of_order) {
                return Err(Damage("keys do not increase"));
            }
            act(Entry { key: &key, kind: cell.kind, value: cell.value })?;
            previous = Some(key);
        }
        Ok(())
    };
    walk().err().map(|Damage(why)| why)
}
