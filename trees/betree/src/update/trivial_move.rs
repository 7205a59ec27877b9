//! Leaves whose keys do not overlap those flowing in, as with sequential inserts: their runs stay as they
//! are.
//!
//! So sequential inserts are written once, however full the preceding leaf is (SplinterDB §5.3: under
//! sequential insertion, bytes written fall to user bytes; rewriting the last leaf for each batch costs half
//! a leaf on average).
//!
//! **Invariants**
//! - No incoming key is between the first and last key of a staying run.
//! - It is at least half a leaf, and so are the new leaves on either side: staying does not create small
//!   leaves.

use testudo_base::{Result, sync::Arc};
use testudo_run::Run;
use testudo_sequence::{Bounds, Fence, Layer, RunSlice, Source};

use crate::BeTreeOptions;

/// Inverse of the fraction of a leaf from which a run may stay: smaller ones would be many.
const LARGE_PARTS: u64 = 2;
/// Estimated incoming bytes inside a run, as the inverse of a fraction of a leaf or absolute, above which
/// some certainly are: estimates are accurate to a few pages.
const SURELY_INSIDE_PARTS: u64 = 32;
const SURELY_INSIDE_BYTES: u64 = 64 << 10;

/// Removes the oldest of a leaf's layers if it is a run that no newer entry overlaps.
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

/// Whether the run may stay where `newer` flows in, judged by estimates.
pub(crate) fn may_be_trivial_move(run: &Arc<Run>, newer: &[Layer], options: &BeTreeOptions) -> Result<bool> {
    let is_large = |bytes: u64| bytes >= options.leaf_bytes / LARGE_PARTS;
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
    // A few entries may be estimated as zero, but would still become a leaf.
    for side in [left, right] {
        let bytes = newer.iter().flatten().map(|slice| slice.bytes_within(&side)).sum::<Result<u64>>()?;
        if bytes == 0 && holds_any(&side)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the ranges before the first key of the run, from there to its last key, and after that.
fn around(run: &Arc<Run>) -> Result<[Bounds; 3]> {
    let (first, last) = run.exact_ends()?;
    let (first, behind) = (Some(first.into()), Some([last.as_slice(), &[0]].concat().into()));
    let bounds = |low: &Option<Fence>, high: &Option<Fence>| Bounds { low: low.clone(), high: high.clone() };
    Ok([bounds(&None, &first), bounds(&first, &behind), bounds(&behind, &None)])
}
