//! The choice among steps that reclaim space on a full device (decision 0032). A tree offers steps, in terms
//! of its own family; the one with the largest gain is taken.
//!
//! **Invariants**
//! - The choice is pure: only the limits and the offers decide it.
//! - A step that failed, or that does not fit, is never taken.

use std::{any::Any, fmt};

use testudo_contract::{LeastGain, Opaque, Reclaim, ReclaimLimits};

use crate::LEAST_RUN_BYTES;

/// Inverse of the minimum gain of a step, as a fraction of the bytes it writes.
const GAIN_PARTS: u64 = 32;
/// Minimum gain of a step in bytes …
const GAIN_BYTES_MIN: u64 = 16 << 10;
/// … and, for small leaves, as the inverse of a fraction of a leaf.
const GAIN_PARTS_OF_LEAF: u64 = 16;
/// Inverse of the minimum garbage fraction for rewriting a run, normally and for a delete.
const GARBAGE_PARTS: u64 = 8;
const GARBAGE_PARTS_ANY: u64 = 32;

/// Data that a step rewrites, in the terms of one family of trees.
pub trait ReclaimTarget: Any + Send + Sync + fmt::Debug + Eq {
    /// Whether the step reduces the backlog of merges.
    fn is_merge(&self) -> bool;
}

/// Returns the target of `reclaim`. Panics unless a tree of the family of `T` picked it.
pub fn target_of<T: ReclaimTarget>(reclaim: &Reclaim) -> &T {
    match reclaim.target.of() {
        Some(target) => target,
        None => panic!("{reclaim:?} was chosen by a tree of another family"),
    }
}

/// A step that a tree offers.
#[derive(Debug)]
pub struct ReclaimStep<T> {
    /// Data to rewrite.
    pub target: T,
    /// Approximate space that the step takes before it releases any.
    pub space_bytes: u64,
    /// Approximate net space that the step reclaims.
    pub gain_bytes: u64,
}

impl<T: ReclaimTarget> ReclaimStep<T> {
    /// Returns the step for the engine.
    pub fn into_reclaim(self) -> Reclaim {
        Reclaim {
            is_merge: self.target.is_merge(),
            target: Opaque::new(self.target),
            space_bytes: self.space_bytes,
            gain_bytes: self.gain_bytes,
        }
    }
}

/// The best of the steps offered so far.
#[derive(Debug)]
pub struct ReclaimChoice<'a, T> {
    limits: &'a ReclaimLimits<'a>,
    gain_min: u64,
    best: Option<ReclaimStep<T>>,
}

impl<'a, T: ReclaimTarget> ReclaimChoice<'a, T> {
    /// Creates a choice without a step. `leaf_bytes`: size of a full run at the bottom of the tree.
    pub fn new(limits: &'a ReclaimLimits<'a>, leaf_bytes: u64) -> Self {
        Self { limits, gain_min: GAIN_BYTES_MIN.min(leaf_bytes / GAIN_PARTS_OF_LEAF), best: None }
    }

    /// Whether no step was taken yet.
    pub fn is_empty(&self) -> bool {
        self.best.is_none()
    }

    /// Minimum worthwhile gain of work that writes `written_bytes`.
    pub fn worthwhile_gain(&self, written_bytes: u64) -> u64 {
        self.gain_min.max(written_bytes / GAIN_PARTS)
    }

    /// Minimum gain of work that takes `space_bytes`.
    pub fn least_gain(&self, space_bytes: u64) -> u64 {
        match self.limits.least_gain {
            LeastGain::Worthwhile => self.worthwhile_gain(space_bytes.saturating_sub(LEAST_RUN_BYTES)),
            LeastGain::Any | LeastGain::None => 1,
        }
    }

    /// Inverse of the minimum garbage fraction for rewriting a run.
    pub fn garbage_parts(&self) -> u64 {
        match self.limits.least_gain {
            LeastGain::Worthwhile => GARBAGE_PARTS,
            LeastGain::Any | LeastGain::None => GARBAGE_PARTS_ANY,
        }
    }

    /// Takes the step if it is possible, gains enough, and gains more than the best one.
    pub fn offer(&mut self, target: T, space_bytes: u64, gain_bytes: u64) {
        let is_better = self.best.as_ref().is_none_or(|best| gain_bytes > best.gain_bytes);
        if gain_bytes >= self.least_gain(space_bytes) && is_better && self.is_possible(&target, space_bytes) {
            self.best = Some(ReclaimStep { target, space_bytes, gain_bytes });
        }
    }

    /// Takes the first possible step, regardless of its gain.
    pub fn offer_next(&mut self, target: T, space_bytes: u64) {
        if self.best.is_none() && self.is_possible(&target, space_bytes) {
            self.best = Some(ReclaimStep { target, space_bytes, gain_bytes: 0 });
        }
    }

    fn is_possible(&self, target: &T, space_bytes: u64) -> bool {
        let ReclaimLimits { space_bytes: left, but, .. } = self.limits;
        space_bytes <= *left && but.iter().all(|other| target_of::<T>(other) != target)
    }

    /// Returns the step taken.
    pub fn into_reclaim(self) -> Option<Reclaim> {
        debug_assert!(
            self.best.as_ref().is_none_or(|best| best.space_bytes <= self.limits.space_bytes),
            "a step that does not fit is never taken"
        );
        self.best.map(ReclaimStep::into_reclaim)
    }
}

#[cfg(test)]
mod tests;
