//! Writing a whole range of keys as runs of the bottom of a tree that has nothing there yet.
//!
//! Values that move back to their keys are scattered: many are read in one batch, ahead of the runs.
//!
//! **Invariants**
//! - The runs cover the whole range, even if it has no key: an obsolete run may still have some.

use testudo_base::{Cursor, Entry, Kind, PAGE_BYTES, Result, Seqno, ValueReference, num::u64_of, planted};
use testudo_contract::{Height, Work};
use testudo_run::{KeyBounds, RunLayout};

use crate::{FencedRun, RunSequence, SequenceOrigin};

/// Batch size for reading values that move back, in bytes …
const AHEAD_BYTES: u64 = 256 << 10;
/// … and in entries.
const AHEAD_ENTRIES: usize = 1024;

/// The runs being written.
struct Writing<'w> {
    runs: RunSequence<'w>,
    target: u64,
}

impl Writing<'_> {
    fn push(&mut self, entry: &Entry<'_>) -> Result<()> {
        let resolved = self.runs.resolve_operands(entry)?;
        let entry = match &resolved {
            None => *entry,
            Some((kind, value)) => Entry { kind: *kind, value, ..*entry },
        };
        self.runs.push(&entry)?;
        self.runs.report(u64_of(entry.user_bytes()));
        let open_bytes = self.runs.open_bytes();
        if open_bytes >= PAGE_BYTES && open_bytes + PAGE_BYTES > self.target {
            self.runs.cut();
        }
        Ok(())
    }
}

/// Entries that wait for values to be read, or behind such entries.
#[derive(Default)]
struct Ahead {
    entries: Vec<Waiting>,
    value_bytes: u64,
}

/// A waiting entry.
struct Waiting {
    key: Vec<u8>,
    kind: Kind,
    value: Vec<u8>,
    comes_back: Option<ValueReference>,
}

impl Ahead {
    fn take(&mut self, entry: &Entry<'_>, comes_back: Option<ValueReference>) {
        let own_bytes = u64_of(entry.value.len());
        self.value_bytes += comes_back.map_or(own_bytes, |reference| u64::from(reference.length));
        let (key, value) = (entry.key.to_vec(), entry.value.to_vec());
        self.entries.push(Waiting { key, kind: entry.kind, value, comes_back });
    }

    fn is_full(&self) -> bool {
        self.value_bytes >= AHEAD_BYTES || self.entries.len() >= AHEAD_ENTRIES
    }

    /// Writes all waiting entries.
    fn write(&mut self, work: &Work, writing: &mut Writing<'_>) -> Result<()> {
        let Self { entries, .. } = std::mem::take(self);
        let wanted: Vec<(&[u8], ValueReference)> = entries
            .iter()
            .filter_map(|waiting| waiting.comes_back.map(|reference| (waiting.key.as_slice(), reference)))
            .collect();
        let values =
            work.values.as_ref().map_or_else(|| Ok(Vec::new()), |values| values.read_together(&wanted))?;
        debug_assert_eq!(values.len(), wanted.len(), "each reference has its value");
        let shift = usize::from(planted!("values-that-come-back-shifted") && values.len() > 2);
        let mut values = values.iter().cycle().skip(shift);
        for Waiting { key, kind, value, comes_back } in &entries {
            let entry = Entry { key, kind: *kind, value };
            if comes_back.is_some() {
                let value = values.next().expect("each reference has its value");
                writing.runs.note_came_back(&entry);
                writing.push(&Entry { kind: Kind::Value, value, ..entry })?;
            } else {
                writing.push(&entry)?;
            }
        }
        Ok(())
    }
}

/// Writes all entries of `cursor`, all of which are inside `bounds`, as runs of about `target` bytes with
/// seqno `newest_seqno`.
pub fn write_bottom(
    work: &Work,
    cursor: &mut dyn Cursor,
    bounds: &KeyBounds,
    newest_seqno: Seqno,
    target: u64,
    layout: RunLayout,
) -> Result<Vec<FencedRun>> {
    debug_assert!(!bounds.is_empty(), "a range has keys");
    let (height, keeps_tombstones) = (Height::Bottom, false);
    let origin = SequenceOrigin { newest_seqno, target, height, keeps_tombstones, layout };
    let mut writing = Writing { runs: RunSequence::new(work, origin, bounds.clone(), None)?, target };
    let mut ahead = Ahead::default();
    cursor.seek_first()?;
    while let Some(entry) = cursor.entry() {
        debug_assert!(bounds.contains(entry.key), "the cursor stays inside");
        let comes_back = work.values.as_ref().map_or(Ok(None), |values| values.comes_back(&entry))?;
        if comes_back.is_none() && ahead.entries.is_empty() {
            writing.push(&entry)?;
        } else {
            ahead.take(&entry, comes_back);
            if ahead.is_full() {
                ahead.write(work, &mut writing)?;
            }
        }
        cursor.next()?;
    }
    ahead.write(work, &mut writing)?;
    let Writing { runs, .. } = writing;
    let written = runs.finish()?;
    if !written.is_empty() {
        return Ok(written);
    }
    let mut runs = RunSequence::new(work, origin, bounds.clone(), None)?;
    let key = bounds.low.as_deref().unwrap_or_default();
    runs.push(&Entry { key, kind: Kind::Tombstone, value: &[] })?;
    runs.finish()
}
