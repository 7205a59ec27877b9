//! The payload of one page or block, without the run that it belongs to, in human-readable form.
//!
//! **Invariants**
//! - Never fails as a whole: what can be decoded is given, with the reason why the rest cannot.

use testudo_base::{Entry, OwnedEntry, codec::Damage};
use testudo_storage::PageKind;

use crate::{
    RunRecord,
    format::{
        block::{Block, IndexEntry},
        footer::Footer,
    },
};

/// What a block holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockContents {
    /// Entries of a data block, in their order, and how many bytes of the last value are in the next page.
    Entries(Vec<OwnedEntry>, usize),
    /// Data blocks of an index block: separator, first page and pages, counted from the start of the run.
    Index(Vec<(Vec<u8>, u32, u32)>),
    /// A partition of a filter of this many bytes.
    Filter(usize),
    /// What the run says about itself, and the separators of its index blocks with page and pages.
    Footer(Box<RunRecord>, Vec<(Vec<u8>, u32, u32)>),
    /// Nothing that could be decoded.
    Nothing,
}

/// Decodes the payload of a block of this kind; the reason where that ended too early.
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
            let mut blocks = Vec::new();
            damage = visit(payload, true, |entry| {
                let position = IndexEntry::decode(entry.value)?.position;
                blocks.push((entry.key.to_vec(), position.page, position.pages));
                Ok(())
            });
            BlockContents::Index(blocks)
        }
        PageKind::Filter => {
            damage = testudo_filter::check(payload).err().map(|damage| damage.0);
            BlockContents::Filter(payload.len())
        }
        PageKind::Footer => match Footer::decode(payload) {
            Ok((record, footer)) => {
                let index = footer.index.into_iter();
                let index = index.map(|(separator, at)| (separator.bytes, at.page, at.pages)).collect();
                BlockContents::Footer(Box::new(record), index)
            }
            Err(Damage(why)) => {
                damage = Some(why);
                BlockContents::Nothing
            }
        },
    };
    (contents, damage)
}

/// Hands on every entry of a block up to the first that does not decode or is out of order.
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
            // Separators that were cut may be equal.
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
