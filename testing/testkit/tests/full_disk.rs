//! A disk that fills up: every call succeeds or says so, nothing that was acknowledged is lost, reads stay
//! right, and the store works again once there is room.

use testudo_env::SplitMix;
use testudo_testkit::{
    Campaign, Failure, Generator, Profile, Report, Runner, Script, Weights,
    campaign::{catch, run_in_parallel},
    configuration::{Configuration, crash_configurations},
    op::Op,
};

/// Ops before the disk gets narrow, while it is, and after.
const OP_COUNTS: [usize; 3] = [400, 400, 200];
/// Seeds of each configuration.
const SEEDS: u64 = 25;

fn profile() -> Profile {
    let weights = Weights { crash: 0, arm: 0, kill: 0, reopen: 2, drop: 2, ..Weights::crashing() };
    Profile { weights, ..Profile::crashing() }
}

fn run(configuration: &Configuration, seed: u64) -> Result<Report, Failure> {
    let profile = profile();
    let mut generator = Generator::new(&profile, seed);
    let [before, during, after] = OP_COUNTS.map(|count| generator.script(count));
    catch(&before, || {
        let (mut runner, _) = Runner::new(&configuration.opener, seed).with_faults();
        runner.run_ops(&before)?;
        // Now and then less room than is used already.
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

#[test]
fn a_full_disk_loses_nothing() {
    let configurations = crash_configurations();
    let seeds = Campaign::seeds(0..SEEDS);
    let runs: Vec<_> = configurations
        .iter()
        .flat_map(|configuration| seeds.iter().map(move |&seed| (configuration, seed)))
        .collect();
    let total = run_in_parallel(&runs, |&(configuration, seed)| {
        run(configuration, seed).unwrap_or_else(|failure| {
            panic!(
                "{failure}\nreplay with TESTUDO_SEED={seed} TESTUDO_CONFIGURATION={} cargo test -p testudo-testkit \
                 --test full_disk",
                configuration.name
            )
        })
    });
    println!("{total:?}");
    assert!(total.tolerated_errors > 0, "the disk was never full");
}
