//! A tree with updates on top of it that nothing is merged with: cheap to write, and of use to readers only.
//!
//! **Invariants**
//! - Updates become one tier of the root, newer than all others; everything below is shared.

use testudo_base::{Result, key};
use testudo_contract::{Updates, Work};

use crate::{
    BeTreeOptions,
    trunk::{
        fence::Fence,
        node::{FencedRun, Node, Share, Tier},
    },
    update::run_sequence::new_writer,
};

/// `root` with `updates` in front of its tiers.
pub(crate) fn stack(
    root: &Node,
    work: &Work,
    updates: &dyn Updates,
    options: &BeTreeOptions,
) -> Result<Node> {
    let runs = write_runs(work, updates, options.tier_run_bytes())?;
    let mut node = root.clone();
    if !runs.is_empty() {
        let bytes = runs.iter().map(|fenced| fenced.run.reference().user_bytes).sum::<u64>();
        let share = Share { from: None, bytes: bytes / testudo_base::num::u64_of(node.pivots.len()) };
        let shares = vec![Some(share); node.pivots.len()];
        node.tiers.insert(0, Tier { runs, shares });
    }
    Ok(node)
}

/// The updates as runs of about `run_bytes`, in key order.
fn write_runs(work: &Work, updates: &dyn Updates, run_bytes: u64) -> Result<Vec<FencedRun>> {
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
    Ok(runs)
}
