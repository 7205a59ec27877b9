//! A range of keys, whole, as runs of the bottom of a tree that has nothing there yet.
//!
//! **Invariants**
//! - The runs cover the range from end to end, even if it has no key: a dead run may still have some.

use testudo_base::{Cursor, Entry, Kind, PAGE_BYTES, Result, Seqno, num::u64_of};
use testudo_contract::{Height, Work};
use testudo_run::{KeyBounds, RunLayout};

use crate::{FencedRun, RunSequence, SequenceOrigin};

/// Writes what the cursor has, all of it inside `bounds`, as runs of about `target` bytes that are as new as
/// `newest_seqno`.
pub fn write_bottom(
    work: &Work,
    cursor: &mut dyn Cursor,
    bounds: &KeyBounds,
    newest_seqno: Seqno,
    target: u64,
    layout: RunLayout,
) -> Result<Vec<FencedRun>> {
    let (height, keeps_tombstones) = (Height::Bottom, false);
    let origin = SequenceOrigin { newest_seqno, target, height, keeps_tombstones, layout };
    let mut runs = RunSequence::new(work, origin, bounds.clone(), None)?;
    cursor.seek_first()?;
    while let Some(entry) = cursor.entry() {
        debug_assert!(bounds.contains(entry.key), "the cursor stays inside");
        let resolved = runs.resolve_operands(&entry)?;
        let entry = match &resolved {
            None => entry,
            Some((kind, value)) => Entry { kind: *kind, value, ..entry },
        };
        runs.push(&entry)?;
        runs.report(u64_of(entry.user_bytes()));
        let open_bytes = runs.open_bytes();
        if open_bytes >= PAGE_BYTES && open_bytes + PAGE_BYTES > target {
            runs.cut();
        }
        cursor.next()?;
    }
    let written = runs.finish()?;
    if !written.is_empty() {
        return Ok(written);
    }
    let mut runs = RunSequence::new(work, origin, bounds.clone(), None)?;
    let key = bounds.low.as_deref().unwrap_or_default();
    runs.push(&Entry { key, kind: Kind::Tombstone, value: &[] })?;
    runs.finish()
}
