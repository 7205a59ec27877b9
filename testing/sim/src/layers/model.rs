//! Random operations with reopens and crashes, every answer compared with a map.
//!
//! **Invariants**
//! - All trees with all shapes are run.

use testudo_testkit::{Campaign, configuration::configurations};

use crate::{
    LayerReport, Limits,
    sweep::{Enough, Outcome, chosen, judge, require, search},
};

pub(crate) const NAME: &str = "model";
pub(crate) const UNIT: &str = "ops";

/// Operations of all configurations and seeds together: more than one script for each configuration.
const OPS_SHORT: u64 = 240_000;
/// Operations of one script.
const OP_COUNT: usize = 6_000;

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen(NAME, limits, configurations())?;
    let enough = Enough { unit: UNIT, count: limits.count_or(OPS_SHORT) };
    let least = [("reopens", 100), ("kills", 100), ("crash images", 100)];
    let is_covered = |report: &LayerReport| require(NAME, limits, report, &least);
    search(limits, &configurations, enough, is_covered, |configuration, seed| {
        let campaign =
            Campaign { opener: &configuration.opener, profile: &configuration.profile, op_count: OP_COUNT };
        judge(NAME, Some(&configuration.name), Some(seed), || campaign.run(seed).map(Into::into))
    })
}
