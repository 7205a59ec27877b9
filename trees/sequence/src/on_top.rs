//! Writing updates on top of a tree without a merge: cheap, for use when space is short.

use testudo_base::{Result, key};
use testudo_contract::{Updates, Work};

use crate::{Fence, FencedRun, run_sequence::new_writer};

/// Minimum size of a run's index, filter and footer, and about the granularity in which it takes space.
pub const RUN_OVERHEAD_BYTES: u64 = 64 << 10;
/// Size of a run with a single small entry.
pub const LEAST_RUN_BYTES: u64 = 8 << 10;
/// Minimum run size when space is short, so that overhead does not dominate the data.
pub const SPARING_RUN_BYTES: u64 = 64 << 10;

/// Maximum number of pages into which a page of entries in memory goes: entries slightly larger than half a
/// page leave pages half empty.
const PAGES_PER_FULL_PAGE: u64 = 2;
/// Index, filter and footer of a full run, one of many: half of what a run of any size may take.
const FULL_RUN_OVERHEAD_BYTES: u64 = RUN_OVERHEAD_BYTES / 2;

/// Upper bound on the space of `memory_bytes` of a write buffer, written as runs of about `run_bytes`.
pub fn on_top_bytes(memory_bytes: u64, run_bytes: u64) -> u64 {
    debug_assert!(run_bytes > 0, "a run holds something");
    let data = memory_bytes * PAGES_PER_FULL_PAGE;
    let runs = memory_bytes / run_bytes + 1;
    data + (runs - 1) * FULL_RUN_OVERHEAD_BYTES + 2 * RUN_OVERHEAD_BYTES
}

/// Writes the updates as runs of about `run_bytes`, in key order.
pub fn write_updates(work: &Work, updates: &dyn Updates, run_bytes: u64) -> Result<Vec<FencedRun>> {
    debug_assert!(run_bytes > 0, "a run holds something");
    let expected = updates.bytes().min(run_bytes);
    let (mut runs, mut open): (Vec<FencedRun>, _) = (Vec::new(), None);
    let mut low = Fence::default();
    let mut last = Vec::new();
    let mut cursor = updates.cursor();
    cursor.seek_first()?;
    while let Some(entry) = cursor.entry() {
        let mut writer = match open.take() {
            Some(writer) => writer,
            None => {
                if let Some(before) = runs.last() {
                    low = Fence::beside(&before.low, &key::separator(&last, entry.key));
                }
                new_writer(work, updates.sealed_seqno(), expected)?
            }
        };
        writer.push(&entry)?;
        if writer.data_bytes() >= run_bytes {
            last = writer.last_key().to_vec();
            runs.push(FencedRun { low: low.clone(), run: writer.finish(None)? });
        } else {
            open = Some(writer);
        }
        cursor.next()?;
    }
    if let Some(writer) = open {
        runs.push(FencedRun { low, run: writer.finish(None)? });
    }
    debug_assert!(runs.is_sorted_by(|a, b| a.low < b.low), "runs are in key order");
    Ok(runs)
}
