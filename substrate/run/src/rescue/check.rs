//! Checks the contents of a run: order, counts, positions, and that filter and index lead to every key. Forks
//! must also be correct for keys that the run does not hold.
//!
//! **Invariants**
//! - Fails with the first inconsistency, as `Corruption`.

use testudo_base::{
    Cursor, Error, ErrorKind, Result, ValueReference, codec::Damage, operands_format::check_value, sync::Arc,
};

use crate::{
    Access, ReadAhead, Run, RunCursor,
    format::{find_block::IndexedBlock, footer::BlockPosition, long_separators::Fork},
    structure::Structure,
};

impl Run {
    /// Checks the internal consistency of the filter's partitions.
    pub fn check_filters(&self) -> Result<()> {
        let footer = self.footer()?;
        for page in footer.filter_page..footer.filter_page + footer.filter_pages {
            let position = BlockPosition { page, pages: 1 };
            let checked =
                self.with_structure(Structure::Filter, position, Access::Blocking, testudo_filter::check)?;
            checked.unwrap_or(Ok(())).map_err(|damage| self.damaged(page, damage))?;
        }
        Ok(())
    }

    /// Checks the forks of cut separators against the blocks that they separate.
    pub fn check_forks(&self) -> Result<()> {
        let (mut before, mut top_before) = (None, None);
        let index = &self.footer()?.index;
        for (number, at) in index.positions().enumerate() {
            let separator = index.separator(number);
            for (slot, block) in self.index_entries(at)?.into_iter().enumerate() {
                let IndexedBlock { separator: key, position, fork } = block;
                let top = Some(&separator).filter(|_| slot == 0);
                if top.is_some_and(|top| top.fork.is_some() != fork.is_some()) {
                    return Err(
                        self.damaged(at.page, Damage("an index block does not start where its footer says"))
                    );
                }
                let Some(fork) = fork else {
                    before = None;
                    top_before = top_before.filter(|_| slot > 0);
                    continue;
                };
                let first = self.first_key_of(position)?;
                let mut is_right = first.starts_with(&key) && parts(&before, &key, &first, fork);
                if let Some((bytes, fork)) = top.and_then(|top| Some((&top.bytes, top.fork?))) {
                    is_right &= *bytes == key && parts(&top_before, &key, &first, fork);
                    top_before = Some((key.clone(), first.clone()));
                }
                if !is_right {
                    return Err(self.damaged(at.page, Damage("a fork does not match its blocks")));
                }
                before = Some((key, first));
            }
        }
        Ok(())
    }

    /// Reads all entries and checks that keys increase, that first and last key and counts match the
    /// reference, that the filter excludes none, and that index and blocks lead to each. Returns how many
    /// refer to long values, which are in no segment.
    pub fn check_entries(self: &Arc<Self>) -> Result<u64> {
        let reference = self.reference();
        let broken =
            |what: &str| Err(Error::new(ErrorKind::Corruption, format!("data: run {} {what}", reference.id)));
        let mut cursor = RunCursor::new(Arc::clone(self), ReadAhead::bytes(256 << 10));
        let (mut entries, mut previous): (u64, Option<Vec<u8>>) = (0, None);
        let mut refer_to_long_values = 0;
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            if previous.as_deref().is_some_and(|previous| previous >= entry.key) {
                return broken("has keys that do not increase");
            }
            if entries == 0 && !reference.keys.can_begin_with(entry.key) {
                return broken("does not start with its stated first key");
            }
            if check_value(entry.kind, entry.value).is_err() {
                return broken("has an entry with malformed operands");
            }
            self.check_filter(entry.key)?;
            if !cursor.is_lookup_position()? {
                return broken("has an entry that lookups do not find");
            }
            let previous = previous.get_or_insert_default();
            previous.clear();
            previous.extend_from_slice(entry.key);
            entries += 1;
            refer_to_long_values += u64::from(ValueReference::is_to_long_value(entry.kind, entry.value));
            cursor.next()?;
        }
        self.check_forks()?;
        if entries != reference.entries {
            return broken("does not have its stated number of entries");
        }
        if !previous.is_some_and(|last| reference.keys.can_end_with(&last)) {
            return broken("does not end with its stated last key");
        }
        Ok(refer_to_long_values)
    }
}

/// Whether a fork matches the previous separator and first key `before`; after a different separator it is
/// not checked.
fn parts(before: &Option<(Vec<u8>, Vec<u8>)>, separator: &[u8], first: &[u8], fork: Fork) -> bool {
    before.as_ref().is_none_or(|(other, before)| other != separator || fork == Fork::between(before, first))
}
