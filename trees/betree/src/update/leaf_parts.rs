//! Cutting the flow into one leaf into parts, which several workers merge in parallel. Keys in order put
//! nearly all of a flush into a few leaves, and the first flush into an empty tree puts all of it into one.
//!
//! **Invariants**
//! - The parts are disjoint, in key order, and together the whole.
//! - Each part has an entry: an empty part could not record that older entries of its keys are deleted. So
//!   every part but the first begins with an incoming key, and the first has one, too.
//! - A run that may stay is inside one part: no incoming key is between its keys.

use std::collections::BTreeSet;

use testudo_base::{Cursor, Result};
use testudo_sequence::{Bounds, Fence, Layer, RunSlice, Source, clip_layer, layer_cursor};

use crate::update::subcompaction::{Boundary, Part, cut};

/// Minimum size of a part, in leaves: each part ends with one that may be small.
pub(crate) const PART_LEAVES_MIN: u64 = 4;
/// Maximum number of candidate keys: each costs an estimate in every source.
const CANDIDATES_MAX: usize = 64;

/// Cuts a leaf with the keys of `bounds`, into which about `bytes` flow from `layers`, into parts of about
/// `bytes_max`. Reads a few pages for each part.
pub(crate) fn cut_leaf(layers: &[Layer], bounds: &Bounds, bytes: u64, bytes_max: u64) -> Result<Vec<Part>> {
    if bytes <= bytes_max {
        return Ok(Vec::new());
    }
    let flows = match layers.split_last() {
        Some((last, flows)) if is_held(last) => flows,
        _ => layers,
    };
    let mut parts: Vec<Part> = Vec::new();
    let mut low = bounds.low.clone();
    let mut before = 0;
    for part in cut(bytes, &boundaries_of(layers, flows, bounds)?, bytes_max) {
        before += part.bytes;
        let Some(due) = part.bounds.high else { break };
        let Some(border) = first_from(flows, &due, bounds)? else { break };
        // The part that ends here begins with an incoming key, unless it is the first.
        let has_entries = match &low {
            Some(low) if !parts.is_empty() => *low < border,
            _ => holds_any_before(layers, bounds, &border)?,
        };
        if has_entries {
            let bounds = Bounds { low: low.replace(border.clone()), high: Some(border) };
            parts.push(Part { bounds, bytes: std::mem::take(&mut before) });
        }
    }
    let done: u64 = parts.iter().map(|part| part.bytes).sum();
    debug_assert!(done <= bytes, "parts hold no more than the whole");
    let rest = Bounds { low, high: bounds.high.clone() };
    parts.push(Part { bounds: rest, bytes: bytes.saturating_sub(done) });
    debug_assert_eq!(parts[0].bounds.low, bounds.low, "the first part begins with the leaf");
    Ok(parts)
}

/// Whether a layer is the old contents of the leaf.
fn is_held(layer: &[RunSlice]) -> bool {
    matches!(layer, [RunSlice { source: Source::Run(_), .. }])
}

/// Returns the keys at which the leaf may be cut, with estimates of the incoming bytes before them.
fn boundaries_of(layers: &[Layer], flows: &[Layer], bounds: &Bounds) -> Result<Vec<Boundary>> {
    let mut keys = BTreeSet::new();
    for slice in flows.iter().flatten() {
        match &slice.source {
            Source::Updates(updates) => keys.extend(updates.borders().into_iter().map(Fence::from)),
            Source::Fenced(fenced, _) => keys.extend(fenced.low.as_low()),
            Source::Run(_) => {}
        }
    }
    keys.retain(|key| {
        bounds.low.as_ref().is_none_or(|low| low < key) && bounds.high.as_ref().is_none_or(|high| key < high)
    });
    let step = keys.len().div_ceil(CANDIDATES_MAX).max(1);
    let mut boundaries: Vec<Boundary> = Vec::new();
    for key in keys.into_iter().step_by(step) {
        let before = Bounds { low: None, high: Some(key.clone()) };
        let mut bytes_before = boundaries.last().map_or(0, |last| last.bytes_before);
        let mut found = 0;
        for slice in layers.iter().flatten() {
            found += slice.bytes_within(&before)?;
        }
        bytes_before = bytes_before.max(found);
        boundaries.push(Boundary { key, bytes_before });
    }
    debug_assert!(boundaries.len() <= CANDIDATES_MAX, "each candidate costs an estimate in every source");
    Ok(boundaries)
}

/// Returns the first key of the layers in `bounds` that is not less than `low`.
fn first_from(layers: &[Layer], low: &Fence, bounds: &Bounds) -> Result<Option<Fence>> {
    let behind = bounds.intersection(&Bounds { low: Some(low.clone()), high: None });
    let mut first: Option<Fence> = None;
    for layer in layers {
        let mut cursor = layer_cursor(clip_layer(layer, &behind));
        cursor.seek_first()?;
        if let Some(entry) = cursor.entry()
            && first.as_ref().is_none_or(|first| !first.is_at_most(entry.key))
        {
            first = Some(entry.key.into());
        }
    }
    Ok(first)
}

fn holds_any_before(layers: &[Layer], bounds: &Bounds, border: &Fence) -> Result<bool> {
    let before = bounds.intersection(&Bounds { low: None, high: Some(border.clone()) });
    for slice in layers.iter().flatten() {
        if slice.holds_any(&before)? {
            return Ok(true);
        }
    }
    Ok(false)
}
