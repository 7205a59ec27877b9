//! Random operations with reopens and crashes, every answer compared with a map.
//!
//! **Invariants**
//! - All trees with all shapes are run.

use testudo_testkit::{Campaign, configuration::configurations};

use crate::{
    Limits,
    sweep::{Enough, Outcome, chosen, judge, require, seeded, sweep},
};

pub(crate) const NAME: &str = "model";
pub(crate) const UNIT: &str = "ops";

/// Operations of all configurations and seeds together.
const OPS_SHORT: u64 = 500_000;
/// Operations of one script.
const OP_COUNT: usize = 6_000;

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen(NAME, limits, configurations())?;
    let enough = Enough { unit: UNIT, count: limits.count_or(OPS_SHORT) };
    let report = sweep(limits, seeded(limits, &configurations), Some(enough), |(configuration, seed)| {
        let campaign =
            Campaign { opener: &configuration.opener, profile: &configuration.profile, op_count: OP_COUNT };
        judge(NAME, Some(&configuration.name), Some(seed), || campaign.run(seed).map(Into::into))
    })?;
    require(NAME, limits, &report, &[("reopens", 100), ("kills", 100), ("crash images", 100)])?;
    Ok(report)
}
