//! Conversion of entries as they are written: operands become values where possible, and values are placed.
//!
//! **Invariants**
//! - Drops are reported once for entries that end, and for those that others are made of.

use testudo_base::{
    DropSink, Entry, Error, ErrorKind, Kind, MergeDrops, Result, Seqno, ValueReference, codec::Damage,
    operands_format::with_value_read, planted,
};
use testudo_contract::{Height, PlaceValues, Work};

/// Converts the entries of one unit of work, in key order.
pub(crate) struct Resolver<'w> {
    work: &'w Work,
    /// Nothing older is below the output.
    is_leaf: bool,
    pub(crate) drops: MergeDrops,
    /// Moves values out of the runs, or back into them.
    placing: Option<Box<dyn PlaceValues>>,
}

impl<'w> Resolver<'w> {
    /// Creates a resolver for output with seqno `newest_seqno`.
    pub(crate) fn new(work: &'w Work, newest_seqno: Seqno, height: Height) -> Self {
        let placing = work.values.as_ref().map(|values| values.placing(newest_seqno, height));
        Self { work, is_leaf: height == Height::Bottom, drops: MergeDrops::default(), placing }
    }

    /// Creates a resolver for page updates of a bottom run, which may be abandoned: no value
    /// is separated.
    pub(crate) fn in_pages(work: &'w Work, newest_seqno: Seqno) -> Self {
        let placing = work.values.as_ref().map(|values| values.placing_in_pages(newest_seqno));
        Self { work, is_leaf: true, drops: MergeDrops::default(), placing }
    }

    /// Returns the replacement of operands; `None` if they are written as they are.
    ///
    /// Errors: those of reading a value that operands apply to.
    pub(crate) fn resolve_operands(&mut self, entry: &Entry<'_>) -> Result<Option<(Kind, Vec<u8>)>> {
        let resolved = match entry.kind {
            Kind::Value | Kind::Tombstone | Kind::Reference | Kind::Referred => None,
            Kind::Operands | Kind::Unmerged => self.work.full_merge.try_full_merge(entry, self.is_leaf),
            Kind::UnmergedReference => {
                let unmerged = self.read_value_of(entry)?;
                let unmerged = unmerged.as_ref().map(|value| Entry { kind: Kind::Unmerged, value, ..*entry });
                unmerged.and_then(|unmerged| self.work.full_merge.try_full_merge(&unmerged, true))
            }
        };
        if let Some((kind, value)) = &resolved {
            self.drops.dropped(entry);
            self.drops.made(&Entry { kind: *kind, value, ..*entry });
        }
        Ok(resolved)
    }

    /// Reads the value that operands refer to, if there is an operator to merge them. Never reads long
    /// values, which are in no segment.
    fn read_value_of(&self, entry: &Entry<'_>) -> Result<Option<Vec<u8>>> {
        let Some(values) = self.work.values.as_ref().filter(|_| self.work.full_merge.has_operator()) else {
            return Ok(None);
        };
        let damaged = |Damage(why)| Error::new(ErrorKind::Corruption, format!("an unmerged entry: {why}"));
        let (reference, _) = ValueReference::split(entry.value).map_err(damaged)?;
        if !reference.is_in_segment() {
            return Ok(None);
        }
        let value = values.read(entry.key, &reference)?;
        with_value_read(entry.value, &value).map(Some).map_err(damaged)
    }

    /// Calls `write` with the entry to write for `entry`.
    pub(crate) fn write(
        &mut self,
        entry: &Entry<'_>,
        write: impl FnOnce(&Entry<'_>) -> Result<()>,
    ) -> Result<()> {
        let placed = self.placing.as_mut().map_or(Ok(None), |placing| placing.place(entry))?;
        let written = placed.map_or(*entry, |(kind, value)| Entry { kind, value, ..*entry });
        if written.kind != Kind::Reference && entry.kind == Kind::Reference {
            note_came_back(&mut self.drops, entry);
        }
        write(&written)
    }

    /// Records that the value of this reference entry is written with its key.
    pub(crate) fn note_came_back(&mut self, entry: &Entry<'_>) {
        note_came_back(&mut self.drops, entry);
    }
}

fn note_came_back(drops: &mut MergeDrops, entry: &Entry<'_>) {
    if !planted!("value-that-came-back-lives-on") {
        drops.note_reference(entry);
    }
}
