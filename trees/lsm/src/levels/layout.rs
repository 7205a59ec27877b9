//! The runs in a tree's objects, without opening any: which keys of which run count.
//!
//! For salvage, which reads the runs itself and does not require them to be valid.
//!
//! **Invariants**
//! - Of two runs that count for a key, the one with the greater newest seqno, then id, has the newer entry.

use std::collections::{BTreeMap, BTreeSet};

use testudo_base::{ObjectId, RunId, codec::Damage, sync::Arc};
use testudo_contract::{PartUse, RunUse};
use testudo_run::{KeyBounds, RunRef};
use testudo_sequence::{Fence, decode_buffer};

use crate::levels::levels_format::{ROOT, StoredRun, decode_root, decode_segment};

/// Returns the runs of the tree that `objects` describe.
///
/// Errors: [`Damage`] if the objects contradict each other.
pub fn read_layout(mut objects: BTreeMap<ObjectId, Arc<[u8]>>) -> Result<Vec<PartUse>, Damage> {
    let mut uses = Vec::new();
    if let Some(root) = objects.remove(&ROOT) {
        let root = decode_root(&root)?;
        let upper = root.levels.iter().flat_map(|level| level.filling.iter().chain(&level.emptying));
        for component in upper.chain(std::iter::once(&root.bottom)) {
            let mut runs = Vec::new();
            for id in component {
                let bytes = objects.remove(id).ok_or(Damage("a segment is missing"))?;
                runs.extend(decode_segment(&bytes, |id| objects.remove(&id))?);
            }
            add_uses(runs, &mut uses)?;
        }
        let unread = |reference: RunRef| RunUse { reference, counts_in: Vec::new() };
        uses.extend(root.witnesses.into_iter().map(|run| unread(run.reference)));
        // Entries of a compaction buffer are in its sequence as well, and count there.
        let mut known: BTreeSet<RunId> = uses.iter().map(|run| run.reference.id).collect();
        for (_, id) in root.buffers {
            let bytes = objects.remove(&id).ok_or(Damage("a compaction buffer is missing"))?;
            let runs = decode_buffer(&bytes)?.runs;
            uses.extend(runs.into_iter().filter(|run| known.insert(run.id)).map(unread));
        }
    }
    if objects.is_empty() {
        Ok(uses.into_iter().map(PartUse::Run).collect())
    } else {
        Err(Damage("a segment is unreachable"))
    }
}

/// Adds the runs of a sequence; each counts from its fence to the next one.
fn add_uses(runs: Vec<StoredRun>, uses: &mut Vec<RunUse>) -> Result<(), Damage> {
    if !runs.is_sorted_by(|a, b| a.low < b.low) {
        return Err(Damage("the fences of a level do not ascend"));
    }
    let lows: Vec<Fence> = runs.iter().map(|run| run.low.clone()).collect();
    for (at, run) in runs.into_iter().enumerate() {
        let low = run.low.as_low().map(|low| low.to_vec());
        let bounds = KeyBounds { low, high: lows.get(at + 1).map(Fence::to_vec) };
        uses.push(RunUse { reference: run.reference, counts_in: vec![bounds] });
    }
    Ok(())
}
