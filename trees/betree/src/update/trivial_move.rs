//! Leaves beside which everything falls that flows into them, as when keys arrive in order: their runs stay
//! as they are.
//!
//! What arrives in order is so written once, however full the leaf is that it comes behind (SplinterDB §5.3
//! has bytes written fall to those of the user under sequential insertion; rewriting the last leaf for each
//! batch costs half a leaf on average).
//!
//! **Invariants**
//! - A run that stays has no key in common with what flows in, nor lies any of that between its keys.
//! - It is half a leaf or more, and so is what becomes leaves on either side of it: staying does not make the
//!   leaves small.

use testudo_base::{Result, sync::Arc};
use testudo_run::Run;
use testudo_sequence::{Bounds, Fence, Layer, RunSlice, Source};

use crate::BeTreeOptions;

/// More than this part of a leaf, or than the bytes below, among the keys of a run means that there is
/// something: sizes are right to a few pages.
const SURELY_INSIDE_PARTS: u64 = 32;
const SURELY_INSIDE_BYTES: u64 = 64 << 10;

/// If the oldest of a leaf's layers is a run that nothing newer touches: takes it out.
pub(crate) fn take_trivial_move(
    layers: &mut Vec<Layer>,
    options: &BeTreeOptions,
) -> Result<Option<Arc<Run>>> {
    let Some([RunSlice { source: Source::Run(run), bounds }]) = layers.last().map(Vec::as_slice) else {
        return Ok(None);
    };
    let run = Arc::clone(run);
    let newer = &layers[..layers.len() - 1];
    let stays = newer.is_empty() || stays(&run, newer, options)?;
    if *bounds != Bounds::default() || !stays {
        return Ok(None);
    }
    layers.pop();
    Ok(Some(run))
}

/// Whether it looks as if the run may stay where `newer` flows in. Makes do with estimates.
pub(crate) fn may_be_trivial_move(run: &Arc<Run>, newer: &[Layer], options: &BeTreeOptions) -> Result<bool> {
    let is_large = |bytes: u64| bytes >= options.leaf_bytes / 2;
    if !is_large(run.reference().user_bytes) {
        return Ok(false);
    }
    let [left, inside, right] = around(run)?;
    let mut bytes = [0; 3];
    for slice in newer.iter().flatten() {
        for (bytes, bounds) in bytes.iter_mut().zip([&inside, &left, &right]) {
            *bytes += slice.bytes_within(bounds)?;
        }
        if bytes[0] > SURELY_INSIDE_BYTES.min(options.leaf_bytes / SURELY_INSIDE_PARTS) {
            return Ok(false);
        }
    }
    let [_, left, right] = bytes;
    Ok(left + right > 0 && [left, right].into_iter().all(|side| side == 0 || is_large(side)))
}

fn stays(run: &Arc<Run>, newer: &[Layer], options: &BeTreeOptions) -> Result<bool> {
    if !may_be_trivial_move(run, newer, options)? {
        return Ok(false);
    }
    let [left, inside, right] = around(run)?;
    let holds_any = |bounds: &Bounds| -> Result<bool> {
        for slice in newer.iter().flatten() {
            if slice.holds_any(bounds)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    if holds_any(&inside)? {
        return Ok(false);
    }
    // A few entries may count as nothing, but would be a leaf all the same.
    for side in [left, right] {
        let bytes = newer.iter().flatten().map(|slice| slice.bytes_within(&side)).sum::<Result<u64>>()?;
        if bytes == 0 && holds_any(&side)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What lies before the first key of the run, from there to its last key, and behind that.
fn around(run: &Arc<Run>) -> Result<[Bounds; 3]> {
    let (first, last) = run.exact_ends()?;
    let (first, behind) = (Some(first.into()), Some([last.as_slice(), &[0]].concat().into()));
    let bounds = |low: &Option<Fence>, high: &Option<Fence>| Bounds { low: low.clone(), high: high.clone() };
    Ok([bounds(&None, &first), bounds(&first, &behind), bounds(&behind, &None)])
}
