//! A disk that fills up: every call succeeds or reports the shortage, acknowledged writes are kept, reads
//! stay right, and the store works again once there is room.
//!
//! **Invariants**
//! - Once there is room and the store was reopened, no error is tolerated.

use testudo_env::SplitMix;
use testudo_testkit::{
    Failure, Generator, Profile, Report, Runner, Script, Weights,
    campaign::catch,
    configuration::{Configuration, crash_configurations},
    op::Op,
};

use crate::{
    LayerReport, Limits,
    sweep::{Enough, Outcome, chosen, judge, require_share, search},
};

pub(crate) const NAME: &str = "full-disk";
pub(crate) const UNIT: &str = "ops";

/// Operations before the disk fills up, while it is full, and afterwards.
const OP_COUNTS: [usize; 3] = [400, 400, 200];
const OPS_SHORT: u64 = 80_000;

fn profile() -> Profile {
    let weights = Weights { crash: 0, arm: 0, kill: 0, reopen: 2, drop: 2, ..Weights::crashing() };
    Profile { weights, ..Profile::crashing() }
}

fn run_seed(configuration: &Configuration, seed: u64) -> Result<Report, Failure> {
    let profile = profile();
    let mut generator = Generator::new(&profile, seed);
    let [before, during, after] = OP_COUNTS.map(|count| generator.script(count));
    catch(&before, || {
        let (mut runner, _) = Runner::new(&configuration.opener, seed).with_faults();
        runner.run_ops(&before)?;
        // Occasionally less room than is already used.
        let room = SplitMix::new(seed).below(600_000);
        runner.machine().space_limit(Some((runner.machine().used_bytes() + room).saturating_sub(50_000)));
        runner.run_ops(&during)?;
        runner.machine().space_limit(None);
        runner.run_ops(&Script(vec![Op::Reopen]))?;
        runner.require_health();
        runner.run_ops(&after)?;
        runner.run(&Script::default())
    })
}

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen(NAME, limits, crash_configurations())?;
    let enough = Enough { unit: UNIT, count: limits.share_or(OPS_SHORT) };
    let is_covered = |report: &LayerReport| require_share(NAME, limits, report, &[("errors tolerated", 100)]);
    search(limits, &configurations, enough, is_covered, |configuration, seed| {
        judge(NAME, Some(&configuration.name), Some(seed), || {
            run_seed(configuration, seed).map(Into::into).map_err(|failure| failure.to_string())
        })
    })
}
