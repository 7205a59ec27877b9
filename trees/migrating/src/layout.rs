//! The runs that count, with their ranges of keys, for salvage, which opens no tree.

use testudo_contract::{PartUse, RunUse};
use testudo_run::KeyBounds;

use crate::{
    Course,
    course::{SIDES, Side},
};

/// Clips the parts of a tree to `keys`.
fn within(parts: Vec<PartUse>, keys: &KeyBounds) -> Vec<PartUse> {
    let clip = |PartUse::Run(RunUse { reference, mut counts_in })| {
        counts_in.iter_mut().for_each(|bounds| *bounds = bounds.intersection(keys));
        counts_in.retain(|bounds| !bounds.is_empty());
        PartUse::Run(RunUse { reference, counts_in })
    };
    parts.into_iter().map(clip).collect()
}

impl Course {
    /// Returns the parts of both trees, each clipped to the keys of its tree.
    pub fn layout(&self, from: Vec<PartUse>, to: Vec<PartUse>) -> Vec<PartUse> {
        let of_side = |side: Side, parts| within(parts, &self.keys_of(side));
        SIDES.into_iter().zip([from, to]).flat_map(|(side, parts)| of_side(side, parts)).collect()
    }
}
