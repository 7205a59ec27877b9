use testudo_env::{FaultError, FaultPlan};

use super::Runner;
use crate::{
    Generator, Profile, Script,
    campaign::{Campaign, run_script},
    log_store::{LogStoreOpener, Plant},
};

const SEEDS: u64 = 12;

/// Profile for the reference store: short scripts with frequent crashes.
fn profile() -> Profile {
    Profile { key_count: 60, arm_operations_max: 12, nested_operations_max: 6, ..Profile::crashing() }
}

fn script(seed: u64) -> Script {
    Generator::new(&profile(), seed).script(1500)
}

#[test]
fn a_sound_store_passes() {
    let (opener, profile) = (LogStoreOpener::default(), profile());
    let campaign = Campaign { opener: &opener, profile: &profile, op_count: 2000 };
    for seed in 0..SEEDS {
        let report = campaign.run(seed).unwrap();
        assert!(
            report.crash_images > 30 && report.nested_images > 1 && report.armed_images > 10,
            "{report:?}"
        );
        assert!(report.lost_commits > 0 && report.kept_commits > 0, "{report:?}");
    }
}

#[test]
fn every_planted_fault_is_detected() {
    for plant in Plant::ALL {
        let opener = LogStoreOpener { plant: Some(plant) };
        let seen = (0..SEEDS).any(|seed| run_script(&opener, seed, &script(seed)).is_err());
        assert!(seen, "{plant:?} went unseen");
    }
}

#[test]
fn a_minimized_script_shows_a_partial_batch() {
    let script: Script = "
        create 0
        batch synced 0/a=1:10
        batch buffered 0/b=1:4000 0/c=2:10
        crash 100 keep 1
    "
    .parse()
    .unwrap();
    run_script(&LogStoreOpener::default(), 1, &script).unwrap();
    let failure = run_script(&LogStoreOpener { plant: Some(Plant::HalfBatch) }, 1, &script).unwrap_err();
    assert_eq!(failure.step, 3);
    assert!(failure.message.contains("not an allowed prefix"), "{failure}");
}

#[test]
fn failed_writes_leave_doubts_that_a_reopen_resolves() {
    let script: Script = "
        create 0
        batch synced 0/a=1:10
        insert 0 b 1:4000
        insert 0 c 1:10
        get 0 b
        scan 0 forward all 10
        persist
        reopen
        insert 0 d 1:10
        verify
    "
    .parse()
    .unwrap();
    let mut failures = 0;
    for skip in 0..40 {
        for plan in
            [FaultPlan::once(skip, FaultError::Device), FaultPlan::once(skip, FaultError::NoSpace).for_good()]
        {
            let opener = LogStoreOpener::default();
            let (mut runner, faulty) = Runner::new(&opener, 1).with_faults();
            faulty.set_plan(Some(plan));
            let report = runner.run(&script).unwrap_or_else(|failure| panic!("skip {skip}: {failure}"));
            failures += report.tolerated_errors;
        }
    }
    assert!(failures > 20);
}

#[test]
fn scripts_on_missing_keyspaces_do_nothing() {
    let mut script = script(3);
    script.0.retain(|op| !op.to_string().starts_with("create"));
    run_script(&LogStoreOpener::default(), 3, &script).unwrap();
}
