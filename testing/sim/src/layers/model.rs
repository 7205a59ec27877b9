//! Random operations with reopens and crashes, every answer compared with a map.
//!
//! **Invariants**
//! - All trees with all shapes are run.

use testudo_base::checksum::hash_key;
use testudo_testkit::{Campaign, configuration::configurations};

use crate::{
    LayerReport, Limits,
    sweep::{Enough, Outcome, chosen, judge, require_share, search},
};

pub(crate) const NAME: &str = "model";
pub(crate) const UNIT: &str = "ops";

/// Operations of all configurations and seeds together: at least one script per configuration.
const OPS_SHORT: u64 = 240_000;
/// Operations of the first script of a configuration, and of the others.
const FIRST_OP_COUNT: usize = 2_000;
const OP_COUNT: usize = 6_000;
/// Out of a total of about 9,000, so that a tenth has several kills as well.
const KILL_WEIGHT: u32 = 20;

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let mut configurations = chosen(NAME, limits, configurations())?;
    configurations.iter_mut().for_each(|configuration| configuration.profile.weights.kill = KILL_WEIGHT);
    let enough = Enough { unit: UNIT, count: limits.share_or(OPS_SHORT) };
    let least = [("reopens", 100), ("kills", 100), ("crash images", 100)];
    let is_covered = |report: &LayerReport| require_share(NAME, limits, report, &least);
    search(limits, &configurations, enough, is_covered, |configuration, seed| {
        let op_count = limits.script_length(if seed == 0 { FIRST_OP_COUNT } else { OP_COUNT });
        // Different scripts for each configuration: a tenth runs only 200 operations of each.
        let script_seed = seed ^ hash_key(configuration.name.as_bytes());
        let campaign = Campaign { opener: &configuration.opener, profile: &configuration.profile, op_count };
        judge(NAME, Some(&configuration.name), Some(seed), || campaign.run(script_seed).map(Into::into))
    })
}
