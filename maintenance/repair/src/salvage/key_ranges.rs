//! Computes the key ranges that a set of covered ranges leaves uncovered.
//!
//! **Invariants**
//! - Covered ranges are sorted by their lower bound; a range without one begins with the empty key.

use testudo_base::{RunId, Seqno};
use testudo_run::KeyBounds;

/// Age of a run, for comparison with others.
pub(crate) type Age = (Seqno, RunId);

/// A bottom run's claim that it holds all entries of its range up to its age.
#[derive(Clone, Debug)]
pub(crate) struct CoveredRange {
    pub(crate) bounds: KeyBounds,
    pub(crate) age: Age,
}

/// The immediate successor of `key`.
pub(crate) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The parts of `range` outside all covered ranges accepted by `knows`.
pub(crate) fn uncovered(
    range: &KeyBounds,
    authorities: &[CoveredRange],
    knows: impl Fn(&CoveredRange) -> bool,
) -> Vec<KeyBounds> {
    let mut parts = Vec::new();
    let mut low = range.low.clone();
    for covered_range in authorities.iter().filter(|covered_range| knows(covered_range)) {
        let rest = KeyBounds { low: low.clone(), high: range.high.clone() };
        let covered = rest.intersection(&covered_range.bounds);
        if rest.is_empty() || covered.is_empty() {
            continue;
        }
        let before = KeyBounds { low: rest.low, high: covered.low.clone() };
        if covered.low.is_some() && !before.is_empty() {
            parts.push(before);
        }
        match covered.high {
            Some(high) => low = Some(high),
            None => return parts,
        }
    }
    let rest = KeyBounds { low, high: range.high.clone() };
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

#[cfg(test)]
mod tests;
