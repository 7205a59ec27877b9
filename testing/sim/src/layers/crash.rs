//! Power losses at random moments of random scripts, during background work and during recovery itself.
//!
//! **Invariants**
//! - After each loss the content equals the state after some commit, not older than the newest durable one.

use testudo_testkit::{Campaign, configuration::crash_configurations};

use crate::{
    LayerReport, Limits,
    sweep::{Enough, Outcome, chosen, judge, require_share, search},
};

pub(crate) const NAME: &str = "crash";
pub(crate) const UNIT: &str = "crash images";

/// Total crash images opened.
const IMAGES_SHORT: u64 = 30_000;
/// Operations of one script.
const OP_COUNT: usize = 1_000;

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen(NAME, limits, crash_configurations())?;
    let enough = Enough { unit: UNIT, count: limits.share_or(IMAGES_SHORT) };
    let least = [
        ("crashes within a call", 5_000),
        ("crashes in recovery", 1_200),
        ("crashes in mid-move", 200),
        ("crashes with replaced pages", 40),
        ("unsynced commits lost", 6_000),
        ("unsynced commits kept", 6_000),
    ];
    let is_covered = |report: &LayerReport| require_share(NAME, limits, report, &least);
    search(limits, &configurations, enough, is_covered, |configuration, seed| {
        let campaign =
            Campaign { opener: &configuration.opener, profile: &configuration.profile, op_count: OP_COUNT };
        judge(NAME, Some(&configuration.name), Some(seed), || campaign.run(seed).map(Into::into))
    })
}
